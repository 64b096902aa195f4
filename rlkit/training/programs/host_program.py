"""A run on environments of the host: acting and the update are compiled, a Python loop steps the
simulators between them.
"""

from concurrent import futures
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit import spaces
from rlkit.algorithms.collectors import acting, acting_randomly, restart_carry
from rlkit.algorithms.initial_state import InitKeys
from rlkit.algorithms.metrics import reduce_metrics
from rlkit.errors import EnvFailedError, require
from rlkit.training.compile.aot_compile import Compiled, Compiler
from rlkit.training.config import Overlap
from rlkit.training.core.module import RLModule, iteration, strong_types
from rlkit.training.programs.env_groups import EnvGroup, remake
from rlkit.training.programs.host_loop import HostLoop, Turn
from rlkit.types import (
    Carry,
    Key,
    LearnerState,
    LocalState,
    Memory,
    Metrics,
    Obs,
    PolicyState,
    PyTree,
    Rollout,
    TrainState,
)
from rlkit.xla_cpu.packing import NoPacking, Packed, Packing

RESTART = 0x7E57A27  # folded into the key of a restored state, for the seeds of its new episodes

Found = tuple[Packed, Any]  # metrics, counters
Batch = tuple[Rollout, PolicyState | None]


class HostProgram:
    """What the Trainer calls (see `Program`), for an `RLModule` whose environment is on the host.

    Draws the same random numbers as the compiled loop, so that equal dynamics give equal
    transitions. With S seeds it makes S·N environments of its own, which act and learn mapped over
    [S, N]; with `overlap="acting"` two halves of them. States keep the observations as NumPy and
    nothing of the simulators, which cannot be saved, see `restart`.

    Where a rollout is a single step, an outer iteration on a CPU is one program, see `HostLoop`.
    """

    def __init__(self, module: RLModule, *, compiler: Compiler, epochs: int, overlap: Overlap):
        self._module = module
        self._seeds = compiler.num_seeds
        self._epochs = epochs
        self._learns_beside = overlap == "update"
        env, agent, algorithm = module.env, module.agent, module.algorithm
        num_groups = 2 if overlap == "acting" else 1
        require(
            env.num_envs % num_groups == 0,
            f'overlap="acting" needs an even number of environments, got {env.num_envs}',
            f"use num_envs={env.num_envs + 1}, or another overlap",
        )
        each = env.num_envs // num_groups
        as_given = num_groups == self._seeds == 1
        self._own_envs = (
            [] if as_given else [remake(env, self._seeds * each) for _ in range(num_groups)]
        )
        self._groups = [
            EnvGroup(e, self._seeds, algorithm.collector.num_steps) for e in self._own_envs or [env]
        ]
        self._is_open = False
        self.unfinished: tuple[TrainState, int] | None = None
        self._carry_start = agent.initial_carry(each)
        self._recurrent = bool(jax.tree.leaves(self._carry_start))

        def start(keys: InitKeys, obs: Obs) -> TrainState:
            state = algorithm.start(agent, env, keys, obs, (), total_steps=module.total_steps)
            return strong_types(state.replace(local=state.local.replace(obs=())))

        def policy_of(key: Key) -> PolicyState:
            obs = spaces.example(env.observation_space, (env.num_envs,))
            return start(InitKeys.split(key), obs).learner.policy

        def keys_of_rollout(key: Key) -> tuple[Key, list[Key]]:
            found = [algorithm.collector.keys(k) for k in group_keys(key, num_groups)]
            # Every group has a key to go on with; one is enough.
            return found[0][0], [keys for _, keys in found]

        def step(explore: Any, keys: Key, time: Any, carry: Carry, obs: Obs) -> Any:
            action, carry, extras = explore(obs, carry, keys[time, 0])
            return action, extras, time + 1, carry

        def act(packed: PyTree, keys: Key, time: Any, carry: Carry, obs: Obs) -> Any:
            return step(acting(agent, unpack(packed)), keys, time, carry, obs)

        def act_randomly(packed: PyTree, keys: Key, time: Any, carry: Carry, obs: Obs) -> Any:
            explore = acting_randomly(agent, unpack(packed), env.action_space, each)
            return step(explore, keys, time, carry, obs)

        def learn(
            learner: LearnerState,
            local: LocalState,
            rollout: Rollout,
            behaviour: PolicyState | None,
        ) -> tuple[LearnerState, LocalState, Packed, Any]:
            local, rollout, episodes = algorithm.collector.count(local, rollout)
            ts, metrics = module.learn(
                TrainState(learner=learner, local=local), rollout, episodes, behaviour
            )
            return ts.learner, ts.local, Packed.of(metrics), module.counters(ts)

        def absorb(
            learner: LearnerState, local: LocalState, rollout: Rollout
        ) -> tuple[LearnerState, LocalState]:
            local, rollout, _ = algorithm.collector.count(local, rollout)
            learner, memory = algorithm.absorb_prefill(learner, local.memory, rollout)
            return learner, local.replace(memory=memory)

        def forget(local: LocalState, memory: Memory) -> LocalState:
            zeros = jax.tree.map(jnp.zeros_like, (local.episodes, local.discounted_return))
            carry = agent.initial_carry(env.num_envs)
            return local.replace(
                episodes=zeros[0], discounted_return=zeros[1], memory=memory, carry=carry
            )

        def cut(local: LocalState) -> LocalState:
            memory = (
                local.memory
                if algorithm.replay_buffer is None
                else algorithm.replay_buffer.cut(local.memory)
            )
            return forget(local, memory)

        def empty(learner: LearnerState, local: LocalState) -> LocalState:
            return strong_types(forget(local, algorithm.empty_memory(agent, env, learner.policy)))

        is_single = (
            algorithm.collector.num_steps == 1
        )  # packing costs more than one step gains by it
        packing = (
            NoPacking() if is_single else Packing(jax.eval_shape(policy_of, jax.random.key(0)))
        )
        unpack = packing.unpack
        over_steps: dict[str, Any] = {"axes": (0, 0, None, 0, 0), "out_axes": (0, 0, None, 0)}
        self._split = compiler(InitKeys.split)
        self._prefill_keys = compiler(
            lambda key: jax.random.split(key, algorithm.prefill_collects(env))
        )
        self.group_keys = compiler(lambda key: group_keys(key, num_groups))
        self._restart_key = compiler(lambda key: jax.random.fold_in(key, RESTART))
        self._start = compiler(start)
        self._keys_of_rollout = compiler(keys_of_rollout)
        self._pack = packing.pack if is_single else compiler(packing.pack)
        self._act = compiler(act, **over_steps)
        self._act_randomly = compiler(act_randomly, **over_steps)
        self._restart_carry = compiler(
            lambda carry, done: restart_carry(carry, self._carry_start, done)
        )
        self._learn = compiler(learn, donate=(0, 1), axes=(0, 0, 1, 0))
        self._absorb = compiler(absorb, donate=(0, 1), axes=(0, 0, 1))
        self._cut = compiler(cut)
        self._empty = compiler(empty)
        self._copy = compiler(lambda state: jax.tree.map(jnp.copy, state))
        self._copy_policy = compiler(lambda policy: jax.tree.map(jnp.copy, policy))
        self._loop: HostLoop | None = None
        if is_single and num_groups == 1 and epochs > 1 and jax.default_backend() == "cpu":
            self._loop = HostLoop(
                compiler,
                epochs=epochs,
                beside=self._learns_beside,
                draw_keys=self._keys_of_rollout.function,
                act=self._act.function,
                restart_carry=self._restart_carry.function,
                learn=self._learn.function,
            )

    # What the Trainer calls

    def init(self, key: Key) -> TrainState:
        """The state before training, random prefill included; resets the environments. The key is
        consumed.
        """
        keys = self._split(key)
        self._reset(keys.reset)
        ts = self._with_obs(self._start(keys, self._seen()))
        algorithm, env = self._module.algorithm, self._module.env
        if algorithm.prefill_collects(env) == 0:
            return ts
        prefill_keys = self._prefill_keys(keys.prefill)
        for index in range(algorithm.prefill_collects(env)):
            local = ts.local.replace(
                key=prefill_keys[index] if self._seeds == 1 else prefill_keys[:, index]
            )
            ts = self._collect_to_keep(ts.replace(local=local), self._act_randomly)
        return ts

    def state_shape(self, key: Key) -> TrainState:
        """The shapes and dtypes of a state; starts no environment."""
        env = self._module.env
        batch = (env.num_envs,) if self._seeds == 1 else (self._seeds, env.num_envs)
        obs = spaces.abstract(env.observation_space, batch)
        shape = jax.eval_shape(self._start.function, jax.eval_shape(self._split.function, key), obs)
        return shape.replace(local=shape.local.replace(obs=obs))

    def restart(self, ts: TrainState) -> TrainState:
        """The restored state `ts` with new episodes, seeded from its own key: nobody can restore
        the simulators.
        """
        self._reset(self._restart_key(ts.local.key))
        return self._with_obs(ts.replace(local=self._cut(_bare(ts.local))))

    def refill(self, ts: TrainState) -> TrainState:
        """The restored state `ts`, which lacks its replay memory, with new episodes, of which the
        first fill a new one.
        """
        self.unfinished = None  # a memory that is filled in part is nothing to go on with
        self._reset(self._restart_key(ts.local.key))
        ts = self._with_obs(ts.replace(local=self._empty(ts.learner, _bare(ts.local))))
        for _ in range(self._module.algorithm.refill_collects(self._module.env)):
            ts = self._collect_to_keep(ts, self._act)
        return ts

    def outer(self, ts: TrainState) -> tuple[TrainState, tuple[Metrics, Any]]:
        """An outer iteration, averages as in `outer_iteration`; takes the state over.

        Where it fails in the middle, `unfinished` holds (state, iterations) after the last update
        that was finished.
        """
        return self._iterate(ts, self._epochs)

    def single(self, ts: TrainState) -> tuple[TrainState, tuple[Metrics, Any]]:
        """The same with one iteration."""
        return self._iterate(ts, 1)

    def copy(self, ts: TrainState) -> TrainState:
        """The state in buffers of its own."""
        learner, local = self._copy((ts.learner, _bare(ts.local)))
        return TrainState(learner=learner, local=local.replace(obs=ts.local.obs))

    def close(self) -> None:
        """Closes the environments that this program made; going on afterwards starts new
        episodes.
        """
        for env in self._own_envs:
            env.close()
            self._is_open = False

    # An iteration, as in `Module`

    def get_batch(self, ts: TrainState, i: Any) -> tuple[TrainState, Batch]:
        """One rollout by the current policy."""
        ts, group_keys = self._take_keys(ts)
        ts, rollout = self._collect(ts, ts.learner.policy, group_keys, self._act)
        return ts, (rollout, self._copy_policy(ts.learner.policy) if self._learns_beside else None)

    def training_step(self, i: Any, ts: TrainState, batch: Batch) -> tuple[TrainState, Found]:
        """One update; returns before it is computed."""
        return self._update(ts, *batch)

    # Parts

    def _iterate(self, ts: TrainState, epochs: int) -> tuple[TrainState, tuple[Metrics, Any]]:
        self.unfinished = None
        try:
            if self._loop is not None and epochs > 1:
                ts, (stacked, counters) = self._iterate_in_loop(self._loop, ts)
            else:
                ts, found = (
                    self._iterate_beside(ts, epochs)
                    if self._learns_beside
                    else self._iterate_in_turn(ts, epochs)
                )
                rows = jax.device_get([metrics for metrics, _ in found])
                stacked, counters = (
                    jax.tree.map(lambda *vectors: np.stack(vectors), *rows),
                    found[-1][1],
                )
        except BaseException:
            self._is_open = False  # the environments may stand anywhere
            self.unfinished = None if _is_taken(self._latest[0]) else self._latest
            raise
        return ts, (reduce_metrics(stacked), counters)

    def _iterate_in_turn(self, ts: TrainState, epochs: int) -> tuple[TrainState, list[Found]]:
        """The iterations one after the other; what each found."""
        found: list[Found] = []
        for index in range(epochs):
            self._latest = ts, index
            ts, metrics = iteration(self, ts, index)
            found.append(metrics)
        return ts, found

    def _iterate_in_loop(self, loop: HostLoop, ts: TrainState) -> tuple[TrainState, Found]:
        """All iterations of an outer iteration in one program, but for the first step; metrics are
        stacked.
        """
        (group,) = self._groups
        self._latest = ts, 0
        ts, (rollout, behaviour) = self.get_batch(ts, 0)
        local = ts.local
        turn = Turn(
            learner=ts.learner,
            local=_bare(local),
            obs=local.obs,
            carry=local.carry,
            rollout=rollout,
            behaviour=behaviour,
        )
        ended, error = loop(turn, group.step)
        ts = self._with_obs(
            TrainState(learner=ended.learner, local=ended.local.replace(carry=ended.carry))
        )
        self._latest = ts, int(ended.iterations)
        if error is not None:
            raise error
        return ts, (jax.device_get(ended.metrics), ended.counters)

    def _iterate_beside(self, ts: TrainState, epochs: int) -> tuple[TrainState, list[Found]]:
        """The same, each rollout collected while the one before it is learned from."""
        found: list[Found] = []
        self._latest = ts, 0
        ts, (rollout, policy) = self.get_batch(ts, 0)
        with futures.ThreadPoolExecutor(max_workers=1) as beside:
            for index in range(epochs - 1):
                ts, group_keys = self._take_keys(ts)
                following = self._copy_policy(ts.learner.policy)
                update = beside.submit(self._update, ts, rollout, policy)
                try:
                    collected, rollout = self._collect(ts, following, group_keys, self._act)
                finally:
                    ts, metrics = update.result()
                    self._latest = ts, index + 1
                seen = collected.local
                ts, policy = (
                    ts.replace(local=ts.local.replace(obs=seen.obs, carry=seen.carry)),
                    following,
                )
                found.append(metrics)
        ts, metrics = self._update(ts, rollout, policy)
        found.append(metrics)
        return ts, found

    def _reset(self, key: Key) -> None:
        keys = self.group_keys(key)
        for index, group in enumerate(self._groups):
            group.reset(keys[index])
        self._is_open = True

    def _seen(self) -> Obs:
        """The observations to act on next, [(S,) N, ...]."""
        return self._join([group.obs for group in self._groups])

    def _join(self, trees: list[Any], *, flat: bool = True) -> Any:
        """What the groups hold, put together: flat trees [S·N, ...] as [(S,) N, ...]."""
        axis = 0 if self._seeds == 1 else 1

        def join(*leaves: Any) -> Any:
            shaped = [np.asarray(x) for x in leaves]
            if flat and self._seeds > 1:
                shaped = [x.reshape(self._seeds, -1, *x.shape[1:]) for x in shaped]
            return shaped[0] if len(shaped) == 1 else np.concatenate(shaped, axis)

        return jax.tree.map(join, *trees)

    def _with_obs(self, ts: TrainState) -> TrainState:
        return ts.replace(local=ts.local.replace(obs=self._seen()))

    def _take_keys(self, ts: TrainState) -> tuple[TrainState, list[Key]]:
        key, group_keys = self._keys_of_rollout(ts.local.key)
        return ts.replace(local=ts.local.replace(key=key)), group_keys

    def _collect(
        self, ts: TrainState, policy: PolicyState, group_keys: list[Key], act: Compiled
    ) -> tuple[TrainState, Rollout]:
        """A rollout [T, (S,) N, ...]. While the environments of one group step, the other acts."""
        if not self._is_open:
            ts = self.restart(ts)
        packed = self._pack(policy)
        for group, keys, carry in zip(
            self._groups, group_keys, self._carries(ts.local.carry), strict=True
        ):
            group.begin(packed, carry, keys)
        waiting: EnvGroup | None = None
        for _ in range(self._module.algorithm.collector.num_steps):
            for group in self._groups:
                if waiting is group:
                    self._receive(group)
                    waiting = None
                group.act(act)
                if waiting is not None:
                    self._receive(waiting)
                group.send()
                waiting = group
        assert waiting is not None
        self._receive(waiting)
        fields = [group.rollout() for group in self._groups]
        axis = 1 if self._seeds == 1 else 2
        joined = (
            fields[0]
            if len(fields) == 1
            else jax.tree.map(lambda *x: np.concatenate(x, axis), *fields)
        )
        ts = self._with_obs(ts)
        if self._recurrent:
            carry = self._join([group.carry for group in self._groups], flat=False)
            ts = ts.replace(local=ts.local.replace(carry=carry))
        return ts, Rollout(**joined)

    def _collect_to_keep(self, ts: TrainState, act: Compiled) -> TrainState:
        """The state with one more rollout in its memory and statistics, not learned from."""
        ts, group_keys = self._take_keys(ts)
        ts, rollout = self._collect(ts, ts.learner.policy, group_keys, act)
        learner, local = self._absorb(ts.learner, _bare(ts.local), rollout)
        return TrainState(
            learner=learner, local=local.replace(obs=ts.local.obs, carry=ts.local.carry)
        )

    def _receive(self, group: EnvGroup) -> None:
        try:
            done = group.receive()
        except EnvFailedError as error:
            if len(self._groups) == 1:
                raise
            half = self._groups.index(group)
            raise EnvFailedError(
                f'in half {half} of 0 and 1 (overlap="acting"), {error}'
            ) from error
        if self._recurrent:
            group.carry = self._restart_carry(
                group.carry, done if self._seeds == 1 else done.reshape(self._seeds, -1)
            )

    def _carries(self, carry: Carry) -> list[Carry]:
        if len(self._groups) == 1:
            return [carry]
        axis = 0 if self._seeds == 1 else 1
        halves = [jnp.split(x, 2, axis) for x in jax.tree.leaves(carry)]
        return [
            jax.tree.unflatten(jax.tree.structure(carry), [half[index] for half in halves])
            for index in range(2)
        ]

    def _update(
        self, ts: TrainState, rollout: Rollout, behaviour: PolicyState | None
    ) -> tuple[TrainState, Found]:
        learner, local, metrics, counters = self._learn(
            ts.learner, _bare(ts.local), rollout, behaviour
        )
        local = local.replace(obs=ts.local.obs, carry=ts.local.carry)
        return TrainState(learner=learner, local=local), (metrics, counters)


def group_keys(key: Key, num_groups: int) -> list[Key]:
    """A key for each group; of a single one the key itself, so that it draws what the compiled loop
    draws.
    """
    return (
        [key]
        if num_groups == 1
        else [jax.random.fold_in(key, index) for index in range(num_groups)]
    )


def _is_taken(ts: TrainState) -> bool:
    """Whether an update took the buffers of the state over."""
    return any(
        isinstance(x, Array) and x.is_deleted() for x in jax.tree.leaves((ts.learner, ts.local))
    )


def _bare(local: LocalState) -> LocalState:
    """What the update needs: without observations and environments."""
    return local.replace(env_state=(), obs=(), carry=())
