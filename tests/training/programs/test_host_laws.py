"""Training on the host against the compiled loop, on the same integer dynamics: what must agree,
and how closely.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algorithm_rows import MEMORY, NAMES, NORMALIZED, REPLAYED, VARIANTS, entry, known
from composite_twins import HostLevers, Levers
from host_twins import agent_for, keys_as_data, twin_envs
from tiers import by_default, in_full

from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.core.evaluator import make_evaluator
from rlkit.training.core.module import RLModule
from rlkit.training.files.checkpoint_items import without_replay
from rlkit.training.programs.host_program import HostProgram
from rlkit.training.programs.jittable_program import DeviceProgram
from rlkit.training.programs.players import make_player
from rlkit.training.programs.schedules.base import LoopState
from rlkit.training.programs.schedules.overlapped import first_rollout

# Of 3 environments, an update for each.
SINGLE_STEPS = {
    "num_steps": 1,
    "updates_per_step": 1 / 3,
    "learning_rate": 0.05,
}
PARTS = " in parts"  # of an algorithm whose actions are a dict
IN_PARTS = [f"{name}{PARTS}" for name in ("ppo", "a2c", "ppo.gru")]
OVERLAPS = ("none", "acting")  # "update" collects by the same functions
ULPS = 4  # of float32, in parameters after one update: the programs differ in how XLA fuses sums


def twins(tiny, name="ppo", *, num_envs=3, counting=False, **settings):
    """The same run on both kinds: (jittable module, host module). `name` may end with PARTS."""
    name, in_parts, _ = name.partition(PARTS)
    if in_parts:
        device, host = vectorize(Levers(), num_envs), GymnasiumAdapter(HostLevers, num_envs)
    else:
        device, host = twin_envs(name, num_envs)
    algorithm = tiny.algorithm(name, **settings)
    if counting:
        algorithm = dataclasses.replace(algorithm, learns_through_carry=True)
    return tuple(
        RLModule(
            env=env,
            agent=agent_for(env, counting=counting, algorithm=name),
            algorithm=algorithm,
            total_steps=1000.0,
        )
        for env in (device, host)
    )


def programs(modules, num_seeds=1, **settings):
    device, host = modules
    return (
        DeviceProgram(device, compiler=Compiler(num_seeds), num_iterations=2),
        HostProgram(
            host, compiler=Compiler(num_seeds), num_iterations=2, **({"overlap": "none"} | settings)
        ),
    )


def assert_equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, keys_as_data(one), keys_as_data(other))


def assert_ulps(one, other, ulps=ULPS):
    def compare(a, b):
        if np.issubdtype(a.dtype, np.floating):
            np.testing.assert_array_max_ulp(a, b, ulps)
        else:
            np.testing.assert_array_equal(a, b)

    jax.tree.map(compare, keys_as_data(one), keys_as_data(other))


def without_environments(ts):
    return ts.replace(local=ts.local.replace(env_state=(), carry=()))


@pytest.mark.parametrize("name", by_default(["ppo"], [*NAMES, *VARIANTS, *IN_PARTS]))
def test_host_equals_jitted(name, tiny):
    """Equal initial states, prefill included; the same transitions in every bit; the same
    parameters after an update.

    Rollouts are of 8 steps; for single ones see `test_single_steps_equal_jitted`.
    """
    key = jax.random.key(2)  # one with which episodes end in both ways
    plain = name.removesuffix(PARTS)
    sequences = {"sequence_length": 4} if plain in MEMORY else {}
    # Three rollouts at first: the memory reads the second by statistics that know the one before.
    prefill = {"prefill_steps": 72, "capacity": 192} if plain in REPLAYED else {}
    settings = known(entry(plain).config, NORMALIZED | sequences | prefill)
    modules = twins(tiny, name, **settings)
    device, host = programs(modules)
    on_device, on_host = device.init(key), host.init(key)
    assert_equal(without_environments(on_device), without_environments(on_host))

    on_device, (rollout, _) = jax.jit(modules[0].get_batch)(on_device, jnp.int32(0))
    on_host, batch = host.single_schedule.get_batch(on_host, 0)
    # The host counts them later, in the compiled update.
    found = batch.rollout.replace(extras=rollout.extras)
    before = modules[0].algorithm.prefill_collects(modules[0].env) * 24
    assert rollout.reward.shape == (8, 3) and rollout.done.any()
    ends = rollout.truncated.any() and rollout.terminated.any()
    assert ends or name in VARIANTS or PARTS in name  # which act differently
    assert_ulps(rollout.action, found.action)
    assert_equal(rollout.replace(action=()), found.replace(action=()))
    assert_equal(on_device.local.obs, on_host.local.obs)
    assert_ulps(on_device.local.carry, on_host.local.carry)

    (on_device, metrics), (on_host, (found, counters)) = (
        jax.jit(modules[0].training_step)(jnp.int32(0), on_device, (rollout, _)),
        host.single_schedule.training_step(0, on_host, batch),
    )
    assert_ulps(without_environments(on_device), without_environments(on_host))
    assert [int(counter.to_int()) for counter in counters] == [
        before + 24,
        int(on_device.learner.updates.to_int()),
    ]
    for name_, value in metrics.items():
        np.testing.assert_allclose(
            found.unpack()[name_], value, rtol=1e-5, atol=1e-6, err_msg=name_
        )


@pytest.mark.full
def test_outer_iterations_agree(tiny, key):
    """Several iterations on, with averages over them and sums of episodes."""
    device, host = programs(twins(tiny, "ppo"))
    on_device, on_host = device.init(key), host.init(key)
    for _ in range(2):
        on_device, (metrics, _) = device.outer(on_device)
        on_host, (found, _) = host.outer(on_host)
    assert_equal(on_device.local.episodes, on_host.local.episodes)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        on_device.learner.params,
        on_host.learner.params,
    )
    assert metrics["sum/episodes"] == found["sum/episodes"] > 0
    for name, value in metrics.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("num_seeds", [in_full(1), 2])
def test_a_refill_is_the_same_on_both(tiny, num_seeds):
    """From the beginning of episodes on: the same exploring actions, memory, counts and
    statistics.
    """
    both = programs(twins(tiny, "dqn", prefill_steps=0), num_seeds)
    keys = Compiler(num_seeds).keys(0)
    on_device, on_host = (program.refill(without_replay(program.init(keys))) for program in both)
    assert_equal(without_environments(on_device), without_environments(on_host))
    assert on_host.learner.env_steps.to_int() == 24 and jax.tree.leaves(on_host.local.memory)
    both[1].close()


@pytest.mark.full
def test_each_seed_equals_its_single_run(tiny):
    """S seeds are S·N environments in one adapter; block s is the run of seed s."""
    modules = twins(tiny, "ppo", **NORMALIZED)
    _, three = programs(modules, num_seeds=3)
    ts = three.init(Compiler(3).keys(5))
    assert ts.local.obs.shape == (3, 3, 2)
    ts, (metrics, _) = three.outer(ts)
    assert metrics["loss"].shape == (3,)
    for seed in range(3):
        _, one = programs(modules)
        single, (found, _) = one.outer(one.init(Compiler(1).keys(5 + seed)))
        of_seed = jax.tree.map(
            lambda x, seed=seed: x[seed], (ts.learner, ts.local.episodes, ts.local.obs, metrics)
        )
        wanted = (single.learner, single.local.episodes, single.local.obs, found)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
            *map(keys_as_data, (of_seed, wanted)),
        )
    three.close()


@pytest.mark.parametrize(
    ("name", "num_seeds"),
    by_default([("dqn", 1)], [("dqn", 1), ("dqn", 2), ("sac", 1), ("sac", 2)]),
)
def test_single_steps_equal_jitted(tiny, name, num_seeds):
    """Where the policy is not packed and the loops are none."""
    device, host = programs(twins(tiny, name, **SINGLE_STEPS), num_seeds=num_seeds)
    seeds = Compiler(num_seeds).keys(3)
    on_device, on_host = device.init(seeds), host.init(seeds)
    for _ in range(2):
        on_device, (metrics, _) = device.outer(on_device)
        on_host, (found, _) = host.outer(on_host)
    host.close()
    for one, other in (
        (on_device.learner, on_host.learner),
        (on_device.local.obs, on_host.local.obs),
        (metrics, found),
    ):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
            *map(keys_as_data, (one, other)),
        )
    assert (
        np.asarray(on_host.learner.updates.low) == 4
    ).all()  # one in each of two times two iterations


@pytest.mark.parametrize("num_seeds", [in_full(1), 2])
def test_evaluation_equals_the_compiled_one(tiny, key, num_seeds):
    """Same keys, same episodes, same actions, deterministic and sampled; the surplus of the last
    round is dropped.
    """
    device, host = twins(tiny, "ppo")
    compiler = Compiler(num_seeds)
    policy = (
        DeviceProgram(device, compiler=compiler, num_iterations=1)
        .init(compiler.keys(0))
        .learner.policy
    )
    evaluators = [
        make_evaluator(module.env, module.agent, num_episodes=5) for module in (device, host)
    ]
    wanted = compiler(evaluators[0])(policy)
    player = make_player(evaluators[1], compiler)
    found = player.evaluate(policy)
    info = found.pop("done_info")
    assert_equal(found, wanted)
    assert found["return"].shape == ((5,) if num_seeds == 1 else (2, 5))
    np.testing.assert_allclose(info["total"], found["return"])  # the total is the return here
    player.close()


def collect(host, ts):
    """A rollout by the present policy."""
    state = host.parts.collect(ts, ts.learner.policy)
    return state.ts, state.rollout


def test_a_rollout_survives_the_collection_of_the_next(tiny, key):
    """The update may still be reading a rollout while the next one is written."""
    _, host = programs(twins(tiny, "ppo"))
    ts, first = collect(host, host.init(key))
    before = jax.tree.map(np.copy, first)
    ts, second = collect(host, ts)
    assert_equal(first, before)
    assert not all(
        np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (first, second)), strict=True)
    )


def check_dynamics(rollout):
    """Every row is a step of `Counter`, and after an end the next row starts at zero."""
    total = rollout.obs[..., 1] + rollout.action
    np.testing.assert_array_equal(rollout.next_obs, np.stack([rollout.obs[..., 0] + 1, total], -1))
    np.testing.assert_array_equal(rollout.reward, rollout.action)
    done = rollout.terminated | rollout.truncated
    np.testing.assert_array_equal(rollout.obs[1:][done[:-1]], 0)
    np.testing.assert_array_equal(rollout.obs[1:][~done[:-1]], rollout.next_obs[:-1][~done[:-1]])


@pytest.mark.parametrize(
    ("overlap", "num_seeds"),
    by_default(
        [("acting", 2), ("update", 1)], itertools.product(["none", "acting", "update"], [1, 2])
    ),
)
def test_rows_are_steps_whatever_overlaps(overlap, num_seeds, tiny):
    _, host = programs(twins(tiny, "ppo", num_envs=4), num_seeds, overlap=overlap)
    ts = host.init(Compiler(num_seeds).keys(0))
    for _ in range(3):
        before = ts.local.obs
        ts, rollout = collect(host, ts)
        assert rollout.reward.shape == ((8, 4) if num_seeds == 1 else (8, num_seeds, 4))
        check_dynamics(rollout)
        np.testing.assert_array_equal(rollout.obs[0], before)
    host.close()


def test_recurrent_carry_restarts_with_the_episode(tiny, key):
    """The carry of an agent that counts steps equals the time that the environment counts, also
    across rollouts.
    """
    modules = twins(tiny, "ppo", counting=True, num_envs=4)
    for overlap in ("none", "acting"):
        _, host = programs(modules, overlap=overlap)
        ts = host.init(key)
        for _ in range(2):
            ts, rollout = collect(host, ts)
            np.testing.assert_array_equal(rollout.extras["age"], rollout.obs[..., 0])
            np.testing.assert_array_equal(ts.local.carry, ts.local.obs[..., 0])
        assert_equal(host.copy(ts), ts)  # what a checkpoint holds
        host.close()


@pytest.mark.parametrize(
    ("name", "overlap"),
    by_default([("ppo.gsde", "acting")], itertools.product(["ppo.gsde", "a2c.gsde"], OVERLAPS)),
)
def test_noise_restarts_with_the_episode(tiny, key, name, overlap):
    """Its age is the time that the environment counts, also across rollouts; and a second seed
    beside the first changes nothing about that.
    """
    for num_seeds in (1, 2):
        _, host = programs(twins(tiny, name, num_envs=4), num_seeds=num_seeds, overlap=overlap)
        ts = host.init(Compiler(num_seeds).keys(1))
        for _ in range(2):
            ts, _ = collect(host, ts)
            np.testing.assert_array_equal(ts.local.carry.age, ts.local.obs[..., 0])
            assert len(np.unique(ts.local.carry.age)) > 1
        host.close()


def test_overlapping_update_uses_the_policy_that_acted(tiny, key):
    """`overlap="update"`: the first rollout is learned from exactly; later ones by log-probs of the
    policy one update older.
    """
    modules = twins(tiny, "ppo", learning_rate=0.05)
    _, exact = programs(modules)
    _, overlapped = programs(modules, overlap="update")
    one = dataclasses.replace(modules[1])
    agent = one.agent
    state = first_rollout(overlapped.parts, overlapped.init(key))
    ts, rollout, behaviour = state.ts, state.rollout, state.behaviour
    ts_exact = exact.init(key)
    exact_state = exact.parts.collect(ts_exact, ts_exact.learner.policy)
    ts_exact = exact_state.ts
    assert exact_state.behaviour is None
    assert_equal(rollout, exact_state.rollout)

    moved = jax.tree.map(lambda x: x + 0.1, ts_exact.learner.params)
    learner = ts_exact.learner.replace(params=moved)
    builder = one.algorithm.batch_builder
    _, by_old, _ = builder.ingest(agent, learner, (), rollout, None, behaviour)
    _, by_new, _ = builder.ingest(agent, learner, (), rollout)
    _, original, _ = builder.ingest(agent, ts_exact.learner, (), rollout)
    np.testing.assert_allclose(by_old.log_prob, original.log_prob, rtol=1e-6)
    assert not np.allclose(by_new.log_prob, original.log_prob)
    np.testing.assert_array_equal(by_old.value, by_new.value)

    before = jax.tree.map(np.asarray, ts.learner.params)
    ts, (metrics, _) = overlapped.outer(overlapped.init(key))
    assert metrics["sum/skipped_updates"] == 0 and metrics["loss"].shape == ()
    assert not all(
        np.array_equal(a, b)
        for a, b in zip(*map(jax.tree.leaves, (before, ts.learner.params)), strict=True)
    )
    assert ts.learner.env_steps.to_int() == 2 * 8 * 3


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ppo", {"learning_rate": 0.05}),
        in_full(("dqn", SINGLE_STEPS)),
        in_full(("sac", SINGLE_STEPS)),
    ],
)
def test_overlap_is_the_same_steps_in_another_order(tiny, key, name, settings):
    """Three overlapped iterations equal their parts one after the other, with rollouts as with
    single steps off policy.

    Rollouts 0 and 1 are the first policy's, rollout 2 is the second's, each learned from with the
    policy that collected it.
    """
    modules = twins(tiny, name, **settings)
    overlapped, reference = (
        HostProgram(modules[1], compiler=Compiler(1), num_iterations=3, overlap="update")
        for _ in range(2)
    )
    ended, _ = overlapped.outer(overlapped.init(key))

    collector, functions = reference.collector, reference.functions

    def rollout_by(policy, ts, keys):
        ts, rollout = collector.collect(ts, policy, keys, functions.act)
        return LoopState(ts=ts, rollout=rollout, behaviour=policy)

    ts = reference.init(key)
    ts, keys = collector.take_keys(ts)
    first = functions.copy_policy(ts.learner.policy)
    state = rollout_by(first, ts, keys)
    ts, keys = collector.take_keys(state.ts)
    ts, _ = reference.parts.update(state.replace(ts=ts))
    second = functions.copy_policy(ts.learner.policy)
    state = rollout_by(first, ts, keys)
    ts, keys = collector.take_keys(state.ts)
    ts, _ = reference.parts.update(state.replace(ts=ts))
    ts, _ = reference.parts.update(rollout_by(second, ts, keys))
    assert_equal(without_environments(ended), without_environments(ts))
