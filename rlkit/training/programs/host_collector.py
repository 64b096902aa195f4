"""Rollouts on the host: acting is compiled, a Python loop steps the simulators."""

import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from rlkit.envs.base import EnvAdapter
from rlkit.envs.host.base import WHOLE
from rlkit.envs.host.plain_bytes import Plain, pack, unpack
from rlkit.errors import EnvFailedError, EnvStateError
from rlkit.training.compile.aot_compile import Compiled
from rlkit.training.config import ENVIRONMENTS_LIMIT
from rlkit.training.core.module import RLModule
from rlkit.training.interrupts import allowed_interrupts
from rlkit.training.programs.env_groups import EnvGroup, remake
from rlkit.training.programs.host_functions import HostFunctions, bare
from rlkit.training.programs.seed_axis import join_envs, merge_seeds, split_envs, split_seeds
from rlkit.types import Key, Obs, PolicyState, Rollout, TrainState


class HostCollector:
    """The environments of a run and the rollouts collected in them.

    With S seeds it makes its own S·N environments; with two env groups, one half of them acts while
    the other steps. With a `share` (i, P), they are those of the i-th of P processes, as are the
    rows of all arrays over environments. States hold the observations as NumPy arrays, but nothing
    of the simulators: `save` and `resume` are for those that can be saved, `restart` is for the
    others.
    """

    def __init__(
        self,
        module: RLModule,
        functions: HostFunctions,
        *,
        num_seeds: int,
        num_groups: int,
        share: tuple[int, int] = WHOLE,
    ):
        self._functions = functions
        self._num_seeds = num_seeds
        self._num_groups = num_groups
        self._share = share
        self._num_steps = module.algorithm.collector.num_steps
        self._make_groups(module.env)
        self._has_carry = bool(jax.tree.leaves(module.agent.initial_carry(1)))
        self._is_ready = False  # whether the environments are where the last state says
        self._last_obs: Obs = ()  # the observations of that state

    def use(self, env: EnvAdapter) -> None:
        """Steps environments like `env` from now on; those made here before are closed."""
        if env is self._env:
            return
        self.close()
        self._make_groups(env)

    def adopt(self, other: "HostCollector") -> None:
        """Goes on with the environments of another collector, which has none any more."""
        self.close()
        self._env, self._own_envs, other._own_envs = other._env, other._own_envs, []
        self.groups = [group.going_on(self._num_steps) for group in other.groups]
        self._is_ready, self._last_obs = other._is_ready, other._last_obs
        other.forget()

    def enter(self, ts: TrainState) -> TrainState:
        """The state `ts` of other environments, in new episodes of these."""
        functions = self._functions
        self.reset(functions.phase_key(ts.local.key))
        return self.with_obs(ts.replace(local=functions.enter(bare(ts.local))))

    def reset(self, key: Key) -> None:
        """Starts new episodes everywhere."""
        keys = self._functions.group_keys(key)
        for group, group_key in zip(self.groups, keys, strict=True):
            group.reset(group_key)
        self._is_ready = True

    def restart(self, ts: TrainState) -> TrainState:
        """The state `ts` with new episodes, seeded from its own key."""
        self.reset(self._functions.restart_key(ts.local.key))
        return self.with_obs(ts.replace(local=self._functions.cut(bare(ts.local))))

    def save(self, ts: TrainState) -> np.ndarray:
        """The environments of the state `ts` as bytes, [B] uint8.

        Raises `EnvStateError` if they cannot be saved, or have gone on to another state.
        """
        if not (self._is_ready and _are_same(ts.local.obs, self._last_obs)):
            raise EnvStateError("the environments are not where this state left them")
        saved = pack([group.get_state() for group in self.groups])
        if len(saved) > ENVIRONMENTS_LIMIT:
            size = f"{len(saved) / 2**20:.0f} MiB, more than {ENVIRONMENTS_LIMIT // 2**20}"
            raise EnvStateError(f"the states of the environments take {size}")
        return saved

    def resume(self, ts: TrainState, saved: np.ndarray) -> TrainState:
        """The state `ts` with its environments where `save` found them.

        Raises `EnvStateError` if `saved` is not of such environments.
        """
        sizes = [group.env.num_envs for group in self.groups]
        states = _in_groups(unpack(saved), sizes, self._num_seeds)
        self.reset(self._functions.restart_key(ts.local.key))
        seeds = self._num_seeds
        obs = split_envs(jax.device_get(ts.local.obs), len(self.groups), seeds)
        try:
            for group, state, own in zip(self.groups, states, obs, strict=True):
                group.set_state(state, merge_seeds(own, seeds))
        except BaseException:
            for group in self.groups:  # they may be anywhere
                group.env.close()
            self.forget()
            raise
        return self.with_obs(ts)

    def observe(self) -> Obs:
        """The observations to act on next, leaves [(S,) N, ...]."""
        seeds = self._num_seeds
        return join_envs([split_seeds(group.obs, seeds) for group in self.groups], seeds)

    def with_obs(self, ts: TrainState) -> TrainState:
        """The state with the observations to act on next."""
        self._last_obs = self.observe()
        return ts.replace(local=ts.local.replace(obs=self._last_obs))

    def take_keys(self, ts: TrainState) -> tuple[TrainState, list[Key]]:
        """The state with its next key, and each group's keys for the next rollout."""
        key, group_keys = self._functions.keys_of_rollout(ts.local.key)
        return ts.replace(local=ts.local.replace(key=key)), group_keys

    def collect(
        self, ts: TrainState, policy: PolicyState, group_keys: list[Key], act: Compiled
    ) -> tuple[TrainState, Rollout]:
        """A rollout [T, (S,) N, ...] by `policy`, and the state after it.

        The returned state has the observations and carry after the rollout. After a failure, new
        episodes are started first. Ctrl-C interrupts it at any time.
        """
        with allowed_interrupts():
            if not self._is_ready:
                ts = self.restart(ts)
            packed = self._functions.pack(policy)
            carries = split_envs(ts.local.carry, len(self.groups), self._num_seeds)
            for group, keys, carry in zip(self.groups, group_keys, carries, strict=True):
                group.start_rollout(packed, carry, keys)
            self._take_steps(act)
        fields = join_envs([g.rollout() for g in self.groups], self._num_seeds, axis=1)
        return self._with_carry(self.with_obs(ts)), Rollout(**fields)

    def forget(self) -> None:
        """Makes the next rollout start new episodes: the environments may be in any state."""
        self._is_ready = False

    def close(self) -> None:
        """Closes the environments made here; collecting again starts new episodes."""
        for env in self._own_envs:
            env.close()
        self.forget()

    def _make_groups(self, env: EnvAdapter) -> None:
        count, seeds = self._num_groups, self._num_seeds
        size = seeds * (env.num_envs // (count * self._share[1]))
        as_given = count == seeds == 1 and self._share == WHOLE
        self._env = env
        self._own_envs = [] if as_given else [remake(env, size, self._share) for _ in range(count)]
        self.groups = [EnvGroup(env, seeds, self._num_steps) for env in self._own_envs or [env]]

    def _take_steps(self, act: Compiled) -> None:
        """Takes all steps of a rollout; while one group's environments step, the other acts."""
        stepping: EnvGroup | None = None
        for _ in range(self._num_steps):
            for group in self.groups:
                if stepping is group:
                    self._receive_step(group)
                    stepping = None
                group.choose_actions(act)
                if stepping is not None:
                    self._receive_step(stepping)
                group.send_actions()
                stepping = group
        assert stepping is not None
        self._receive_step(stepping)

    def _receive_step(self, group: EnvGroup) -> None:
        try:
            done = group.receive_step()
        except EnvFailedError as error:
            if len(self.groups) == 1:
                raise
            which = ("first", "second")[self.groups.index(group)]
            raise EnvFailedError(
                f'in the {which} half of the environments (overlap="acting"), {error}'
            ) from error
        if self._has_carry:
            done = split_seeds(done, self._num_seeds)
            group.carry = self._functions.restart_carry(group.carry, done)

    def _with_carry(self, ts: TrainState) -> TrainState:
        if not self._has_carry:
            return ts
        carries = [group.carry for group in self.groups]
        return ts.replace(local=ts.local.replace(carry=join_envs(carries, self._num_seeds)))


def _in_groups(states: Plain, sizes: Sequence[int], num_seeds: int) -> list[Plain]:
    """The states that env groups saved, for groups of these sizes: other overlaps have others.

    Raises `EnvStateError` unless they are lists with a state of each environment.
    """
    groups: list[Any] = states if isinstance(states, list) else []
    if len(groups) == len(sizes):
        return groups
    are_lists = all(isinstance(each, list) and len(each) % num_seeds == 0 for each in groups)
    if not are_lists or sum(map(len, groups)) != sum(sizes):
        raise EnvStateError(
            f"environments that were saved in {len(groups)} groups cannot be divided into"
            f' {len(sizes)} (overlap="acting" has two)'
        )
    of_seeds = [  # [S][N]
        [state for group in groups for state in _slice(group, seed, num_seeds)]
        for seed in range(num_seeds)
    ]
    count = len(sizes)
    return [[x for own in of_seeds for x in _slice(own, part, count)] for part in range(count)]


def _slice(states: Sequence[Plain], index: int, count: int) -> Sequence[Plain]:
    """The `index`-th of `count` equal parts."""
    size = len(states) // count
    return states[index * size : (index + 1) * size]


def _are_same(obs: Obs, other: Obs) -> bool:
    """Whether these are the same arrays, not only equal ones."""
    leaves, others = jax.tree.leaves(obs), jax.tree.leaves(other)
    return len(leaves) == len(others) and all(map(operator.is_, leaves, others))
