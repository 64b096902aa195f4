"""The functions of a run on the host; `compile_host_functions` compiles them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from rlkit import spaces
from rlkit.algorithms import collectors
from rlkit.algorithms.collectors import Explore, acting, acting_randomly
from rlkit.algorithms.initial_state import InitKeys
from rlkit.ops.over_devices import own_key
from rlkit.ops.strong_types import strong_types
from rlkit.training.compile.aot_compile import Compiled, Compiler
from rlkit.training.compile.devices import OWN, SAME, rows, shares_of_state
from rlkit.training.core.module import RLModule
from rlkit.training.programs.protocol import NEW_PHASE
from rlkit.training.programs.shares import share_of
from rlkit.types import (
    Action,
    Carry,
    Counters,
    Key,
    LearnerState,
    LocalState,
    Memory,
    Obs,
    PolicyState,
    PyTree,
    Rollout,
    TrainState,
)
from rlkit.xla_cpu.packing import NoPacking, Packed, Packing

RESTART = 0x7E57A27  # folded into the key of a restored state, for the seeds of its new episodes

Acted = tuple[Action, dict[str, PyTree], Array, Carry]  # actions, extras, next time, carry
Act = Compiled[..., Acted]
# learner, bare local state, metrics, counters
Learned = tuple[LearnerState, LocalState, Packed, Counters]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SeedFunctions:
    """The functions of a run with one seed: pure and not compiled.

    N environments train in G = `num_groups` env groups of N/G each. A *bare* local state lacks the
    environments, observations and carry, which stay on the host.
    """

    module: RLModule
    num_groups: int
    packing: Packing | NoPacking = dataclasses.field(default_factory=NoPacking)

    @property
    def group_size(self) -> int:
        """Environments per group, N/G."""
        return self.module.env.num_envs // self.num_groups

    # Start

    def prefill_keys(self, key: Key) -> Key:
        """A key for each rollout of the prefill, [P]; the key is consumed."""
        key = own_key(key, self.module.algorithm.axis_name)
        return jax.random.split(key, self.module.algorithm.prefill_collects(self.module.env))

    def group_keys(self, key: Key) -> list[Key]:
        """A key for each env group; a single group gets `key` itself.

        It then draws the same numbers as the program of a jittable environment.
        """
        if self.num_groups == 1:
            return [key]
        return [jax.random.fold_in(key, index) for index in range(self.num_groups)]

    def restart_key(self, key: Key) -> Key:
        """The key that seeds new episodes for a restored state with this local key."""
        return jax.random.fold_in(self._first(key), RESTART)

    def start(self, keys: InitKeys, obs: Obs) -> TrainState:
        """The initial state, without observations; `obs` are those of a reset, leaves [N, ...]."""
        keys = keys.on_device(self.module.algorithm.axis_name)
        return self._start(keys, obs)

    def _start(self, keys: InitKeys, obs: Obs) -> TrainState:
        module = self.module
        state = module.algorithm.start(
            module.agent, module.env, keys, obs, (), total_steps=module.total_steps
        )
        return strong_types(state.replace(local=state.local.replace(obs=())))

    def initial_policy(self, key: Key) -> PolicyState:
        """A fresh policy, used only for its shapes."""
        env = self.module.env
        obs = spaces.example(env.observation_space, (env.num_envs,))
        return self._start(InitKeys.split(key), obs).learner.policy

    # Rollouts

    def keys_of_rollout(self, key: Key) -> tuple[Key, list[Key]]:
        """The next key, and the keys of each env group's steps, [T, 2]; `key` is consumed."""
        drawn = [self.module.algorithm.collector.keys(k) for k in self.group_keys(key)]
        # Every group draws a next key; one is enough.
        return drawn[0][0], [keys for _, keys in drawn]

    def pack(self, policy: PolicyState) -> PyTree:
        """The policy as `act` takes it: one vector per dtype."""
        return self.packing.pack(policy)

    def act(self, packed: PyTree, keys: Key, time: Array, carry: Carry, obs: Obs) -> Acted:
        """How an env group acts in step `time` ([] int32) of a rollout with keys [T, 2].

        Carry, observations and results have leaves [N/G, ...].
        """
        explore = acting(self.module.agent, self.packing.unpack(packed))
        return _explore(explore, keys, time, carry, obs)

    def act_randomly(self, packed: PyTree, keys: Key, time: Array, carry: Carry, obs: Obs) -> Acted:
        """The same with random actions, for the prefill."""
        policy, action_space = self.packing.unpack(packed), self.module.env.action_space
        explore = acting_randomly(self.module.agent, policy, action_space)
        return _explore(explore, keys, time, carry, obs)

    def restart_carry(self, carry: Carry, done: Array) -> Carry:
        """The carry [N/G, ...], begun anew where an episode is `done` [N/G]."""
        initial = self.module.agent.initial_carry(self.group_size)
        return collectors.restart_carry(carry, initial, done)

    # Learning

    def learn(
        self,
        learner: LearnerState,
        local: LocalState,
        rollout: Rollout,
        behaviour: PolicyState | None,
    ) -> Learned:
        """One update from a rollout [T, N, ...].

        `behaviour` collected the rollout (None: the current policy); `local` is bare. Also returns
        metrics and counters.
        """
        local, rollout, episodes = self.module.algorithm.collector.count(local, rollout)
        ts, metrics = self.module.learn(
            TrainState(learner=learner, local=local), rollout, episodes, behaviour
        )
        return ts.learner, ts.local, Packed.of(metrics), self.module.counters(ts)

    def absorb(
        self, learner: LearnerState, local: LocalState, rollout: Rollout
    ) -> tuple[LearnerState, LocalState]:
        """Adds a rollout [T, N, ...] to memory and statistics only; `local` is bare."""
        algorithm = self.module.algorithm
        local, rollout, _ = algorithm.collector.count(local, rollout)
        learner, memory = algorithm.absorb_prefill(learner, local.memory, rollout)
        return learner, local.replace(memory=memory)

    # New episodes

    def cut(self, local: LocalState) -> LocalState:
        """A bare local state at the start of new episodes.

        No transition in its memory leads from an old episode into a new one.
        """
        buffer = self.module.algorithm.replay_buffer
        memory = local.memory if buffer is None else buffer.cut(local.memory)
        return self._with_new_episodes(local, memory)

    def empty(self, learner: LearnerState, local: LocalState) -> LocalState:
        """The same with an empty memory, for a state restored without its own."""
        module = self.module
        memory = module.algorithm.empty_memory(module.agent, module.env, learner.policy)
        return strong_types(self._with_new_episodes(local, memory))

    def phase_key(self, key: Key) -> Key:
        """The key that seeds the new episodes of a phase, for a state with this local key."""
        return jax.random.fold_in(self._first(key), NEW_PHASE)

    def enter(self, local: LocalState) -> LocalState:
        """A bare local state of other environments, at the start of new episodes in these."""
        agent, env = self.module.agent, self.module.env
        entered = self.module.algorithm.enter(agent, env, local, (), ())
        return strong_types(entered)

    def _first(self, key: Key) -> Key:
        """The key of the first device, from its own one: environments are reset for all."""
        axis_name = self.module.algorithm.axis_name
        if axis_name is None:
            return key
        data = jax.random.key_data(key)
        is_first = jax.lax.axis_index(axis_name) == 0
        chosen = jax.lax.psum(jnp.where(is_first, data, 0), axis_name)
        return jax.random.wrap_key_data(chosen, impl=jax.random.key_impl(key))

    def _with_new_episodes(self, local: LocalState, memory: Memory) -> LocalState:
        return local.replace(
            episodes=jax.tree.map(jnp.zeros_like, local.episodes),
            discounted_return=jnp.zeros_like(local.discounted_return),
            memory=memory,
            carry=self.module.agent.initial_carry(self.module.env.num_envs),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostFunctions:
    """The `SeedFunctions`, each mapped over seeds and compiled on first call.

    With S seeds, leaves have a leading axis S; in rollouts it is the second, [T, S, N, ...].
    """

    split: Compiled[..., InitKeys]
    prefill_keys: Compiled[..., Key]
    group_keys: Compiled[..., list[Key]]
    restart_key: Compiled[..., Key]
    start: Compiled[..., TrainState]
    keys_of_rollout: Compiled[..., tuple[Key, list[Key]]]
    pack: Callable[[PolicyState], PyTree]
    act: Act
    act_randomly: Act
    restart_carry: Compiled[..., Carry]
    learn: Compiled[..., Learned]  # donates learner and local state
    absorb: Compiled[..., tuple[LearnerState, LocalState]]  # donates learner and local state
    cut: Compiled[..., LocalState]
    empty: Compiled[..., LocalState]
    phase_key: Compiled[..., Key]
    enter: Callable[..., LocalState]  # compiled on each call, for states of any shape
    copy: Compiled[..., PyTree]
    copy_policy: Compiled[..., PyTree]


def compile_host_functions(
    module: RLModule, compiler: Compiler, *, num_groups: int
) -> HostFunctions:
    """The functions of a run of `module` in `num_groups` env groups."""
    share = share_of(module, compiler.devices)
    assert isinstance(share, RLModule)
    f = SeedFunctions(module=share, num_groups=num_groups)
    packs = module.algorithm.collector.num_steps > 1  # packing costs more than a single step gains
    if packs:
        shape = jax.eval_shape(f.initial_policy, jax.random.key(0))
        f = dataclasses.replace(f, packing=Packing(shape))
    acting: dict[str, Any] = {
        "axes": (0, 0, None, 0, 0),
        "out_axes": (0, 0, None, 0),
        "takes": (SAME, OWN, SAME, rows(), rows()),
        "gives": (rows(), rows(), SAME, rows()),
    }
    # Observations and carry are on the host, in the order of the environments.
    state = shares_of_state(carry=rows())
    return HostFunctions(
        split=compiler(InitKeys.split),
        prefill_keys=compiler(f.prefill_keys, gives=OWN),
        group_keys=compiler(f.group_keys),
        restart_key=compiler(f.restart_key, takes=OWN),
        start=compiler(f.start, takes=(SAME, rows()), gives=state),
        keys_of_rollout=compiler(f.keys_of_rollout, takes=OWN, gives=OWN),
        pack=compiler(f.pack) if packs else f.pack,
        act=compiler(f.act, **acting),
        act_randomly=compiler(f.act_randomly, **acting),
        restart_carry=compiler(f.restart_carry, takes=rows(), gives=rows()),
        learn=compiler(
            f.learn,
            donate=(0, 1),
            axes=(0, 0, 1, 0),
            takes=(SAME, OWN, rows(1), SAME),
            gives=(SAME, OWN, SAME, SAME),
        ),
        absorb=compiler(
            f.absorb,
            donate=(0, 1),
            axes=(0, 0, 1),
            takes=(SAME, OWN, rows(1)),
            gives=(SAME, OWN),
        ),
        cut=compiler(f.cut, takes=OWN, gives=state.local),
        empty=compiler(f.empty, takes=(SAME, OWN), gives=state.local),
        phase_key=compiler(f.phase_key, takes=OWN),
        enter=lambda entered: compiler(f.enter, takes=OWN, gives=state.local)(entered),
        copy=compiler(_copy, takes=((SAME, OWN),), gives=(SAME, OWN)),
        copy_policy=compiler(_copy),
    )


def bare(local: LocalState) -> LocalState:
    """The local state without environments, observations and carry, as updates need it."""
    return local.replace(env_state=(), obs=(), carry=())


def with_obs_and_carry(local: LocalState, of: LocalState) -> LocalState:
    """A bare local state with the observations and the carry of another one."""
    return local.replace(obs=of.obs, carry=of.carry)


def _explore(explore: Explore, keys: Key, time: Array, carry: Carry, obs: Obs) -> Acted:
    action, carry, extras = explore(obs, carry, keys[time, 0])
    return action, extras, time + 1, carry


def _copy(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.copy, tree)
