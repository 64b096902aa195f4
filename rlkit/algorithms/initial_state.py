"""The state that a run starts from."""

import jax
import jax.numpy as jnp
from flax import struct

from rlkit import spaces
from rlkit.agents.base import Agent
from rlkit.algorithms.collectors import acting
from rlkit.algorithms.updaters import Updater
from rlkit.envs.base import EnvAdapter
from rlkit.errors import require
from rlkit.ops.counters import StepCounter
from rlkit.ops.over_devices import own_key
from rlkit.ops.running_stats import init_stats
from rlkit.types import (
    Carry,
    EnvState,
    Key,
    LearnerState,
    LocalState,
    Memory,
    Obs,
    Params,
    PolicyState,
    RunningEpisode,
    Transition,
)


class InitKeys(struct.PyTreeNode, kw_only=True):
    """The typed keys that a fresh state needs, one for each purpose."""

    params: Key
    reset: Key
    prefill: Key
    local: Key

    @classmethod
    def split(cls, key: Key) -> "InitKeys":
        """Splits one key, which is consumed, into all of them."""
        params, reset, prefill, local = jax.random.split(key, 4)
        return cls(params=params, reset=reset, prefill=prefill, local=local)

    def on_device(self, axis_name: str | None) -> "InitKeys":
        """The keys of one device: all but that of the parameters are its own."""
        reset, prefill, local = (
            own_key(key, axis_name) for key in (self.reset, self.prefill, self.local)
        )
        return self.replace(reset=reset, prefill=prefill, local=local)


def initial_learner(
    params: Params,
    updater: Updater,
    obs: Obs | None,
    *,
    normalize_rewards: bool,
    total_steps: float,
) -> LearnerState:
    """The initial learner state; with `obs` [N, ...], it keeps statistics to normalise them.

    Raises `ConfigError` for a horizon that is not positive.
    """
    if isinstance(total_steps, (int, float)):
        require(
            total_steps > 0,
            f"total_steps must be positive, got {total_steps}",
            "pass total_steps=100_000",
        )
    opt_state, target_params = updater.init(params)
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    return LearnerState(
        params=params,
        target_params=target_params,
        opt_state=opt_state,
        obs_stats=None if obs is None else init_stats(without_first_axis(obs)),
        reward_stats=init_stats(scalar) if normalize_rewards else None,
        env_steps=StepCounter.create(),
        updates=StepCounter.create(),
        total_steps=jnp.asarray(total_steps, jnp.float32),
    )


def initial_local(
    obs: Obs, env_state: EnvState, carry: Carry, memory: Memory, key: Key, num_envs: int
) -> LocalState:
    """Environments just reset to `obs` [N, ...], with nothing collected yet."""
    return LocalState(
        env_state=env_state,
        obs=obs,
        carry=carry,
        memory=memory,
        episodes=RunningEpisode(
            return_so_far=jnp.zeros(num_envs), length_so_far=jnp.zeros(num_envs, jnp.int32)
        ),
        discounted_return=jnp.zeros(num_envs),
        key=key,
    )


def example_transition(
    agent: Agent, env: EnvAdapter, policy: PolicyState, *, has_discounted_return: bool
) -> Transition:
    """Shapes and dtypes of one transition of one environment."""

    def transition() -> Transition:
        obs = spaces.example(env.observation_space, (env.num_envs,))
        carry = agent.initial_carry(env.num_envs)
        action, _, extras = acting(agent, policy)(obs, carry, jax.random.key(0))
        zeros, no = jnp.zeros(env.num_envs), jnp.zeros(env.num_envs, bool)
        if has_discounted_return:
            extras = {**extras, "discounted_return": zeros}
        return Transition(
            obs=obs,
            action=action,
            reward=zeros,
            terminated=no,
            truncated=no,
            next_obs=obs,
            extras=extras,
        )

    return without_first_axis(jax.eval_shape(transition))


def without_first_axis(tree: Obs) -> Obs:
    """The shapes and dtypes of one row of every leaf."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), tree)
