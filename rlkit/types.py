"""The data types of rlkit: frozen, keyword-only pytrees.

Axis letters used everywhere: T time, N environments, M minibatch, K iterations, S seeds, D devices.
With parallel seeds every leaf has a leading axis S.
"""

from typing import Any

import jax
from flax import struct
from jax import Array

from rlkit.ops.counters import StepCounter
from rlkit.ops.running_stats import RunningStats

PyTree = Any
Obs = PyTree  # any pytree of arrays [N, ...]
Action = PyTree  # an array [N, ...]; of a Dict or Tuple space, a dict or tuple of them
Params = PyTree
Carry = PyTree  # what an agent keeps over the steps of an episode: memory, a `NoiseState`, or ()
EnvState = PyTree
# memory of the replay buffer or batch builder, () for on-policy algorithms
Memory = PyTree
Key = Array  # typed key (`jax.random.key`), consumed once
Metrics = dict[str, Array]
Measurements = dict[str, Any]  # by name: arrays [E] over episodes, or dicts of arrays
Counters = tuple[StepCounter, StepCounter]  # (environment steps, updates)


class NoiseState(struct.PyTreeNode, kw_only=True):
    """The state of exploration noise, as a carry or in one; leaves [N, ...].

    Whoever acts without exploring needs none of it, and losses do not learn to use it.
    """

    age: Array  # [N] int32, steps since the episode began; 0: `values` are yet to be drawn
    values: Array


class CriticMemory(struct.PyTreeNode, kw_only=True):
    """What critics remember that take no part in acting, in a carry; leaves [N, ...].

    Collecting keeps it up to date for the losses. Whoever only acts needs none of it.
    """

    values: PyTree


class TimeStep(struct.PyTreeNode, kw_only=True):
    """The result of one step of every environment; leaves [N, ...].

    `obs` is what the policy sees next: after the end of an episode, the first observation of the
    next one. `next_obs` is the true successor of the state, never a reset observation; targets
    bootstrap from it. Only where `non_finite` holds there is no such successor: the reward is 0,
    the episode `terminated`, and `obs` stands in.
    """

    obs: Obs
    reward: Array  # [N] float32
    terminated: Array  # [N] bool: the task ended; stops bootstrapping
    truncated: Array  # [N] bool: the episode was cut by a time limit; does not stop bootstrapping
    next_obs: Obs
    info: dict[str, Array]  # what the environment also reports, [N, ...] each
    # [N] bool: the environment returned NaN or infinity, and was reset; None: that is an error
    non_finite: Array | None = None


class Transition(struct.PyTreeNode, kw_only=True):
    """One step as algorithms use it; leaves [N, ...], in a `Rollout` [T, N, ...].

    Observations are raw (not normalized).
    """

    obs: Obs
    action: Action
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Obs
    extras: dict[str, PyTree]  # added by agents and collectors, by name: carry, discounted_return …
    non_finite: Array | None = None  # see `TimeStep`; for counting, so replay does not keep it

    @property
    def done(self) -> Array:
        """Whether the episode ended, for either reason."""
        return self.terminated | self.truncated


Rollout = Transition  # leaves [T, N, ...]


class Sequences(struct.PyTreeNode, kw_only=True):
    """L steps of B episodes: what agents with memory take in place of observations [M, ...].

    The first `burn_in` steps only bring the memory up to date: they have no results, and no
    gradient flows through them. Results [M, ...] are those of the other steps, step by step, or of
    those that `at` names.
    """

    obs: Obs  # [L, B, ...]
    carry: Carry  # [B, ...] the memory before the first step
    restart: Array  # [L, B] bool: an episode begins with the step, with the initial memory
    at: Array | None = None  # [M] int32: places among (L - burn_in) · B results; None: all
    burn_in: int = struct.field(pytree_node=False, default=0)

    def chosen(self, results: PyTree) -> PyTree:
        """Those that are wanted, [M, ...], of the results [(L - burn_in) · B, ...]."""
        if self.at is None:
            return results
        return jax.tree.map(lambda x: x[self.at], results)

    @property
    def seen(self) -> Obs:
        """The observations that the results belong to, [M, ...]."""
        return self.chosen(
            jax.tree.map(lambda x: x[self.burn_in :].reshape(-1, *x.shape[2:]), self.obs)
        )


def seen(obs: Obs | Sequences) -> Obs:
    """The observations [M, ...] that an agent's results belong to."""
    return obs.seen if isinstance(obs, Sequences) else obs


class EpisodeStats(struct.PyTreeNode, kw_only=True):
    """Sums over finished episodes, which can be added over environments, devices and iterations."""

    return_sum: Array  # [] float32
    length_sum: Array  # [] float32, environment steps
    count: Array  # [] int32, episodes


class RunningEpisode(struct.PyTreeNode, kw_only=True):
    """The running episodes."""

    return_so_far: Array  # [N] float32
    length_so_far: Array  # [N] int32


class PolicyState(struct.PyTreeNode, kw_only=True):
    """Everything needed to act; this is what gets exported."""

    params: Params
    obs_stats: RunningStats | None  # normalizes observations; None: no normalization
    env_steps: StepCounter
    total_steps: Array  # [] float32: the horizon of schedules, in environment steps

    @property
    def progress(self) -> Array:
        """Fraction of training that is done, [] float32 in [0, 1]."""
        return progress(self.env_steps, self.total_steps)


class LearnerState(struct.PyTreeNode, kw_only=True):
    """The state of learning; equal on every device."""

    params: Params
    target_params: Params  # () if the algorithm has none
    opt_state: PyTree
    obs_stats: RunningStats | None
    reward_stats: RunningStats | None
    env_steps: StepCounter  # environment steps, over all environments and devices
    updates: StepCounter  # gradient steps
    total_steps: Array  # [] float32
    # those that differ between the trials of a sweep, by name, [] float32; otherwise {}
    hyperparameters: dict[str, Array] = struct.field(default_factory=dict)

    @property
    def progress(self) -> Array:
        """Fraction of training that is done, [] float32 in [0, 1]."""
        return progress(self.env_steps, self.total_steps)

    @property
    def policy(self) -> PolicyState:
        """The part needed for acting."""
        return PolicyState(
            params=self.params,
            obs_stats=self.obs_stats,
            env_steps=self.env_steps,
            total_steps=self.total_steps,
        )


class LocalState(struct.PyTreeNode, kw_only=True):
    """The state of one device: its environments, its replay memory, its random key."""

    env_state: EnvState
    obs: Obs  # [N, ...] the observation to act on next
    carry: Carry
    memory: Memory
    episodes: RunningEpisode
    discounted_return: Array  # [N] float32: running discounted sum of rewards, for reward scaling
    key: Key


class TrainState(struct.PyTreeNode, kw_only=True):
    """Everything needed for a bit-exact resume."""

    learner: LearnerState
    local: LocalState


def progress(env_steps: StepCounter, total_steps: Array) -> Array:
    """`env_steps / total_steps`, at most 1; [] float32."""
    return jax.numpy.clip(env_steps.to_float() / total_steps, 0.0, 1.0)
