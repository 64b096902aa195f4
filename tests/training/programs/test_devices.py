"""Laws of programs on several devices: replicas agree, and what the mesh computes is what a mapped
axis does; on the host as in compiled environments.
"""

import algorithm_rows
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algorithm_rows import VARIANTS
from host_twins import keys_as_data, twin_envs
from tiers import by_default

from rlkit.algorithms.replay_buffer import UniformReplay
from rlkit.errors import CheckpointError
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.compile.devices import DATA, Devices, devices_of_run
from rlkit.training.core.module import RLModule, outer_iteration
from rlkit.training.programs.host_program import HostProgram
from rlkit.training.programs.jittable_program import DeviceProgram
from rlkit.training.programs.redivided import redivided
from rlkit.training.programs.shares import share_of
from rlkit.types import TrainState

D, NUM_ENVS, NUM_ITERATIONS = 2, 4, 2
SETTINGS = algorithm_rows.NORMALIZED | {"priority_exponent": 0.6, "capacity": 120}
NAMES = [*algorithm_rows.NAMES, *VARIANTS]


def module_of(name, num_envs=NUM_ENVS, env=None, **settings):
    env = twin_envs(name, num_envs)[0] if env is None else env
    config = algorithm_rows.entry(name).config
    known = algorithm_rows.known(config, SETTINGS | settings)
    return RLModule(
        env=env,
        agent=algorithm_rows.agent_of(name, env),
        algorithm=algorithm_rows.algorithm_of(name, **known),
        total_steps=1000.0,
    )


def devices(num_seeds=1, shard="data"):
    return devices_of_run(D, shard, num_seeds=num_seeds)


def program_of(module, num_seeds=1, where=None):
    compiler = Compiler(num_seeds, devices=where)
    return DeviceProgram(module, compiler=compiler, num_iterations=NUM_ITERATIONS)


def sharded(tree):
    """The arrays of a tree, keys as their data."""
    keys = jax.dtypes.prng_key
    return jax.tree.map(
        lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, keys) else x, tree
    )


def parts_of(x):
    """What each device has of an array, by the place of the part in the whole."""
    parts = {}
    for shard in x.addressable_shards:
        parts.setdefault(str(shard.index), []).append(np.asarray(shard.data))
    return parts


def assert_replicas_equal(tree):
    """Where several devices have the same part of an array, it is bitwise the same."""
    for path, x in jax.tree.leaves_with_path(sharded(tree)):
        for part in parts_of(x).values():
            for other in part[1:]:
                name = jax.tree_util.keystr(path)
                np.testing.assert_array_equal(part[0], other, err_msg=name, strict=True)


def assert_close(one, other, **tolerance):
    def compare(a, b):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), **tolerance)

    jax.tree.map(compare, keys_as_data(one), keys_as_data(other))


@pytest.mark.parametrize("name", by_default(["ppo"], NAMES))
def test_devices_compute_what_a_mapped_axis_does(name):
    """`shard_map` over a mesh is `vmap` over an axis of that name, which is easier to understand;
    the learners of all devices are equal, and environment steps are those of all.
    """
    module = module_of(name)
    program, key = program_of(module, where=devices()), jax.random.key(3)
    ts = program.init(key)
    assert_replicas_equal(ts.learner)
    ts, (metrics, counters) = program.outer(ts)
    assert_replicas_equal((ts.learner, metrics))

    share = share_of(module, devices())

    def on_device(key):
        ts, metrics = outer_iteration(share, share.begin(key)[0], NUM_ITERATIONS)
        return ts, metrics

    mapped = jax.vmap(on_device, in_axes=None, out_axes=0, axis_name=DATA, axis_size=D)
    expected, expected_metrics = jax.jit(mapped)(key)
    first = jax.tree.map(lambda x: x[0], (expected.learner, expected_metrics))
    tolerance = {"rtol": 1e-4, "atol": 1e-5}
    assert_close((ts.learner, metrics), first, **tolerance)
    for own in ("obs", "carry", "memory", "episodes", "key"):
        assert_close(getattr(ts.local, own), getattr(expected.local, own), **tolerance)
    collector = module.algorithm.collector
    rollouts = NUM_ITERATIONS + module.algorithm.prefill_collects(module.env)
    steps = rollouts * collector.num_steps * NUM_ENVS
    assert counters[0].to_int() == ts.learner.env_steps.to_int() == steps
    keys = jax.random.key_data(ts.local.key)
    assert keys.shape[0] == D and (keys[0] != keys[1]).any()


@pytest.mark.full
@pytest.mark.parametrize("name", algorithm_rows.NAMES)
def test_devices_with_shares_of_the_seeds_train_each_as_one_device_does(name):
    module, num_seeds = module_of(name), 2 * D
    one, several = (program_of(module, num_seeds, where) for where in (None, devices(4, "seeds")))
    keys = Compiler(num_seeds).keys(0)
    expected, found = one.outer(one.init(keys))[0], several.outer(several.init(keys))[0]
    assert all(len(parts_of(x)) == D for x in jax.tree.leaves(sharded(found)))
    assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_seeds", [1, 2])
def test_host_equals_jitted_on_devices(name, num_seeds):
    """Devices act in blocks of the environments in their order, and learn from what these did."""
    jitted, hosted = (module_of(name, env=env) for env in twin_envs(name, NUM_ENVS))
    where, keys = devices(num_seeds), Compiler(num_seeds).keys(2)
    compiler = Compiler(num_seeds, devices=where)
    host = HostProgram(hosted, compiler=compiler, num_iterations=NUM_ITERATIONS, overlap="none")
    program = program_of(jitted, num_seeds, where)
    try:
        on_host, on_device = host.init(keys), program.init(keys)
        for _ in range(2):
            assert_close(on_host.learner, on_device.learner, rtol=1e-4, atol=1e-5)
            for name in ("memory", "episodes", "key"):
                one, other = (getattr(ts.local, name) for ts in (on_host, on_device))
                assert_close(one, other, rtol=1e-5, atol=1e-6)
            rows = jax.tree.map(
                lambda x: np.asarray(x).reshape(
                    *x.shape[: num_seeds - 1], -1, *x.shape[num_seeds + 1 :]
                ),
                on_device.local.obs,
            )
            assert_close(on_host.local.obs, rows)
            (on_host, _), (on_device, _) = host.outer(on_host), program.outer(on_device)
        assert_replicas_equal(on_host.learner)
        shape = host.state_shape(keys)
        assert jax.tree.map(jnp.shape, shape) == jax.tree.map(jnp.shape, on_host)
    finally:
        host.close()


# Other devices


def on_devices(module, count, num_seeds=1):
    where = None if count == 1 else Devices.imagined(count)
    compiler = Compiler(num_seeds, devices=where)
    program = DeviceProgram(module, compiler=compiler, num_iterations=1)
    return program.state_shape(compiler.keys(0))


def moved(module, ts, old, new, num_seeds=1):
    return redivided(
        ts,
        shape=on_devices(module, new, num_seeds),
        devices=(old, new),
        buffer=module.algorithm.replay_buffer,
        has_seeds=num_seeds > 1,
    )


def whole(ts, count):
    """Transitions and priorities of all environments, [C, N, ...]; episodes and observations."""
    local = ts.local if count > 1 else jax.tree.map(lambda x: x[None], ts.local)
    ring = getattr(local.memory, "ring", local.memory)
    found = [jnp.concatenate(list(x)) for x in jax.tree.leaves((local.obs, local.episodes))]
    if jax.tree.leaves(ring):
        found.append(jnp.concatenate(list(ring.words), axis=1))
        rows, envs = ring.words.shape[1:3]
        leaves = local.memory.tree.leaves[:, : rows * envs].reshape(count, rows, envs)
        found.append(jnp.concatenate(list(leaves), axis=1))
    return found


@pytest.mark.parametrize("name", by_default(["dqn"], NAMES))
def test_a_state_moves_to_other_devices(name):
    """From 2 to 1, 4 and 2: every environment keeps its episode, its transitions and their
    priorities; the learner is the same. Only keys are new.
    """
    module = module_of(name, num_envs=8)
    program = program_of(module, where=devices())
    ts, _ = program.outer(program.init(jax.random.key(5)))
    before = whole(ts, D)
    at, found = D, ts
    for count in (1, 4, D):
        found = moved(module, found, at, count)
        shape = on_devices(module, count)
        assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, shape)
        for x, y in zip(whole(found, count), before, strict=True):
            np.testing.assert_array_equal(x, y)
        at = count
    jax.tree.map(np.testing.assert_array_equal, found.learner, ts.learner)
    keys = [jax.random.key_data(x.local.key) for x in (ts, found)]
    assert len(np.unique(np.concatenate(keys), axis=0)) == 2 * D
    if hasattr(found.local.memory, "tree"):  # sums were computed anew
        for tree, own in zip(
            found.local.memory.tree.levels, ts.local.memory.tree.levels, strict=True
        ):
            np.testing.assert_array_equal(tree, own)
    program.outer(found)


def test_a_memory_of_one_s_own_says_that_it_cannot_move():
    class Own:
        capacity, batch_size, n_step = 8, 4, 1

    module = module_of("dqn", priority_exponent=None)
    assert isinstance(module.algorithm.replay_buffer, UniformReplay)
    ts = program_of(module).init(jax.random.key(0))
    with pytest.raises(CheckpointError, match="Own cannot be divided"):
        redivided(
            TrainState(learner=ts.learner, local=ts.local),
            shape=on_devices(module, 2),
            devices=(1, 2),
            buffer=Own(),
            has_seeds=False,
        )
