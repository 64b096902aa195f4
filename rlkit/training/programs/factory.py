"""Chooses the program that runs a module."""

from rlkit.errors import require
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.config import Overlap
from rlkit.training.core.module import Module, RLModule
from rlkit.training.programs.host_program import HostProgram
from rlkit.training.programs.jittable_program import DeviceProgram
from rlkit.training.programs.protocol import Program


def make_program(
    module: Module,
    *,
    compiler: Compiler,
    num_iterations: int,
    overlap: Overlap,
    compile_host_loop: bool = True,
    keeps_each: bool = False,
) -> Program:
    """The program for outer iterations of `num_iterations` iterations.

    `overlap` and `compile_host_loop` are as in `TrainerConfig`; `keeps_each` adds the metrics of
    each iteration, see `of_each`.

    Raises `ConfigError` if `overlap` or the collector does not fit the environment.
    """
    if isinstance(module, RLModule) and not module.env.is_jittable:
        return HostProgram(
            module,
            compiler=compiler,
            num_iterations=num_iterations,
            overlap=overlap,
            compile_host_loop=compile_host_loop,
            keeps_each=keeps_each,
        )
    require(
        overlap == "none",
        f"overlap={overlap!r} is for stepping environments on the host, but this one is compiled"
        " with the update",
        'leave it at "none"',
    )
    return DeviceProgram(
        module, compiler=compiler, num_iterations=num_iterations, keeps_each=keeps_each
    )
