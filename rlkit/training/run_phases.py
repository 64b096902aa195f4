"""`RunPhases`: the phases of a run, of which one trains, and their programs."""

from collections.abc import Callable

from rlkit.envs.base import EnvAdapter
from rlkit.training.config import Plan
from rlkit.training.core.module import Module, RLModule
from rlkit.training.core.swept_module import SweptModule
from rlkit.training.curriculum import Curriculum
from rlkit.training.phase_plan import advanced, phase_at, starts
from rlkit.training.programs.protocol import Program
from rlkit.training.run_parts import RunParts

MakeProgram = Callable[[Module, int], Program]
"""From a module and the number of iterations in its outer iterations."""


class RunPhases:
    """The phases of a run; one without a curriculum is a single phase.

    Programs are made when a phase first needs them. On the host, one serves all environments of the
    same number; programs of jittable environments that differ in parameters alone are compiled
    once, see `SharedPrograms`.
    """

    def __init__(self, parts: RunParts, make_program: MakeProgram):
        self.whole = parts  # the run as it is described
        self.all = parts.phases or (parts,)
        self.index = 0
        self._make_program = make_program
        self._programs: dict[object, Program] = {}

    @property
    def current(self) -> RunParts:
        """The parts of the phase that trains."""
        return self.all[self.index]

    @property
    def curriculum(self) -> Curriculum | None:
        """The curriculum; None: there is none."""
        return self.whole.curriculum

    @property
    def title(self) -> str | None:
        """How sentences name the phase; None without a curriculum."""
        return None if self.curriculum is None else self.curriculum.title(self.index)

    @property
    def ranks_checkpoints(self) -> bool:
        """Whether a return of the phase may make its checkpoint the best one of the run."""
        return self.current.eval_env is self.all[-1].eval_env

    @property
    def advance_at(self) -> float | None:
        """The evaluation return that ends the phase early; None: nothing does."""
        return None if self.curriculum is None else self.curriculum.phases[self.index].advance_at

    def is_over(self, plan: Plan, iteration: int) -> bool:
        """Whether another phase begins after `iteration` outer iterations."""
        return bool(plan.phases) and phase_at(plan, iteration + 1) > self.index

    def after_evaluation(self, plan: Plan, iteration: int, value: float | None) -> Plan:
        """The plan after an evaluation with mean return `value`, which may end the phase early.

        Evaluations before the first outer iteration of the phase do not count.
        """
        wanted = self.advance_at
        if wanted is None or value is None or value < wanted:
            return plan
        begin = starts(plan)[self.index]
        if not begin < iteration < begin + plan.phases[self.index].num_checkpoints:
            return plan
        return advanced(plan, iteration, total_steps=plan.total_steps)

    def program(self, plan: Plan) -> Program:
        """The program of the current phase, in its environments."""
        program, module = self.program_at(self.index, plan), self.current.module
        if isinstance(module, RLModule):
            program.use(module.env)
        return program

    def index_at(self, plan: Plan, iteration: int) -> int:
        """The index of the phase that trained last after `iteration` outer iterations."""
        return phase_at(plan, iteration) if plan.phases else 0

    def program_at(self, index: int, plan: Plan) -> Program:
        """The program of a phase, perhaps in other environments."""
        parts = self.all[index]
        module = parts.module
        epochs = (plan.phases[index] if plan.phases else plan).epochs_per_checkpoint
        key: tuple[object, ...] = id(module), epochs
        if isinstance(module, RLModule):
            env = id(module.env) if parts.is_compiled else module.env.num_envs
            same = module.make if isinstance(module, SweptModule) else module.algorithm
            key = env, id(same), epochs
        if key not in self._programs:
            self._programs[key] = self._make_program(module, epochs)
        return self._programs[key]

    def close_env(self, env: EnvAdapter | None) -> None:
        """Frees environments that are no longer used, unless they are the user's."""
        if env is not None and any(env is own for own in self.whole.own_envs):
            env.close()

    def close(self) -> None:
        """Closes all programs."""
        for program in self._programs.values():
            program.close()
