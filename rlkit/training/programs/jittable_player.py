"""Episodes in jittable environments: evaluation and recording, each one compiled program."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit import spaces
from rlkit.envs.base import traced_params
from rlkit.ops.rows import where_rows
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.core.evaluator import Evaluator, choose
from rlkit.types import Key, Measurements, PolicyState, PyTree


class DevicePlayer:
    """Plays whole episodes (see `Player`) in jittable environments."""

    def __init__(self, evaluator: Evaluator, compiler: Compiler):
        self._evaluator = evaluator
        self._compiler = compiler
        # As arguments in a curriculum, whose phases may differ in nothing else.
        params = () if compiler.shared is None else traced_params(evaluator.env)
        self._params = compiler.for_seeds(params) if jax.tree.leaves(params) else None
        measure: Any = evaluator if self._params is None else self._evaluate_with
        self._evaluate = compiler.parallel_seeds(measure)

    def evaluate(self, policy: PolicyState) -> Measurements:
        """See `Player`."""
        return self._evaluate(policy if self._params is None else (policy, self._params))

    def record(
        self, policy: PolicyState, key: Key, num_episodes: int, *, deterministic: bool
    ) -> dict[str, PyTree]:
        """See `Player`; compiles on every call."""
        keys = jax.random.split(key, -(-num_episodes // self._evaluator.env.num_envs))

        def play(policy: PolicyState) -> dict[str, PyTree]:
            played = jax.lax.map(  # [R, L, N, ...]
                lambda key: self._round(policy, key, deterministic=deterministic), keys
            )
            return jax.tree.map(
                lambda x: jnp.moveaxis(x, 2, 1).reshape(-1, x.shape[1], *x.shape[3:])[
                    :num_episodes
                ],
                played,
            )

        steps = jax.device_get(self._compiler.of_seeds(play)(policy))
        length = steps.pop("playing").sum(-1)
        longest, axis = np.arange(length.max()), 2 if self._compiler.num_seeds > 1 else 1
        return jax.tree.map(lambda x: np.take(x, longest, axis=axis), steps) | {"length": length}

    def close(self) -> None:
        """See `Player`: nothing to free."""

    def _evaluate_with(self, given: tuple[PolicyState, PyTree]) -> Measurements:
        policy, params = given
        env: Any = self._evaluator.env
        return dataclasses.replace(self._evaluator, env=env.replace_params(params))(policy)

    def _round(self, policy: PolicyState, key: Key, *, deterministic: bool) -> dict[str, PyTree]:
        """Every step of the first episode of each environment, leaves [L, N, ...].

        L is the length of the longest possible episode; steps after the end are zeros.
        """
        env, agent = self._evaluator.env, self._evaluator.agent
        reset_key, step_key = jax.random.split(key)
        env_state, obs = env.reset(reset_key)

        def step(state: PyTree, time: Array) -> tuple[PyTree, dict[str, PyTree]]:
            env_state, obs, carry, playing = state
            act_key, env_key = jax.random.split(jax.random.fold_in(step_key, time))
            action, carry = choose(agent, policy, obs, carry, act_key, deterministic=deterministic)
            env_state, timestep = env.step(env_key, env_state, action)
            row = {
                "obs": obs,
                "action": spaces.clip(env.action_space, action),
                "reward": timestep.reward,
                "terminated": timestep.terminated,
                "truncated": timestep.truncated,
            }
            row = where_rows(playing, row, jax.tree.map(jnp.zeros_like, row))
            done = timestep.terminated | timestep.truncated
            return (env_state, timestep.obs, carry, playing & ~done), row | {"playing": playing}

        playing = jnp.ones(env.num_envs, bool)
        start = (env_state, obs, agent.initial_carry(env.num_envs), playing)
        return jax.lax.scan(step, start, jnp.arange(self._evaluator.max_steps))[1]
