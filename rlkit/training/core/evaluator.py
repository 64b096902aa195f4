"""Batched evaluation: an exact number of episodes with fixed starts, independent of training."""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.agents.base import Agent
from rlkit.envs.base import EnvAdapter, without_resets
from rlkit.errors import require, require_positive_integer
from rlkit.ops.rows import flatten, where_rows
from rlkit.ops.running_stats import normalize
from rlkit.types import Key, Measurements, Obs, PolicyState, PyTree
from rlkit.validation import MAX_EPISODES

# Independent of the training seed, so that all seeds face the same episodes.
EVALUATION_SEED = 1_000_003


# Spaces are not hashable, but `jax.jit(evaluator)` needs a hash.
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Evaluator:
    """Runs exactly `num_episodes` episodes, with deterministic actions and again with sampled ones.

    The environments run ceil(num_episodes / num_envs) rounds. Only the first episode of each
    environment counts in a round, and surplus ones are dropped by index, so that short episodes are
    not overrepresented. A round ends when all of its episodes have ended. Observations are
    normalized by the policy's frozen statistics. Calling it needs a jittable environment;
    `HostPlayer` follows the same rules on the host.
    """

    env: EnvAdapter
    agent: Agent
    num_episodes: int
    max_steps: int
    seed: int = EVALUATION_SEED

    def __call__(self, policy: PolicyState) -> Measurements:
        """Returns `return`, `length`, `sampled_return`, `sampled_length`, all [E].

        If the environment reports anything, `done_info` has what it reported at the end of each
        deterministic episode, [E, ...]. If it is reset where it returns NaN or infinity,
        `non_finite_episodes` [] counts those that ended by it, with their return until then.
        """
        best, sampled = self.play(policy, jax.random.key(self.seed))
        info = {"done_info": best["done_info"]} if best["done_info"] else {}
        return {
            "return": best["return"],
            "length": best["length"],
            "sampled_return": sampled["return"],
            "sampled_length": sampled["length"],
            **info,
            **count_broken(best, sampled),
        }

    def play(self, policy: PolicyState, key: Key) -> tuple[dict[str, PyTree], dict[str, PyTree]]:
        """Episodes with deterministic actions, and the same ones with sampled actions.

        For both `return`, `length`, the last `info` as `done_info`, and whether NaN or infinity
        ended the episode as `non_finite` (None: not told), all [E]. Consumes the key. All are
        rounds of one loop, since an environment may take long to compile.
        """
        rounds = math.ceil(self.num_episodes / self.env.num_envs)
        keys = jnp.tile(jax.random.split(key, rounds), 2)
        is_deterministic = jnp.arange(2 * rounds) < rounds
        played = jax.lax.map(lambda x: self._round(policy, *x), (keys, is_deterministic))

        def half(first: int) -> dict[str, PyTree]:
            own = flatten(jax.tree.map(lambda x: x[first : first + rounds], played))
            return jax.tree.map(lambda x: x[: self.num_episodes], own)

        return half(0), half(rounds)

    def _round(self, policy: PolicyState, key: Key, is_deterministic: Array) -> dict[str, PyTree]:
        reset_key, step_key = jax.random.split(key)
        env, num_envs = without_resets(self.env), self.env.num_envs
        env_state, obs = env.reset(reset_key)

        def act(obs: Obs, carry: PyTree, key: Key) -> tuple[Array, PyTree]:
            either = (
                partial(choose, self.agent, policy, obs, carry, key, deterministic=deterministic)
                for deterministic in (True, False)
            )
            return jax.lax.cond(is_deterministic, *either)

        def step(state: dict[str, PyTree]) -> dict[str, PyTree]:
            act_key, env_key = jax.random.split(jax.random.fold_in(step_key, state["time"]))
            action, carry = act(state["obs"], state["carry"], act_key)
            env_state, timestep = env.step(env_key, state["env_state"], action)
            playing = state["playing"]

            return {
                "env_state": env_state,
                "obs": timestep.obs,
                "carry": carry,
                "time": state["time"] + 1,
                "playing": playing & ~(timestep.terminated | timestep.truncated),
                "return": state["return"] + jnp.where(playing, timestep.reward, 0.0),
                "length": state["length"] + playing,
                "done_info": where_rows(playing, timestep.info, state["done_info"]),
                "non_finite": where_rows(playing, timestep.non_finite, state["non_finite"]),
            }

        initial_carry = self.agent.initial_carry(num_envs)
        action = jax.eval_shape(act, obs, initial_carry, step_key)[0]
        told = jax.eval_shape(lambda s, a, k: env.step(k, s, a)[1], env_state, action, step_key)
        start = {
            "env_state": env_state,
            "obs": obs,
            "carry": initial_carry,
            "time": jnp.int32(0),
            "playing": jnp.ones(num_envs, bool),
            "return": jnp.zeros(num_envs),
            "length": jnp.zeros(num_envs, jnp.int32),
            "done_info": jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), told.info),
            "non_finite": jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), told.non_finite),
        }
        end = jax.lax.while_loop(
            lambda s: s["playing"].any() & (s["time"] < self.max_steps), step, start
        )
        return {name: end[name] for name in ("return", "length", "done_info", "non_finite")}


def count_broken(*played: dict[str, PyTree]) -> Measurements:
    """`non_finite_episodes`: how many of what `play` returns were ended by NaN or infinity, [(S)].

    {} if the environment does not tell.
    """
    flags = [each["non_finite"] for each in played]
    return {} if flags[0] is None else {"non_finite_episodes": sum(x.sum(-1) for x in flags)}


def choose(
    agent: Agent, policy: PolicyState, obs: Obs, carry: PyTree, key: Key, *, deterministic: bool
) -> tuple[Array, PyTree]:
    """(action, carry) for raw observations [N, ...]; samples as at the end of training."""
    obs = normalize(policy.obs_stats, obs)
    if deterministic:
        return agent.exploit(policy.params, obs, carry, key)
    return agent.explore(policy.params, obs, carry, key, jnp.float32(1.0))[:2]


def make_evaluator(
    env: EnvAdapter,
    agent: Agent,
    *,
    num_episodes: int,
    max_steps: int | None = None,
    seed: int = EVALUATION_SEED,
) -> Evaluator:
    """Creates an `Evaluator`; `max_steps=None` uses the environment's time limit.

    Raises `ConfigError` if there is none.
    """
    require_positive_integer("the number of evaluation episodes", num_episodes, example=16)
    require(
        num_episodes <= MAX_EPISODES,
        f"the number of evaluation episodes must be at most {MAX_EPISODES:,}, got {num_episodes:,}",
        "use for example 16",
    )
    limit = max_steps if max_steps is not None else env.max_episode_steps
    require(
        limit is not None,
        "the evaluation environment has no time limit, so an episode may never end",
        "set max_evaluation_steps (--max-evaluation-steps 1000), or add a limit: TimeLimit, or"
        " make_env(..., max_episode_steps=500) (--env-arguments '{\"max_episode_steps\": 500}')",
    )
    assert limit is not None
    return Evaluator(env=env, agent=agent, num_episodes=num_episodes, max_steps=limit, seed=seed)
