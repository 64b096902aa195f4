"""Tiny trainers for the tests of the training loop: two environments, eight steps, eight hidden
units.
"""

import dataclasses
import hashlib
import io
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from blank_curves import blank_curves, real_curves  # noqa: F401 - fixtures


@dataclasses.dataclass(frozen=True)
class Tiny:
    """Builds small parts; every number may be overridden."""

    compiled: dict[Any, Any] = dataclasses.field(default_factory=dict)

    def algorithm(self, name: str = "ppo", **settings: Any) -> Any:
        from algorithm_rows import algorithm_of

        return algorithm_of(name, **settings)

    def agent(self, env: Any, algorithm: str = "ppo") -> Any:
        from algorithm_rows import agent_of

        return agent_of(algorithm, env)

    def env(self, env_id: str = "probe/Counter", num_envs: int = 2, **arguments: Any) -> Any:
        from rlkit.envs.registry import make_env

        return make_env(env_id, num_envs, **arguments)

    def module(
        self, algorithm: Any = None, *, env: Any = None, eval_env: Any = None, **settings: Any
    ) -> Any:
        from rlkit.training.core.module import RLModule

        env = env or self.env()
        return RLModule(
            env=env,
            agent=self.agent(env),
            algorithm=algorithm or self.algorithm(),
            eval_env=eval_env,
            **{"total_steps": 1000.0, "evaluation_episodes": 3, **settings},
        )

    def config(self, **settings: Any) -> Any:
        from rlkit.training.config import LoggerConfig, TrainerConfig

        if "total_steps" not in settings:
            settings = {"num_checkpoints": 3, "epochs_per_checkpoint": 2} | settings
        silent = {
            "debug": False,
            "evaluation_episodes": 3,
            "logger_config": LoggerConfig(console=False),
        }
        return TrainerConfig(**(silent | settings))

    def trainer(
        self,
        algorithm: Any = "ppo",
        *,
        hyper: Any = None,
        env: Any = None,
        share: bool = True,
        **settings: Any,
    ) -> Any:
        """`settings` of the trainer (eval_env, logger, callbacks ...) or of its config. Trainers
        that `share` and have equal parts use the same compiled functions; `env` is a registry id,
        or an adapter (not shared).
        """
        from rlkit.training.trainer import Trainer

        share = (
            share
            and (env is None or isinstance(env, str))
            and isinstance(algorithm, str)
            and "eval_env" not in settings
        )
        names = ("eval_env", "logger", "checkpointer", "callbacks", "eval_fn", "accept_differences")
        own = {"eval_env": None} | {name: settings.pop(name) for name in names if name in settings}
        made = self.env(env or "probe/Counter") if env is None or isinstance(env, str) else env
        learns = (
            self.algorithm(algorithm, **(hyper or {})) if isinstance(algorithm, str) else algorithm
        )
        config = self.config(**settings)
        agent = self.agent(made, algorithm if isinstance(algorithm, str) else "ppo")
        trainer = Trainer(made, own.pop("eval_env"), agent, learns, config, **own)
        if share:
            parts = (
                algorithm,
                repr(hyper),
                env,
                config.num_seeds,
                config.evaluation_episodes,
                config.enable_evaluation,
            )
            saves = config.checkpointer_config
            copied = saves and saves.save_replay, "eval_fn" in own
            self.share(trainer, (*parts, trainer.plan.epochs_per_checkpoint), copied)
        return trainer

    def share(self, trainer: Any, parts: tuple[Any, ...], copied: Any = None) -> None:
        """Gives a trainer the functions that an equal one compiled before; `copied` is what its
        copies depend on beside.
        """
        for name in ("_init", "_refill", "outer", "single", "copy"):
            key = (name, *parts, {"_init": trainer.plan.total_steps, "copy": copied}.get(name))
            setattr(
                trainer.program, name, self.compiled.setdefault(key, getattr(trainer.program, name))
            )
        evaluations = trainer._loop.evaluations
        evaluations.planned = self.compiled.setdefault(("evaluate", *parts), evaluations.planned)


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    return Tiny()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A finished run of two outer iterations, see `tests/support/tiny_runs.py`; to be copied."""
    from tiny_runs import settings_of

    from rlkit.training.from_config import build

    run = tmp_path_factory.mktemp("trained") / "run"
    with build(settings_of(run)) as trainer:
        trainer.run(0)
    return run


@pytest.fixture
def tiny_run(trained: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """The test's own copy of that run."""
    return pathlib.Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def hashes():
    """`hashes(directory)`: SHA-256 of every file in it (the lock apart), by path."""

    def hashes(directory: pathlib.Path) -> dict[str, str]:
        files = (
            path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != ".lock"
        )
        return {
            str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        }

    return hashes


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], io.StringIO]:
    """`terminal()` makes stderr a terminal, for the test that calls it, and returns what is written
    to it. (Pytest sets stderr anew after fixtures are made.)
    """

    def open_terminal() -> io.StringIO:
        stream = _Terminal()
        monkeypatch.setattr("sys.stderr", stream)
        return stream

    return open_terminal
