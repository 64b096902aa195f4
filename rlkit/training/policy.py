"""Trained policies, loaded from a run directory, to act on NumPy observations and be evaluated."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit import spaces, validation
from rlkit.agents.base import Agent, memory_of, remembers
from rlkit.agents.registry import make_agent
from rlkit.algorithms.collectors import restart_carry
from rlkit.envs.base import EnvAdapter
from rlkit.envs.registry import make_env
from rlkit.errors import CheckpointError, require, require_positive_integer
from rlkit.ops.counters import StepCounter
from rlkit.ops.keys import as_key
from rlkit.ops.running_stats import init_stats
from rlkit.protocols import follows
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.config import CheckpointerConfig, TrainerConfig
from rlkit.training.core.evaluator import Evaluator, choose, make_evaluator
from rlkit.training.export.checks import Format, check_export
from rlkit.training.export.folder import Exported, export_folder
from rlkit.training.export.parity import SEED
from rlkit.training.export.policy_function import PolicyFunction
from rlkit.training.files.checkpoint_metadata import CheckpointMetadata
from rlkit.training.files.checkpointer import Checkpointer, Which
from rlkit.training.files.run_description import (
    completed,
    named,
    num_envs_of,
    registered_agent,
    registered_env,
    require_as_recorded,
)
from rlkit.training.policy_inputs import batch_of, check_carry, check_choices, restarts
from rlkit.training.programs.env_groups import num_at_once
from rlkit.training.programs.players import make_player
from rlkit.training.run_config import read_settings, require_seed
from rlkit.training.video.film import Film, film
from rlkit.types import Action, Carry, Key, Measurements, PolicyState, PyTree
from rlkit.validation import PlainData

# Differs from training's: the best checkpoint was also lucky on those episodes.
FRESH_EVALUATION_SEED = 2_000_003


@dataclasses.dataclass(kw_only=True, repr=False)
class Policy:
    """An agent with the parameters of a checkpoint; call it with a batch of raw observations.

    One with memory acts by `act`, which takes and returns what the agent carries from step to step.
    """

    agent: Agent
    state: PolicyState
    env: EnvAdapter  # what it was trained in, for `evaluate` and the spaces
    make_env: Callable[[int], EnvAdapter] | None  # from num_envs; None: there is only `env`
    checkpoint_step: int
    seed_index: int | None = None  # which of several seeds this is
    num_seeds: int = 1  # of the run
    max_evaluation_steps: int | None = None
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    """The latest metrics of training and evaluation at its checkpoint, averaged over seeds."""
    run: PlainData = dataclasses.field(default_factory=dict)
    """What an export says of the run: its name, algorithm, agent, environment and seed."""

    def __post_init__(self) -> None:
        self._act = jax.jit(self._act_batch, static_argnames="deterministic")
        self._key = jax.random.key(0)
        self._remembers = remembers(self.agent)

    def __repr__(self) -> str:
        trained_in = "its environment" if self.env.spec is None else self.env.spec[0]
        seed = "" if self.seed_index is None else f", seed index {self.seed_index}"
        return (
            f"<policy for {trained_in}: checkpoint {self.checkpoint_step}{seed},"
            f" {self.env_steps:,} environment steps>"
        )

    @property
    def env_steps(self) -> int:
        """Environment steps that it was trained for."""
        return self.state.env_steps.to_int()

    def __call__(
        self, obs: PyTree, *, deterministic: bool = True, key: Key | int | None = None
    ) -> Action:
        """Actions [B, ...] within the action space, for raw observations [B, ...].

        Sampled actions draw from `key`, a key or a seed; None: from the policy's own stream. Raises
        `CheckpointError` for an agent with memory.
        """
        require(
            not self._remembers,
            "this policy has memory, which one call cannot keep",
            "start with carry = policy.initial_carry(len(obs)), then call actions, carry ="
            " policy.act(obs, carry, restart=done) in each step",
            CheckpointError,
        )
        return self.act(obs, None, deterministic=deterministic, key=key)[0]

    def initial_carry(self, num_envs: int) -> Carry:
        """What the agent carries at the start of an episode, leaves [num_envs, ...].

        () if it has neither memory nor noise that is correlated over steps.
        """
        require_positive_integer("num_envs", num_envs, example=4)
        return self.agent.initial_carry(num_envs)

    def act(
        self,
        obs: PyTree,
        carry: Carry,
        *,
        restart: Any = None,
        deterministic: bool = True,
        key: Key | int | None = None,
    ) -> tuple[Action, Carry]:
        """(actions [B, ...] in NumPy, the new carry) for raw observations [B, ...].

        `carry`: what the last step returned, or `initial_carry(B)` at the start; None: that of new
        episodes. `restart` [B]: where these observations begin an episode, as after a step that
        was terminated or truncated. Otherwise as in a call of the policy.
        """
        obs, size = batch_of(self.env.observation_space, obs)
        check_choices(self.env.observation_space, self.env.action_space, obs)
        check_carry(self.agent, carry, size)
        restart = restarts(restart, size)
        if key is None:
            self._key, drawn = jax.random.split(self._key)
        else:
            drawn = as_key(key)
        action, carry = self._act(
            self.state, obs, carry, restart, drawn, deterministic=deterministic
        )
        return jax.tree.map(np.asarray, action), carry

    def evaluate(
        self, episodes: int = 16, *, seed: int | None = None, num_envs: int | None = None
    ) -> Measurements:
        """Plays episodes in the environment of the run.

        Returns `return`, `length`, `sampled_return` and `sampled_length`, all [episodes], and what
        else evaluations hold, see `Trainer.run`. `seed` chooses the episodes; None: always the same
        ones, but not those that training evaluated on.
        """
        require_positive_integer("episodes", episodes, example=16)
        require(
            num_envs is None or self.make_env is not None,
            "num_envs can be chosen only for environments from a registry",
            "leave it out, or load the policy with an env of that size",
        )
        with contextlib.ExitStack() as stack:
            env = self.env
            if self.make_env is not None:
                most = 64 if self.env.is_jittable else 16  # on the host, each is a simulator
                env = self.make_env(num_envs or num_at_once(self.env, episodes, most))
                stack.callback(env.close)
            seed = FRESH_EVALUATION_SEED if seed is None else seed
            evaluator = make_evaluator(
                env,
                self.agent,
                num_episodes=episodes,
                max_steps=self.max_evaluation_steps,
                seed=seed,
            )
            player = make_player(evaluator, Compiler(num_seeds=1))
            return jax.device_get(player.evaluate(self.state))

    def record_video(
        self,
        path: str | os.PathLike[str],
        *,
        episodes: int = 3,
        deterministic: bool = True,
        seed: int | None = None,
        max_steps: int | None = None,
        fps: int | None = None,
        overwrite: bool = False,
    ) -> Film:
        """Plays episodes in one environment of the run and writes a video to `path`.

        The ending of `path` chooses MP4 (which needs imageio-ffmpeg) or GIF, whose pictures are
        smaller and fewer. Gymnasium's environments are rendered. Environments in JAX are drawn by
        their own `render(state)`, which returns [height, width, 3] uint8, by rlkit if they are
        Gymnax's, and otherwise as their observations. `seed` chooses the episodes, as in
        `evaluate`. An episode ends after `max_steps`; None: where evaluation ends it. `fps=None`:
        frames per second as the environment says. Returns the path, and the returns and lengths of
        the episodes. Raises `ConfigError` if the file exists (unless `overwrite`), for another
        ending, and if the environment shows no pictures.
        """
        return film(
            path,
            env=self.env,
            agent=self.agent,
            policy=self.state,
            episodes=episodes,
            max_steps=self.max_evaluation_steps if max_steps is None else max_steps,
            seed=FRESH_EVALUATION_SEED if seed is None else seed,
            deterministic=deterministic,
            fps=fps,
            overwrite=overwrite,
        )

    def export(self, directory: str | os.PathLike[str], *, format: Format = "both") -> Exported:
        """Writes the policy to a new `directory`, for programs that do not have rlkit.

        Its function takes arrays of raw observations [N, ...], for any N, and returns actions
        [N, ...] within the action space; with memory, it takes and returns that as well. `format`
        is "onnx" (needs the packages onnx and onnxruntime), "stablehlo" (an artefact of
        `jax.export`, one more for sampled actions) or "both". A loader and `manifest.json` lie
        beside them. What was written then acts on random observations, in a process of its own;
        see `Exported.parity`.

        Raises `ExportError` if the directory exists, a package is missing, ONNX export does not
        know a primitive of the network, or what was written acts otherwise than this policy.
        """
        check_export(directory, format)
        state = _on_cpu(self.state)  # as the fresh process computes
        reference = dataclasses.replace(self, state=state)

        def act(obs: PyTree, memory: Carry, *, sampled: bool) -> tuple[Action, Carry]:
            key = jax.random.key(SEED, impl="threefry2x32")
            carry = None if memory is None else function.carry(memory)
            action, carry = reference.act(obs, carry, deterministic=not sampled, key=key)
            return action, jax.tree.leaves(memory_of(carry))

        seed = self.run.get("seed")
        source = {
            "run": self.run | {"seed_index": self.seed_index},
            "seed": None if seed is None else seed + (self.seed_index or 0),
            "checkpoint": self.checkpoint_step,
            "env_steps": self.env_steps,
        }
        function = PolicyFunction(
            agent=self.agent,
            state=state,
            observation_space=self.env.observation_space,
            action_space=self.env.action_space,
        )
        return export_folder(directory, function, format=format, source=source, act=act)

    def _act_batch(
        self,
        state: PolicyState,
        obs: PyTree,
        carry: Carry | None,
        restart: Array | None,
        key: Key,
        *,
        deterministic: bool,
    ) -> tuple[Action, Carry]:
        initial = self.agent.initial_carry(jax.tree.leaves(obs)[0].shape[0])
        if carry is None:
            carry = initial
        elif restart is not None:
            carry = restart_carry(carry, initial, restart)
        action, carry = choose(self.agent, state, obs, carry, key, deterministic=deterministic)
        return spaces.clip(self.env.action_space, action), carry


def load_policy(
    run_dir: str | os.PathLike[str],
    which: Which | None = None,
    *,
    seed_index: int | None = None,
    env: EnvAdapter | gymnasium.Env | str | Callable[..., Any] | None = None,
    agent: Agent | None = None,
    accept_differences: bool = False,
) -> Policy:
    """The policy of a run directory, from its best, its latest or a given checkpoint.

    If `which` is None, takes the best one, or the latest if the run was never evaluated. Reads only
    the policy, not the optimiser, the environments or the replay memory. With several seeds,
    `seed_index` chooses one; None: the one with the highest return in the last evaluation before
    the checkpoint. If the run keeps the best checkpoint of each seed (`keep_seed_bests`), "best" is
    that of the seed. Pass `env` and `agent` for a run with parts of your own, which `config.yaml`
    cannot rebuild; `env` is an adapter, or what `make_env` takes. Settings that were changed since
    the checkpoint was saved are an error, unless you `accept_differences`. Raises
    `RunDirectoryError`, `CheckpointError` or `ConfigError`.
    """
    settings = read_settings(run_dir)
    require(
        "module" not in settings.get("custom", ()),
        f"{os.fspath(run_dir)} was trained by a Module of its own, of which rlkit knows no policy",
        "load its state: Trainer.from_module(...).load_checkpoint(run_dir)",
        CheckpointError,
    )
    remake = None
    if env is None:
        env_id, num_envs, arguments = registered_env(run_dir, settings)
        remake = functools.partial(make_env, env_id, **arguments)
        env = remake(num_envs)
    elif not follows(env, EnvAdapter):
        is_single = isinstance(env, gymnasium.Env)
        remake = None if is_single else functools.partial(make_env, env)
        env = make_env(env, 1 if is_single else num_envs_of(settings))
    if agent is None:
        name, network = registered_agent(run_dir, settings)
        agent = make_agent(name, env.observation_space, env.action_space, network)
    trainer = validation.from_dict(TrainerConfig, settings["trainer"])
    num_seeds = trainer.num_seeds
    require_seed(seed_index, num_seeds)
    directory = trainer.checkpoint_directory(run_dir)
    with Checkpointer(CheckpointerConfig(directory=directory), read_only=True) as checkpointer:
        if which is None:
            which = "latest" if checkpointer.best_step() is None else "best"
        if which == "best" and num_seeds > 1:
            seed_index = _peak_seed(checkpointer, num_seeds) if seed_index is None else seed_index
            own = None if seed_index is None else checkpointer.best_step(seed_index)
            which = which if own is None else own
        check = functools.partial(
            require_as_recorded, now=completed(settings), accepted=accept_differences
        )
        target = functools.partial(_target, agent, env, directory, check)
        restored = checkpointer.restore(which, target)
    state: PolicyState = restored.items["policy"]
    metadata = CheckpointMetadata.from_metadata(restored.metadata, directory)
    if num_seeds > 1:
        returns = metadata.progress.seed_returns
        chosen = seed_index if seed_index is not None else _best_seed(returns)
        state, seed_index = jax.tree.map(lambda x: x[chosen], state), chosen
    return Policy(
        agent=agent,
        state=state,
        env=env,
        make_env=remake,
        checkpoint_step=restored.step,
        metrics=metadata.metrics,
        run={"name": os.path.basename(os.path.abspath(run_dir)), **named(settings)},
        seed_index=seed_index,
        num_seeds=num_seeds,
        max_evaluation_steps=trainer.max_evaluation_steps,
    )


def _on_cpu(state: PolicyState) -> PolicyState:
    """The state on the CPU, or where it is if JAX was told to use no CPU."""
    try:
        return jax.device_put(state, jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        return state


def _target(
    agent: Agent,
    env: EnvAdapter,
    directory: str,
    check: Callable[..., object],
    metadata: PlainData,
) -> dict[str, PyTree]:
    """Shapes and dtypes of the policy in a checkpoint with this metadata."""
    read = CheckpointMetadata.from_metadata(metadata, directory)
    check(read.description, step=read.progress.outer_iteration)  # may mean other shapes

    def empty() -> PolicyState:
        one = spaces.example(env.observation_space)
        state = PolicyState(
            params=agent.init(jax.random.key(0)),
            obs_stats=init_stats(one) if read.normalize_observations else None,
            env_steps=StepCounter.create(),
            total_steps=jnp.float32(0.0),
        )
        if read.num_seeds == 1:
            return state
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (read.num_seeds, *x.shape)), state)

    return {"policy": jax.eval_shape(empty)}


def play_episodes(
    evaluator: Evaluator,
    policy: PolicyState,
    num_episodes: int,
    key: Key | int,
    compiler: Compiler,
    *,
    deterministic: bool,
) -> dict[str, PyTree]:
    """Plays whole episodes in the environment of `evaluator`, as in `Trainer.rollout`."""
    require_positive_integer("num_episodes", num_episodes, example=16)
    with contextlib.closing(make_player(evaluator, compiler)) as player:
        return player.record(policy, as_key(key), num_episodes, deterministic=deterministic)


def _peak_seed(checkpointer: Checkpointer, num_seeds: int) -> int | None:
    """The seed with the highest return of all in its own best checkpoint.

    None if the run does not keep those.
    """
    peaks = [checkpointer.seed_peak(seed) for seed in range(num_seeds)]
    known = [-np.inf if peak is None else peak for peak in peaks]
    return _best_seed(known) if np.isfinite(known).any() else None


def _best_seed(returns: Sequence[float] | None) -> int:
    """The seed with the highest finite return; 0 if there is none."""
    values = np.asarray(returns or [0.0], np.float64)
    return int(np.where(np.isfinite(values), values, -np.inf).argmax())
