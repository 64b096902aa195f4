"""Trained policies: loaded from a run directory, they act on NumPy observations and can be evaluated."""

import dataclasses
import os
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from rlkit.agents.base import Agent
from rlkit.agents.registry import make_agent
from rlkit.algorithms.registry import make_algorithm
from rlkit.envs.base import EnvAdapter
from rlkit.envs.registry import make_env
from rlkit.errors import CheckpointError, require
from rlkit.ops.running_stats import normalize
from rlkit.training import run_config
from rlkit.training.checkpointer import Checkpointer
from rlkit.training.config import CheckpointerConfig
from rlkit.training.evaluator import EVALUATION_SEED, make_evaluator
from rlkit.training.module import RLModule
from rlkit.types import Key, LearnerState, PolicyState, PyTree

Which = int | Literal["latest", "best"]


@dataclasses.dataclass(kw_only=True)
class Policy:
    """An agent with the parameters of a checkpoint; call it with a batch of raw observations."""

    agent: Agent
    state: PolicyState
    config: run_config.RunConfig
    checkpoint_step: int
    seed_index: int | None  # which of several seeds this is

    def __post_init__(self) -> None:
        self._act = jax.jit(self._act_batch, static_argnames="deterministic")
        self._key = jax.random.key(0)

    @property
    def env_steps(self) -> int:
        """Environment steps that it was trained for."""
        return self.state.env_steps.to_int()

    def __call__(self, obs: PyTree, *, deterministic: bool = True, key: Key | None = None) -> np.ndarray:
        """Actions [B, ...] for raw observations [B, ...]; sampled ones draw from `key`, None: from a stream of the policy's
        own.
        """
        if key is None:
            self._key, key = jax.random.split(self._key)
        return np.asarray(self._act(self.state, obs, key, deterministic=deterministic))

    def evaluate(self, episodes: int = 16, *, seed: int | None = None, num_envs: int | None = None) -> dict[str, Any]:
        """`return`, `length`, `sampled_return`, `sampled_length` [episodes] in the environment of the run.

        `seed` chooses the episodes, None: those that the training evaluated on.
        """
        env = make_env(self.config.env.id, num_envs or min(episodes, 64), **self.config.env.arguments)
        limit = self.config.trainer.max_evaluation_steps
        seed = EVALUATION_SEED if seed is None else seed
        evaluator = make_evaluator(env, self.agent, num_episodes=episodes, max_steps=limit, seed=seed)
        return jax.device_get(jax.jit(evaluator)(self.state))

    def _act_batch(self, state: PolicyState, obs: PyTree, key: Key, *, deterministic: bool) -> Any:
        obs = normalize(state.obs_stats, obs)
        carry = self.agent.initial_carry(jax.tree.leaves(obs)[0].shape[0])
        require(not jax.tree.leaves(carry), "this agent is recurrent", "use agent.exploit with its carry", CheckpointError)
        if deterministic:
            return self.agent.exploit(state.params, obs, carry, key)[0]
        return self.agent.explore(state.params, obs, carry, key, jnp.float32(1.0))[0]


def load_policy(run_dir: str | os.PathLike[str], which: Which = "best", *, seed_index: int | None = None) -> Policy:
    """The policy of a run directory, from its best or latest checkpoint or that of a given step.

    Reads the learner alone, not the environments or the replay memory. Of several seeds, `seed_index` chooses one; None: the
    one with the highest return in the training's last evaluation before the checkpoint. Raises `CheckpointError` or
    `ConfigError`.
    """
    config_file = os.path.join(run_dir, "config.yaml")
    require(
        os.path.isfile(config_file),
        f"{os.fspath(run_dir)} is no run directory: it has no config.yaml",
        "give the directory that rlkit train wrote",
        CheckpointError,
    )
    config = read_config(run_dir)
    env = make_env(config.env.id, config.env.num_envs, **config.env.arguments)
    assert config.agent is not None
    agent = make_agent(config.agent, env.observation_space, env.action_space, config.network)
    algorithm = make_algorithm(config.algorithm, config.hyperparameters)
    num_seeds = config.trainer.num_seeds
    if seed_index is not None:
        require(
            0 <= seed_index < num_seeds,
            f"seed_index={seed_index}, but the run has {num_seeds} seeds",
            f"choose 0 to {num_seeds - 1}",
        )
    module = RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1.0)
    keys = jax.random.split(jax.random.key(0), num_seeds) if num_seeds > 1 else jax.random.key(0)
    init = jax.vmap(module.init_train_state) if num_seeds > 1 else module.init_train_state
    target = jax.eval_shape(init, keys).learner
    settings = CheckpointerConfig(
        directory=config.trainer.checkpointer_config.directory or os.path.join(run_dir, "checkpoints")
    )
    with Checkpointer(settings, read_only=True) as checkpointer:
        restored = checkpointer.restore(which, {"learner": target})
    learner: LearnerState = restored.items["learner"]
    if num_seeds > 1:
        chosen = seed_index if seed_index is not None else _best_seed(restored.metadata)
        learner, seed_index = jax.tree.map(lambda x: x[chosen], learner), chosen
    return Policy(agent=agent, state=learner.policy, config=config, checkpoint_step=restored.step, seed_index=seed_index)


def read_config(run_dir: str | os.PathLike[str]) -> run_config.RunConfig:
    """The config of a run directory. Raises `CheckpointError` for runs built from Python objects."""
    path = os.path.join(run_dir, "config.yaml")
    values: Any = run_config.read_yaml(path)
    custom = isinstance(values, dict) and "custom" in values
    require(
        not custom,
        f"{os.fspath(run_dir)} was built from Python objects that its config.yaml cannot describe",
        'go on through its own script: Trainer(..., TrainerConfig(restore_checkpoint="auto")), then load_checkpoint or run',
        CheckpointError,
    )
    return run_config.from_dict(values)


def play_episodes(
    module: RLModule, state: Any, num_episodes: int, key: Key, num_seeds: int, *, deterministic: bool
) -> dict[str, Any]:
    """Whole episodes of a policy, padded to the longest (see `Trainer.rollout`)."""
    env: EnvAdapter = module.eval_env or module.env
    require(
        isinstance(num_episodes, int) and num_episodes >= 1,
        f"num_episodes must be positive, got {num_episodes!r}",
        "pass 1 or more",
    )
    limit = make_evaluator(env, module.agent, num_episodes=1, max_steps=module.max_evaluation_steps).max_steps
    rounds = -(-num_episodes // env.num_envs)

    def play(policy: PolicyState) -> dict[str, Any]:
        def one_round(key: Key) -> dict[str, Any]:
            reset_key, step_key = jax.random.split(key)
            env_state, obs = env.reset(reset_key)

            def step(carry: Any, key: Key) -> Any:
                env_state, obs, agent_carry, playing = carry
                act_key, env_key = jax.random.split(key)
                normalized = normalize(policy.obs_stats, obs)
                if deterministic:
                    action, agent_carry = module.agent.exploit(policy.params, normalized, agent_carry, act_key)
                else:
                    action, agent_carry, _ = module.agent.explore(
                        policy.params, normalized, agent_carry, act_key, jnp.float32(1.0)
                    )
                env_state, timestep = env.step(env_key, env_state, action)
                out = {
                    "obs": obs,
                    "action": action,
                    "reward": timestep.reward,
                    "terminated": timestep.terminated,
                    "truncated": timestep.truncated,
                }
                zeroed = jax.tree.map(lambda x: jnp.where(playing.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.zeros_like(x)), out)
                still = playing & ~(timestep.terminated | timestep.truncated)
                return (env_state, timestep.obs, agent_carry, still), zeroed | {"playing": playing}

            start = (env_state, obs, module.agent.initial_carry(env.num_envs), jnp.ones(env.num_envs, bool))
            return jax.lax.scan(step, start, jax.random.split(step_key, limit))[1]  # [L, N, ...]

        played = jax.lax.map(one_round, jax.random.split(key, rounds))  # [R, L, N, ...]
        return jax.tree.map(lambda x: jnp.moveaxis(x, 2, 1).reshape(-1, x.shape[1], *x.shape[3:])[:num_episodes], played)

    function = jax.vmap(play) if num_seeds > 1 else play
    episodes = jax.device_get(jax.jit(function)(state.learner.policy))
    length = episodes.pop("playing").sum(-1)
    longest, axis = int(length.max()), 2 if num_seeds > 1 else 1
    return jax.tree.map(lambda x: np.take(x, np.arange(longest), axis=axis), episodes) | {"length": length}


def _best_seed(metadata: dict[str, Any]) -> int:
    returns = np.asarray(metadata.get("seed_returns") or [0.0], np.float64)
    return int(np.where(np.isfinite(returns), returns, -np.inf).argmax())
