"""From a loss to new parameters: forms of losses, any optimiser, parameter groups, steps that must
not be taken.
"""

import functools
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend.core import jaxprs_in_params
from jax.sharding import AxisType, PartitionSpec
from tiers import by_default

from rlkit.algorithms.batch_builder import Plan
from rlkit.algorithms.configs import PPOConfig
from rlkit.algorithms.gradient_step import GradientStep
from rlkit.algorithms.loss_output import split_loss
from rlkit.algorithms.ppo import ppo
from rlkit.algorithms.target_update import TargetUpdate
from rlkit.algorithms.update_loop import UpdateLoop
from rlkit.algorithms.updaters import Updater
from rlkit.errors import ConfigError
from rlkit.ops.counters import StepCounter
from rlkit.optimizers import OptimizerConfig, create_optimizer, elementwise, small_arrays
from rlkit.types import LearnerState
from rlkit.xla_cpu.packing import LONGEST_SMALL, NO_PACKING, Packing

PARAMS = {"a": jnp.array([1.0, 2.0]), "b": jnp.array([3.0])}


def learner_for(updater, params=PARAMS, env_steps=0, updates=0):
    opt_state, target_params = updater.init(params)
    return LearnerState(
        params=params,
        target_params=target_params,
        opt_state=opt_state,
        obs_stats=None,
        reward_stats=None,
        env_steps=StepCounter.create(env_steps),
        updates=StepCounter.create(updates),
        total_steps=jnp.float32(100.0),
    )


def quadratic(agent, params, target_params, batch, key):
    return 0.5 * sum(jnp.square(x).sum() for x in jax.tree.leaves(params)) * batch


def updater_of(loss=quadratic, optimizer=None, **rest):
    return Updater(steps=(GradientStep(loss=loss, optimizer=optimizer or optax.sgd(0.1), **rest),))


@functools.partial(jax.jit, static_argnames="updater")
def compiled_step(updater, learner, batch):
    return updater.step(None, learner, batch, jax.random.key(0))[:2]


def step(updater, learner=None, batch=1.0):
    return compiled_step(updater, learner or learner_for(updater), jnp.float32(batch))


@pytest.mark.parametrize(
    ("form", "extra"),
    [
        (lambda x: x, set()),
        (lambda x: (x, {"size": x}), {"size"}),
        (lambda x: {"loss": x, "size": x, "other": 1.0}, {"size", "other"}),
    ],
)
def test_forms_of_losses(form, extra):
    learner, metrics = step(updater_of(lambda *args: form(quadratic(*args))))
    np.testing.assert_allclose(learner.params["a"], [0.9, 1.8], rtol=1e-6)
    np.testing.assert_allclose(metrics["loss"], 7.0)
    np.testing.assert_allclose(metrics["grad_norm"], np.sqrt(14.0), rtol=1e-6)
    assert set(metrics) == {"loss", "grad_norm", "sum/skipped_updates"} | extra
    assert learner.updates.to_int() == 1


@pytest.mark.fast
@pytest.mark.parametrize(
    ("output", "wanted"),
    [
        (None, "returned None; return a scalar"),
        ("loss", "returned 'loss'; return a scalar"),
        ((1.0,), "tuple of 1"),
        ((1.0, 2.0), "tuple of 2"),
        ((1.0, {}, 3), "tuple of 3"),
        ({"value": 1.0}, 'under "loss"'),
        ({"loss": None}, "returned None"),
        (jnp.ones(3), r"shape \(3,\); reduce it to a scalar"),
        ((jnp.ones((2, 1)), {}), r"shape \(2, 1\)"),
        (jnp.int32(3), "scalar of int32, which has no gradient"),
        ((1.0, {"nested": {"error": 1.0}}), "metric 'nested' as a dict; return numbers or arrays"),
    ],
)
def test_other_forms_are_refused(output, wanted):
    with pytest.raises(ConfigError, match=wanted):
        split_loss(output)


@pytest.mark.parametrize(
    ("output", "wanted"),
    [
        ((1.0, {"error": jnp.array([1.0, 4.0])}), {"error": 2.5}),
        ({"loss": 1.0, "is_right": np.array([[True], [False]])}, {"is_right": 0.5}),
        ((1.0, jnp.array([1, 2])), {"auxiliary": 1.5}),
        ((1.0, {"td_error": jnp.array([1.0, 2.0])}), {"td_error": [1.0, 2.0]}),
    ],
)
def test_arrays_beside_the_scalar_are_averaged(output, wanted):
    loss, metrics = split_loss(output)
    assert loss == 1.0 and {name: np.asarray(x).tolist() for name, x in metrics.items()} == wanted


def test_a_bad_form_surfaces_through_grad():
    with pytest.raises(ConfigError, match="reduce it to a scalar"):
        step(updater_of(lambda agent, params, *rest: params["a"]))


OPTIMIZERS = {
    "adamw": (optax.adamw(0.01), None),
    "injected": (optax.inject_hyperparams(optax.adam)(learning_rate=0.01), 0.01),
    "chain": (optax.chain(optax.clip_by_global_norm(1.0), optax.lion(0.01)), None),
    "schedule": (optax.adam(optax.linear_schedule(0.1, 0.0, 10)), None),
    "multi_steps": (optax.MultiSteps(optax.sgd(0.1), every_k_schedule=2), None),
    "plateau": (optax.chain(optax.sgd(0.1), optax.contrib.reduce_on_plateau()), None),
    "polyak": (optax.polyak_sgd(0.1), None),
    "if_finite": (optax.apply_if_finite(optax.sgd(0.1), 3), None),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_optax_transformation_passes(name):
    optimizer, rate = OPTIMIZERS[name]
    updater = updater_of(optimizer=optimizer)

    @jax.jit
    def four_steps(learner):
        return jax.lax.scan(lambda learner, _: step(updater, learner), learner, length=4)

    learner, metrics = four_steps(learner_for(updater))
    assert float(metrics["loss"][-1]) < float(metrics["loss"][0])
    assert ("learning_rate" in metrics) == (rate is not None)
    if rate is not None:
        np.testing.assert_allclose(metrics["learning_rate"], rate)
    assert learner.updates.to_int() == 4


def poison(gradients):
    return jax.tree.map(lambda g: g / 0.0, gradients)


@pytest.mark.parametrize("batch", [jnp.nan, jnp.inf, 1.0])
def test_a_step_that_is_not_finite_changes_nothing_and_is_counted(batch):
    """By its loss, or (where the loss is fine) by what `process_gradients` makes of its
    gradient.
    """
    rest = {} if not np.isfinite(batch) else {"process_gradients": poison}
    updater = updater_of(optimizer=optax.adam(0.1), **rest)
    before = learner_for(updater)
    after, metrics = step(updater, before, batch)
    jax.tree.map(
        np.testing.assert_array_equal,
        (after.params, after.opt_state),
        (before.params, before.opt_state),
    )
    assert float(metrics["sum/skipped_updates"]) == 1.0
    good = updater_of(optimizer=optax.adam(0.1))
    again, metrics = step(good, after, 1.0)
    assert float(metrics["sum/skipped_updates"]) == 0.0
    # As if the bad one had not been.
    jax.tree.map(np.testing.assert_array_equal, again.params, step(good)[0].params)


def group_loss(name):
    def loss(agent, params, target_params, batch, key):
        other = params["b" if name == "a" else "a"]
        return jnp.sum(params[name]) * jnp.sum(other) * batch, {f"{name}_saw": jnp.sum(other)}

    return loss


def groups(*, first=None, **settings):
    return Updater(
        steps=(
            GradientStep(loss=first or group_loss("a"), optimizer=optax.sgd(0.1), group="a"),
            GradientStep(
                loss=group_loss("b"),
                optimizer=optax.inject_hyperparams(optax.sgd)(learning_rate=0.5),
                group="b",
            ),
        ),
        **settings,
    )


def test_groups_in_order_each_sees_what_the_earlier_left():
    """a ← a - 0.1·3 = [0.7, 1.7]; then b ← 3 - 0.5·(0.7 + 1.7) = 1.8. With the old a it would be
    1.5.
    """
    learner, metrics = step(groups())
    np.testing.assert_allclose(learner.params["a"], [0.7, 1.7], rtol=1e-6)
    np.testing.assert_allclose(learner.params["b"], [1.8], rtol=1e-6)
    np.testing.assert_allclose((metrics["a_saw"], metrics["b_saw"]), (3.0, 2.4), rtol=1e-6)
    assert {"a_loss", "b_loss", "a_grad_norm", "b_grad_norm", "b_learning_rate"} <= set(metrics)
    assert learner.updates.to_int() == 1
    assert jax.tree.structure(learner.opt_state) == jax.tree.structure(
        learner_for(groups()).opt_state
    )


def test_simultaneous_steps_see_the_parameters_from_before():
    """b ← 3 - 0.5·(1 + 2) = 1.5, and its targets follow it: half the way from 3."""
    updater = groups(simultaneous=True, target=TargetUpdate(groups=("b",), tau=0.5))
    learner, metrics = step(updater)
    np.testing.assert_allclose(learner.params["a"], [0.7, 1.7], rtol=1e-6)
    np.testing.assert_allclose(learner.params["b"], [1.5], rtol=1e-6)
    np.testing.assert_allclose(learner.target_params["b"], [2.25], rtol=1e-6)
    np.testing.assert_allclose((metrics["a_saw"], metrics["b_saw"]), (3.0, 3.0), rtol=1e-6)
    assert learner.updates.to_int() == 1


@pytest.mark.fast
@pytest.mark.parametrize("second", ["a", None, ("b", "a")])
def test_simultaneous_steps_share_no_parameters(second):
    steps = tuple(
        GradientStep(loss=quadratic, optimizer=optax.sgd(0.1), group=group)
        for group in ("a", second)
    )
    with pytest.raises(
        ConfigError,
        match=r"simultaneous steps share parameters: .* give each step its own groups",
    ):
        Updater(steps=steps, simultaneous=True)
    assert len(Updater(steps=steps).steps) == 2
    assert Updater(steps=steps[1:], simultaneous=True).simultaneous


@pytest.mark.fast
@pytest.mark.parametrize(
    "updater",
    [
        updater_of(group="c"),
        updater_of(group=("a", "c")),
        Updater(steps=(), target=TargetUpdate(groups=("c",))),
    ],
)
def test_groups_that_the_agent_does_not_have_are_refused(updater):
    wanted = "name the parameters 'c', which the agent does not have; choose one of a, b"
    with pytest.raises(ConfigError, match=wanted):
        updater.init(PARAMS)


def test_several_groups_may_be_a_list():
    updater = Updater(
        steps=(GradientStep(loss=quadratic, optimizer=optax.sgd(0.1), group=["b", "a"]),),
        target=TargetUpdate(groups=["b"]),
        simultaneous=True,
    )
    learner, metrics = updater.step(None, learner_for(updater), 1.0, jax.random.key(0))[:2]
    np.testing.assert_allclose(learner.params["a"], [0.9, 1.8], rtol=1e-6)
    assert {"b_loss", "b_grad_norm"} <= set(metrics) and set(learner.target_params) == {"b"}


@pytest.mark.parametrize("simultaneous", [False, True])
def test_a_skipped_step_of_one_group_is_counted_and_the_others_go_on(simultaneous):
    def bad(agent, params, target_params, batch, key):
        return jnp.sum(params["a"]) * jnp.nan

    learner, metrics = step(groups(first=bad, simultaneous=simultaneous))
    assert float(metrics["sum/skipped_updates"]) == 1.0
    np.testing.assert_array_equal(learner.params["a"], PARAMS["a"])
    np.testing.assert_allclose(learner.params["b"], [3.0 - 0.5 * 3.0], rtol=1e-6)


def test_process_gradients_runs_before_the_optimiser():
    learner, metrics = step(
        updater_of(process_gradients=lambda g: jax.tree.map(lambda x: 2 * x, g))
    )
    np.testing.assert_allclose(learner.params["a"], [0.8, 1.6], rtol=1e-6)
    np.testing.assert_allclose(metrics["grad_norm"], np.sqrt(14.0), rtol=1e-6)  # of the loss itself


def test_every_loss_gets_its_own_key():
    def noisy(agent, params, target_params, batch, key):
        return jnp.sum(params["a"]) * jax.random.normal(key), {}

    updater = Updater(
        steps=tuple(GradientStep(loss=noisy, optimizer=optax.sgd(1.0), group=g) for g in ("a", "b"))
    )
    _, metrics = step(updater)
    assert float(metrics["a_loss"]) != float(metrics["b_loss"])


def test_devices_average_gradients_and_metrics():
    def loss(agent, params, target_params, batch, key):
        return (params["a"] * batch).sum(), {"seen": batch.mean()}

    updater = updater_of(loss)
    on_devices = jax.vmap(
        lambda b: updater.step(None, learner_for(updater), b, jax.random.key(0), "d"), axis_name="d"
    )
    learner, metrics, _ = jax.jit(on_devices)(np.array([1.0, 3.0]))
    np.testing.assert_allclose(learner.params["a"], [[0.8, 1.8]] * 2, rtol=1e-6)
    np.testing.assert_array_equal(metrics["seen"], [2.0, 2.0])


def test_lbfgs_gets_what_its_line_search_needs():
    updater = updater_of(optimizer=optax.lbfgs())

    @jax.jit
    def six_steps(learner):
        return jax.lax.scan(lambda learner, _: step(updater, learner, 4.0), learner, length=6)

    _, metrics = six_steps(learner_for(updater))
    assert float(metrics["loss"][0]) == 28.0
    assert float(metrics["loss"][-1]) < 1e-6


def test_lbfgs_in_a_group_and_over_devices_searches_the_common_loss():
    def loss(agent, params, target_params, batch, key):
        return jnp.square(params["a"] - batch * params["b"]).sum()

    updater = updater_of(loss, optimizer=optax.lbfgs(), group="a")
    on_devices = jax.vmap(
        lambda b: updater.step(None, learner_for(updater), b, jax.random.key(0), "d")[0],
        axis_name="d",
    )
    learner = jax.jit(on_devices)(np.array([1.0, 3.0]))
    joined = updater_of(
        lambda *args: (loss(*args[:3], 1.0, None) + loss(*args[:3], 3.0, None)) / 2,
        optax.lbfgs(),
        group="a",
    )
    np.testing.assert_allclose(learner.params["a"], [step(joined)[0].params["a"]] * 2, rtol=1e-5)
    np.testing.assert_array_equal(learner.params["b"], [PARAMS["b"]] * 2)


@pytest.mark.full
def test_one_update_of_ppo_with_lbfgs(make_env, make_agent, one_iteration, key):
    env = make_env()
    algorithm = ppo(
        PPOConfig(num_steps=8, num_epochs=1, num_minibatches=1), optimizer=optax.lbfgs()
    )
    before, _, _, learner, metrics = one_iteration(algorithm, make_agent(env), env, key)
    moved = jax.tree.map(
        lambda x, y: np.abs(np.subtract(x, y)).max(), learner.params, before.learner.params
    )
    assert max(jax.tree.leaves(moved)) > 1e-4 and np.isfinite(metrics["loss"])
    assert float(metrics["sum/skipped_updates"]) == 0.0


# Steps and targets that are not due in every update


def noisy_loss(name):
    """Its gradient is its key's number, and it reports one of its own metrics as an integer."""

    def loss(agent, params, target_params, batch, key):
        return jnp.sum(params[name]) * jax.random.normal(key) * batch, {f"{name}_size": 2}

    return loss


def delayed(a_every=1, b_every=2, target_every=2, optimizer=None, simultaneous=False):
    optimizer = optimizer or create_optimizer(OptimizerConfig(optimizer="adam", learning_rate=0.1))
    steps = tuple(
        GradientStep(loss=noisy_loss(name), optimizer=optimizer, group=name, every=every)
        for name, every in (("a", a_every), ("b", b_every))
    )
    return Updater(
        steps=steps, target=TargetUpdate(tau=0.5, every=target_every), simultaneous=simultaneous
    )


def run(updater, learner, keys, batch=1.0, axis_name=None):
    """Learner and metrics after each update, [U, ...]."""

    def update(learner, key):
        learner, metrics, _ = updater.step(None, learner, jnp.float32(batch), key, axis_name)
        return learner, (learner, metrics)

    return jax.lax.scan(update, learner, keys)[1]


def moved(tree):
    """Whether anything in `tree` [U, ...] is other than in the row before; the first row is the
    start.
    """
    leaves = [np.asarray(x).reshape(len(x), -1) for x in jax.tree.leaves(tree)]
    return [any((x[i] != x[i - 1]).any() for x in leaves) for i in range(1, len(leaves[0]))]


@pytest.mark.parametrize(
    ("every", "start"),
    by_default(
        [(2, 0), (3, 2**32 - 3)],
        itertools.product([2, 3], [0, 1, 2, 2**32 - 3, 2**40 + 1]),
    ),
)
def test_a_delayed_step_is_taken_in_each_nth_update_of_the_run(key, start, every):
    """By the exact count, whatever it was when the program began; parameters, optimiser and targets
    rest in between.
    """
    updater = delayed(b_every=every, target_every=every)
    before = learner_for(updater, updates=start)
    learners, metrics = jax.jit(functools.partial(run, updater))(before, jax.random.split(key, 7))
    rows = jax.tree.map(
        lambda first, rest: np.concatenate([np.asarray(first)[None], rest]), before, learners
    )
    due = [count % every == 0 for count in range(start + 1, start + 8)]
    assert 2 <= sum(due) <= 4
    assert moved(rows.params["b"]) == moved(rows.opt_state[1]) == moved(rows.target_params) == due
    assert moved(rows.params["a"]) == moved(rows.opt_state[0]) == [True] * 7
    of_b = {name for name in metrics if name.startswith("b_")}
    assert of_b >= {"b_loss", "b_grad_norm", "b_size"}
    for name, values in metrics.items():
        assert (~np.isnan(values)).tolist() == (due if name in of_b else [True] * 7), name
    assert not np.asarray(metrics["sum/skipped_updates"]).any()
    assert jax.tree.map(lambda x: x[-1], rows.updates).to_int() == start + 7


def test_targets_move_after_the_steps_of_their_update(key):
    updater = delayed()
    learners, _ = run(updater, learner_for(updater), jax.random.split(key, 2))
    learners = jax.device_get(learners)
    for name, start in jax.device_get(PARAMS).items():
        np.testing.assert_array_equal(learners.target_params[name][0], start)
        np.testing.assert_allclose(
            learners.target_params[name][1], (start + learners.params[name][1]) / 2, rtol=1e-6
        )


def test_what_is_not_taken_draws_its_key_all_the_same(key):
    """The second update is the same whether or not the first one took the step."""
    keys, sgd = jax.random.split(key, 2), optax.sgd(0.1)
    (seldom, _), (often, _) = (
        jax.device_get(run(updater, learner_for(updater), keys))
        for updater in (delayed(optimizer=sgd), delayed(b_every=1, optimizer=sgd))
    )
    np.testing.assert_array_equal(seldom.params["a"], often.params["a"])
    change = often.params["b"][1] - often.params["b"][0]
    start = np.asarray(PARAMS["b"])
    np.testing.assert_allclose(seldom.params["b"][1] - start, change, rtol=1e-5)


def test_what_is_not_taken_is_not_computed(key):
    computed = []

    def counted(agent, params, target_params, batch, key):
        jax.debug.callback(lambda: computed.append(1))
        return jnp.sum(params["b"])

    updater = Updater(
        steps=(GradientStep(loss=counted, optimizer=optax.sgd(0.1), group="b", every=3),)
    )
    jax.block_until_ready(
        jax.jit(functools.partial(run, updater))(learner_for(updater), jax.random.split(key, 7))
    )
    jax.effects_barrier()
    assert len(computed) == 2


def test_a_loss_is_traced_once_however_seldom_it_is_due(key):
    traced = []

    def counted(agent, params, target_params, batch, key):
        traced.append(1)
        return jnp.sum(params["b"])

    updater = updater_of(counted, group="b", every=3)
    plan = Plan(batches=jnp.arange(4), is_due=jnp.arange(4) < 3)
    builder = SimpleNamespace(
        replay_buffer=None,
        draw=lambda *_: plan,
        gather=lambda dataset, row, axis_name: row,
    )
    loop = UpdateLoop(agent=None, batch_builder=builder, updater=updater, dataset=None)
    jax.make_jaxpr(loop.run)(learner_for(updater), (), key)
    assert len(traced) == 1


def test_seeds_at_different_counts_equal_a_loop(key):
    updater, keys = delayed(b_every=3), jax.random.split(key, 5)
    learners = [learner_for(updater, updates=start) for start in (0, 1, 2**32 - 2)]
    alone = jax.jit(lambda learner: run(updater, learner, keys))
    together = jax.device_get(
        jax.jit(jax.vmap(alone))(jax.tree.map(lambda *x: np.stack(x), *learners))
    )
    for i, learner in enumerate(learners):
        jax.tree.map(
            lambda x, y, i=i: np.testing.assert_allclose(x[i], y, rtol=1e-5),
            together,
            alone(learner),
        )


def test_losses_that_see_their_own_group_alone_are_the_same_in_simultaneous_steps(key):
    keys = jax.random.split(key, 5)
    found, wanted = (
        run(updater, learner_for(updater), keys)
        for updater in (delayed(simultaneous=True), delayed())
    )
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


@pytest.mark.parametrize(
    ("mapped", "simultaneous"),
    by_default([(False, True), (True, False)], itertools.product([False, True], repeat=2)),
)
def test_devices_agree_on_what_is_due(key, mapped, simultaneous):
    """On two devices (or mapped over two, a counter each) the steps that are due average their
    gradients.
    """
    updater, keys, batches = (
        delayed(
            optimizer=create_optimizer(OptimizerConfig(optimizer="sgd", learning_rate=0.1)),
            simultaneous=simultaneous,
        ),
        jax.random.split(key, 4),
        np.array([1.0, 3.0], np.float32),
    )

    def device(learner, batch):
        return run(updater, learner, keys, batch, "d")

    if mapped:
        learner = jax.tree.map(lambda x: np.stack([x, x]), learner_for(updater))
        found = jax.device_get(jax.jit(jax.vmap(device, axis_name="d"))(learner, batches))
        jax.tree.map(lambda x: np.testing.assert_array_equal(x[0], x[1]), found)
        found = jax.tree.map(lambda x: x[0], found)
    else:
        mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
        specs = {
            "in_specs": (PartitionSpec(), PartitionSpec("d")),
            "out_specs": PartitionSpec(),
            "check_vma": False,
        }
        shared = jax.shard_map(lambda learner, batch: device(learner, batch[0]), mesh=mesh, **specs)
        found = jax.jit(shared)(learner_for(updater), batches)
    wanted = run(updater, learner_for(updater), keys, 2.0)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), found, wanted)


@pytest.mark.parametrize("every", [0, -1, 1.0, True, None, 2**16 + 1])
def test_an_every_that_is_no_count_is_refused(every):
    for name, make in (
        (
            "GradientStep",
            lambda: GradientStep(loss=quadratic, optimizer=optax.sgd(0.1), every=every),
        ),
        ("TargetUpdate", lambda: TargetUpdate(every=every)),
    ):
        with pytest.raises(
            ConfigError,
            match=(
                rf"{name}\.every must be a whole number of updates from 1 to 65536,"
                rf" got {every}; use 1"
            ),
        ):
            make()


def test_targets_count_in_one_way():
    with pytest.raises(ConfigError, match="both period=5 and every=2; leave one out"):
        TargetUpdate(period=5, every=2)


# Optimisers that do not care which number is in which array


MIXED = {
    "a": {
        "w": jnp.asarray(np.linspace(-1.0, 1.0, 20_000).reshape(100, 200), jnp.float32),
        "b": jnp.array([0.0, 1.0, 2.0]),
        "log_std": jnp.float32(-0.5),
    },
    "c": {"w": jnp.asarray(np.linspace(0.0, 2.0, 12).reshape(3, 4), jnp.float32)},
}


@pytest.mark.parametrize(
    ("group", "name"),
    by_default(
        [(None, "adam"), ("a", "radam"), (("a", "c"), "rmsprop"), (None, "sgd")],
        itertools.product([None, "a", ("a", "c")], ["adam", "radam", "rmsprop", "sgd"]),
    ),
)
def test_packing_small_parameters_changes_no_result(monkeypatch, name, group):
    """Clipped by the global norm, so that the norm over all of them is at work too; against the
    optimiser as optax has it.
    """
    learners = []
    for pack in (small_arrays.pack_small_arrays, optax.with_extra_args_support):
        monkeypatch.setattr(small_arrays, "pack_small_arrays", pack)
        optimizer = create_optimizer(
            OptimizerConfig(
                optimizer=name,
                learning_rate=0.1,
                learning_rate_schedule="linear",
                max_grad_norm=0.5,
            )
        )
        updater = updater_of(
            optimizer=optimizer,
            group=group,
            process_gradients=lambda g: jax.tree.map(lambda x: 2 * x, g),
        )
        learner = learner_for(updater, MIXED)
        for batch in (1.0, 3.0, jnp.nan, 2.0):
            learner, metrics = step(updater, learner, batch)
        learners.append((learner, metrics))
    (packed, found), (plain, wanted) = learners
    assert jax.tree.structure(packed.params) == jax.tree.structure(MIXED)
    for tree, other in ((packed.params, plain.params), (found, wanted)):
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-6, atol=1e-7), tree, other
        )
    assert not np.array_equal(packed.params["a"]["w"], MIXED["a"]["w"])


def test_small_parameters_share_the_state_of_their_optimizer():
    updater = updater_of(
        optimizer=create_optimizer(OptimizerConfig(optimizer="adam", learning_rate=0.1))
    )
    moments = optax.tree_utils.tree_get(learner_for(updater, MIXED).opt_state, "mu")
    assert [x.shape for x in moments] == [(3 + 1 + 12,), (100, 200)]


def test_the_optimizers_of_users_get_the_parameters_as_they_are():
    """Masks and labels by name need the structure."""
    optimizer = optax.multi_transform(
        {"slow": optax.sgd(0.1), "fixed": optax.set_to_zero()}, {"a": "slow", "c": "fixed"}
    )
    learner, _ = step(
        updater_of(optimizer=optimizer), learner_for(updater_of(optimizer=optimizer), MIXED)
    )
    np.testing.assert_array_equal(learner.params["c"]["w"], MIXED["c"]["w"])
    np.testing.assert_allclose(
        learner.params["a"]["b"], 0.9 * np.asarray(MIXED["a"]["b"]), rtol=1e-6
    )


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adamw(0.1),
        pytest.param(optax.scale_by_adam(), marks=pytest.mark.full),
        pytest.param(optax.lion(0.1), marks=pytest.mark.full),
        optax.scale(-0.1),
    ],
)
def test_any_optimizer_can_be_marked(optimizer):
    """With extra arguments or without."""
    for group in (None, "a"):
        marked, plain = (
            updater_of(optimizer=o, group=group) for o in (elementwise(optimizer), optimizer)
        )
        (found, _), (wanted, _) = (
            step(updater, learner_for(updater, MIXED)) for updater in (marked, plain)
        )
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-6), found.params, wanted.params
        )


@pytest.mark.parametrize(
    "optimizer",
    [optax.sgd(0.1), create_optimizer(OptimizerConfig(optimizer="sgd", learning_rate=0.1))],
    ids=["plain", "elementwise"],
)
def test_processed_gradients_are_those_of_the_same_parameters(optimizer):
    def after(process):
        return step(updater_of(optimizer=optimizer, process_gradients=process))[0].params

    frozen = after(lambda g: {**g, "b": 0.0})
    np.testing.assert_array_equal(frozen["b"], PARAMS["b"])
    np.testing.assert_allclose(frozen["a"], 0.9 * np.asarray(PARAMS["a"]), rtol=1e-6)
    halved = after(lambda g: jax.tree.map(lambda x: x.astype(jnp.bfloat16), g))
    assert halved["a"].dtype == jnp.float32
    with pytest.raises(ConfigError, match="return the same structure"):
        after(lambda g: {"a": g["a"], "c": g["b"]})
    with pytest.raises(
        ConfigError, match=r"shape \(1,\) for the gradient of \['a'\]; return \(2,\), or a number"
    ):
        after(lambda g: {"a": g["b"], "b": g["a"]})


# The form in which parameters go through a loop of updates


ADAM = create_optimizer(OptimizerConfig(optimizer="adam", learning_rate=0.1, max_grad_norm=0.5))


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize(
    ("updater", "rows", "joins"),
    [
        (updater_of(optimizer=ADAM), 16, True),
        (updater_of(optimizer=ADAM), 2**10, False),  # 20,000 weights times that
        (updater_of(optimizer=optax.sgd(0.1)), 16, False),
        (updater_of(optimizer=ADAM, group="a"), 16, False),
        (delayed(optimizer=ADAM), 16, False),
    ],
    ids=["small", "large-batch", "unmarked", "group", "several-steps"],
)
def test_which_parameters_go_through_a_loop_as_a_vector(updater, rows, joins):
    def gather(dataset, plan, axis_name):
        return ["what a user adds", jnp.zeros((rows, 2))]

    loop = UpdateLoop(
        agent=None,
        batch_builder=SimpleNamespace(gather=gather, replay_buffer=None),
        updater=updater,
        dataset=None,
    )
    loop, packing = loop._packed(MIXED, Plan(batches=jnp.arange(2)), jax.random.key(0))
    assert all(step.packing is packing for step in loop.updater.steps)
    assert [x.shape for x in jax.tree.leaves(packing.pack(MIXED))] == (
        [(3 + 1 + 12,), (100, 200)] if joins else [x.shape for x in jax.tree.leaves(MIXED)]
    )


@pytest.mark.parametrize("batch", [1.0, jnp.nan])
def test_a_step_on_packed_parameters_is_the_same_step(batch):
    """Also where it is skipped, because it is not finite; and parameters of other types
    keep them.
    """
    params = MIXED | {"half": jnp.arange(5, dtype=jnp.bfloat16)}
    updaters = [
        updater_of(
            optimizer=ADAM,
            process_gradients=lambda g: jax.tree.map(lambda x: 2 * x, g),
            packing=packing,
        )
        for packing in (Packing(params, longest=LONGEST_SMALL), NO_PACKING)
    ]
    learner = learner_for(updaters[0], params)
    found, wanted = (
        jax.jit(updater.step, static_argnums=0)(
            None, learner, jnp.float32(batch), jax.random.key(0)
        )[0]
        for updater in updaters
    )
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    assert [x.dtype for x in jax.tree.leaves(found.params)] == [
        x.dtype for x in jax.tree.leaves(params)
    ]
    assert np.array_equal(found.params["a"]["w"], params["a"]["w"]) == bool(np.isnan(batch))


@pytest.mark.parametrize("is_packed", [True, False])
def test_packed_parameters_are_changed_as_a_vector(is_packed):
    packing = Packing(MIXED, longest=LONGEST_SMALL) if is_packed else NO_PACKING
    updater = updater_of(optimizer=ADAM, packing=packing, checks_update=False)
    learner = learner_for(updater, MIXED)
    jaxpr = jax.make_jaxpr(lambda x: updater.step(None, x, jnp.float32(1), jax.random.key(0))[0])(
        learner
    )
    chosen = [
        x.outvars[0].aval.shape for x in eqns_of(jaxpr.jaxpr) if x.primitive.name == "select_n"
    ]
    # Clipping, Adam's moments, and parameters where they are packed.
    assert chosen.count((16,)) == (4 if is_packed else 3)
    assert chosen.count((3, 4)) == (0 if is_packed else 1)


def eqns_of(jaxpr):
    """All equations, those of calls within it included."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jaxprs_in_params(eqn.params):
            yield from eqns_of(inner)
