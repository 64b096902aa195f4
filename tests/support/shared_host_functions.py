"""Programs of the host with equal parts compile their functions once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from rlkit.training.programs import host_program
from rlkit.training.programs.host_functions import compile_host_functions

_COMPILED: dict[str, Any] = {}


@contextmanager
def share_compiled(overlap: str | None = None) -> Iterator[None]:
    """Programs made in it get the functions that an equal one compiled before."""

    def compile_once(module: Any, compiler: Any, *, num_groups: int) -> Any:
        env = module.env
        parts = (module.algorithm.spec, module.agent.spec, env.observation_space, env.num_envs)
        key = repr((parts, module.total_steps, compiler.num_seeds, num_groups, overlap))
        if key not in _COMPILED:
            _COMPILED[key] = compile_host_functions(module, compiler, num_groups=num_groups)
        return _COMPILED[key]

    with mock.patch.object(host_program, "compile_host_functions", compile_once):
        yield
