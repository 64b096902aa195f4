"""Groups of seeds at the same time: as many as there are cores, equal to all seeds in one
program.
"""

import threading
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import in_full

from rlkit.training.compile import parallel_seeds as seed_groups
from rlkit.training.compile.aot_compile import Compiled, Compiler
from rlkit.training.compile.parallel_seeds import ParallelSeeds, num_groups

pytestmark = pytest.mark.usefixtures("tuned")


@pytest.mark.parametrize(
    ("num_seeds", "cores", "groups"),
    [
        (1, 8, 1),
        (2, 1, 1),
        (2, 2, 2),
        (5, 2, 2),
        (5, 4, 3),
        (6, 4, 3),
        (16, 2, 2),
        (16, 64, 16),
        (64, 16, 16),
    ],
)
def test_as_many_groups_of_equal_size_as_there_are_cores(monkeypatch, num_seeds, cores, groups):
    monkeypatch.setattr(seed_groups, "cores", lambda: cores)
    assert num_groups(num_seeds) == groups


def test_replay_memories_that_take_much_stay_where_they_are(monkeypatch):
    """Parting and joining them takes as much again."""
    monkeypatch.setattr(seed_groups, "cores", lambda: 2)
    assert num_groups(4, replay_bytes=25, memory=100) == 2
    assert num_groups(4, replay_bytes=26, memory=100) == 1
    assert num_groups(4, replay_bytes=26, memory=None) == 2


def test_one_program_on_other_devices_and_on_one_thread(monkeypatch):
    monkeypatch.setenv("NPROC", "3")
    assert num_groups(6) == 3
    monkeypatch.setenv("NPROC", "1")
    assert num_groups(6) == 1
    monkeypatch.setenv("NPROC", "3")
    monkeypatch.setenv("RLKIT_CPU_TUNING", "no-parallel-seeds")
    assert num_groups(6) == 1
    monkeypatch.setenv("RLKIT_CPU_TUNING", "on")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert num_groups(6) == 1


@pytest.mark.parametrize(("num_seeds", "groups"), [(2, 2), (3, 2), (4, 2), (5, 3), (7, 4)])
def test_results_are_in_the_order_of_the_seeds(num_seeds, groups):
    """Also where the last groups overlap; keys are typed."""
    compiler = Compiler(num_seeds, groups)
    square = compiler.parallel_seeds(
        lambda tree: {"square": tree["x"] ** 2, "key": jax.random.fold_in(tree["key"], 1)}
    )
    assert isinstance(square, ParallelSeeds)
    x = jnp.arange(num_seeds, dtype=jnp.float32)
    keys = compiler.keys(0)
    found = square({"x": x, "key": keys})
    np.testing.assert_array_equal(found["square"], np.arange(num_seeds) ** 2)
    expected = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)
    np.testing.assert_array_equal(jax.random.key_data(found["key"]), jax.random.key_data(expected))
    assert compiler.count == 3  # parting, the function, joining
    square({"x": x, "key": keys})
    assert compiler.count == 3


def test_the_argument_is_taken_over_only_where_asked():
    kept, taken = jnp.zeros(4), jnp.zeros(4)
    Compiler(4, 2).parallel_seeds(lambda x: x + 1)(kept)
    Compiler(4, 2).parallel_seeds(lambda x: x + 1, donate=True)(taken)
    assert not kept.is_deleted()
    assert taken.is_deleted()


def test_groups_run_at_the_same_time():
    """Each waits until the other has begun."""
    both = threading.Barrier(2)

    def wait(x):
        both.wait(timeout=60)
        return x

    def function(x):
        return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    compiler = Compiler(2, 2)
    # No `vmap`, which would call back for one seed after the other; a group is a seed here.
    together = ParallelSeeds(
        partial(Compiled, compiler),
        function,
        compiler._group_threads,
        num_seeds=2,
        groups=2,
        donate=False,
    )
    np.testing.assert_array_equal(together(jnp.arange(2.0)), [0, 1])


def test_what_does_not_compile_leaves_its_argument_alone():
    kept = jnp.zeros(4)
    with pytest.raises(TypeError, match="no number"):
        Compiler(4, 2).parallel_seeds(lambda x: fail("no number"), donate=True)(kept)
    assert not kept.is_deleted()


def fail(text):
    raise TypeError(text)


def test_closing_ends_the_threads_and_what_is_called_later_starts_them_anew():
    def alive():
        return [thread for thread in threading.enumerate() if thread.name.startswith("seeds-")]

    compiler, before = Compiler(4, 2), len(alive())
    double = compiler.parallel_seeds(lambda x: 2 * x)
    np.testing.assert_array_equal(double(jnp.arange(4.0)), [0, 2, 4, 6])
    threads = alive()
    assert len(threads) == before + 2
    compiler.close()
    for thread in threads[before:]:
        thread.join(timeout=60)
    assert len(alive()) == before
    np.testing.assert_array_equal(double(jnp.arange(4.0)), [0, 2, 4, 6])
    compiler.close()


@pytest.mark.parametrize("text", ["0", "-1", "many", ""])
def test_a_number_of_threads_that_is_none_does_not_count(monkeypatch, text):
    monkeypatch.delenv("NPROC", raising=False)
    expected = seed_groups.cores()
    monkeypatch.setenv("NPROC", text)
    assert seed_groups.cores() == expected >= 1


def test_one_group_is_the_plain_function():
    assert isinstance(Compiler(4).parallel_seeds(lambda x: x), Compiled)


@pytest.mark.parametrize("algorithm", ["ppo", in_full("dqn")])
@pytest.mark.full
def test_groups_train_as_one_program_does(tiny, monkeypatch, algorithm):
    """Parameters to rounding, for products of other sizes are added up in another order; keys and
    counters exactly.
    """
    states, metrics, evaluations = [], [], []
    for cores in (1, 2):
        monkeypatch.setattr(seed_groups, "cores", lambda cores=cores: cores)
        trainer = tiny.trainer(algorithm=algorithm, num_seeds=3, share=False)
        assert trainer.compiler.groups == cores
        trainer.init(0)
        metrics.append([trainer.train_epoch(), trainer.train_step()])
        states.append(
            jax.device_get((trainer.state.learner, jax.random.key_data(trainer.state.local.key)))
        )
        evaluations.append(trainer.evaluate())
        trainer.close()
    for found in (states, metrics, evaluations):
        assert jax.tree.structure(found[0]) == jax.tree.structure(found[1])
        assert jax.tree.leaves(found[0])
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *found)


@pytest.mark.parametrize("algorithm", ["ppo", in_full("dqn"), in_full("sac")])
@pytest.mark.full
def test_seeds_of_a_deterministic_run_are_the_single_runs_to_the_bit(tiny, monkeypatch, algorithm):
    monkeypatch.setenv("NPROC", "1")

    def trained(seed, **settings):
        settings |= {"deterministic": True, "share": False, "max_evaluation_steps": 8}
        env = "probe/ContinuousAction" if algorithm == "sac" else None
        with tiny.trainer(algorithm=algorithm, env=env, **settings) as trainer:
            trainer.init(seed)
            metrics = [trainer.train_epoch(), trainer.train_epoch(), trainer.train_step()]
            local = trainer.state.local
            state = trainer.state.replace(local=local.replace(key=jax.random.key_data(local.key)))
            return jax.device_get((state, metrics, trainer.evaluate()))

    together = trained(5, num_seeds=3)
    for index in range(3):
        alone = trained(5 + index)
        jax.tree.map(
            lambda a, b, index=index: np.testing.assert_array_equal(a[index], b), together, alone
        )
