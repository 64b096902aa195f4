"""The pure core: `fit` is jittable, maps over seeds and hyper-parameters, goes on from a state, and
trains any `Module`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import in_full

from rlkit.errors import CheckpointError, ConfigError, NonFiniteError
from rlkit.training.core import module as training_module
from rlkit.training.core.module import Module, RLModule, fit
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.files.checkpointer import steps_in
from rlkit.training.logs.records import read_records
from rlkit.training.policy import load_policy
from rlkit.training.trainer import Trainer
from rlkit.xla_cpu import matmul
from rlkit.xla_cpu.packing import NoPacking, Packing


class EvolutionStrategy:
    """Climbs -|x - 3|² by the mean of its samples, weighted by their scores: neither collector nor
    updater.
    """

    def init_train_state(self, key):
        return {"mean": jnp.zeros(2), "key": key}

    def get_batch(self, ts, i):
        key, sample_key = jax.random.split(ts["key"])
        noise = jax.random.normal(sample_key, (16, 2))
        return ts | {"key": key}, noise

    def training_step(self, i, ts, batch):
        scores = -jnp.square(ts["mean"] + 0.1 * batch - 3.0).sum(1)
        weights = (scores - scores.mean()) / (scores.std() + 1e-8)
        return ts | {"mean": ts["mean"] + 0.2 * (weights[:, None] * batch).mean(0)}, {
            "loss": -scores.mean(),
            "sum/samples": 16.0,
        }

    def eval_callback(self, ts):
        return {"return": -jnp.square(ts["mean"] - 3.0).sum()}


def assert_trees_close(a, b, rtol):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(
            _data(x), _data(y), rtol=rtol, atol=rtol * 0.1 if rtol else 0.0
        ),
        a,
        b,
    )


def _data(x):
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)


def row(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


@pytest.fixture(scope="module")
def module(tiny):
    return tiny.module(eval_env=tiny.env())


@pytest.fixture(scope="module")
def fitted(module):
    """`fit` of one seed, compiled once; and its result for seed 0."""
    run = jax.jit(lambda key: fit(module, key, num_outer_iterations=3, iterations_per_outer=2))
    return run, run(jax.random.key(0))


@pytest.mark.full
def test_metrics_are_stacked_over_outer_iterations(fitted, module):
    _, (ts, found) = fitted
    assert set(found) == {"train", "eval", "initial_eval"}
    assert {x.shape for x in found["train"].values()} == {(3,)}
    assert found["eval"]["return"].shape == (3, 3) and found["initial_eval"]["return"].shape == (3,)
    assert ts.learner.env_steps.to_int() == 3 * 2 * 16 and ts.learner.updates.to_int() == 3 * 2 * 2
    assert isinstance(module, Module)


@pytest.mark.full
def test_vmap_over_seeds_is_a_loop_over_seeds(fitted, module):
    keys = jax.random.split(jax.random.key(7), 3)
    start = jax.jit(module.init_train_state)
    together = jax.jit(jax.vmap(module.init_train_state))(keys)
    for i, key in enumerate(keys):
        assert tree_digest(row(together, i)) == tree_digest(start(key))  # equal exactly
    states, found = jax.jit(
        jax.vmap(lambda key: fit(module, key, num_outer_iterations=3, iterations_per_outer=2))
    )(keys)
    for i, key in enumerate(keys):
        alone, metrics = fitted[0](key)
        assert_trees_close(row(states, i).learner, alone.learner, 1e-5)
        assert_trees_close(row(found["train"], i), metrics["train"], 1e-5)


@pytest.mark.full
def test_vmap_over_hyperparameters_is_separate_fits(tiny):
    env = tiny.env()

    def train(learning_rate, gamma):
        algorithm = tiny.algorithm(learning_rate=learning_rate, gamma=gamma, normalize_rewards=True)
        module = RLModule(env=env, agent=tiny.agent(env), algorithm=algorithm, total_steps=100.0)
        return fit(module, jax.random.key(0), num_outer_iterations=2, skip_initial_evaluation=True)[
            0
        ].learner

    rates, gammas = jnp.array([1e-2, 3e-3]), jnp.array([0.9, 0.5])
    together = jax.jit(jax.vmap(train))(rates, gammas)
    for i in range(2):
        assert_trees_close(
            row(together, i), jax.jit(train)(float(rates[i]), float(gammas[i])), 1e-5
        )
    assert tree_digest(row(together, 0)) != tree_digest(row(together, 1))


def test_going_on_is_one_longer_fit(fitted, module):
    part = jax.jit(
        lambda key, ts: fit(
            module, key, num_outer_iterations=1, iterations_per_outer=2, train_state=ts
        )
    )
    ts = module.init_train_state(jax.random.key(0))
    returns = []
    for _ in range(3):
        ts, found = part(None, ts)
        returns.append(found["eval"]["return"][0])
    assert_trees_close(ts.learner, fitted[1][0].learner, 1e-6)
    np.testing.assert_allclose(returns, fitted[1][1]["eval"]["return"])


def test_the_trainer_calls_the_same_outer_iteration(tiny, fitted):
    trainer = tiny.trainer()
    history = trainer.run(jax.random.key(0))
    np.testing.assert_allclose([row["return"] for row in history], fitted[1][1]["eval"]["return"])
    state = trainer.state.replace(
        learner=trainer.state.learner.replace(total_steps=fitted[1][0].learner.total_steps)
    )
    # The fixture's horizon is another one: compare what it does not touch.
    assert trainer.plan.total_steps == 96
    assert_trees_close(state.local.env_state, fitted[1][0].local.env_state, 1e-6)


def test_the_initial_evaluation_is_optional():
    found = fit(
        EvolutionStrategy(), jax.random.key(0), num_outer_iterations=2, skip_initial_evaluation=True
    )[1]
    assert set(found) == {"train", "eval"}


@pytest.mark.fast
@pytest.mark.parametrize(
    "wrong", [{"num_outer_iterations": 0}, {"num_outer_iterations": 1, "iterations_per_outer": 0}]
)
def test_fit_rejects_empty_loops(wrong):
    with pytest.raises(ConfigError, match="must be a positive integer, got 0"):
        fit(EvolutionStrategy(), jax.random.key(0), **wrong)
    with pytest.raises(ConfigError, match="needs a key or a train_state"):
        fit(EvolutionStrategy(), None, num_outer_iterations=1)


def test_an_evolution_strategy_is_fitted_and_trained(tiny, tmp_path):
    strategy = EvolutionStrategy()
    ts, found = jax.jit(
        lambda key: fit(strategy, key, num_outer_iterations=4, iterations_per_outer=25)
    )(jax.random.key(0))
    assert found["eval"]["return"][-1] > -0.1 > found["initial_eval"]["return"]
    assert found["train"]["sum/samples"].tolist() == [400.0] * 4  # summed; the others are averaged

    settings = {"num_checkpoints": 4, "epochs_per_checkpoint": 25, "run_dir": str(tmp_path / "run")}
    with Trainer.from_module(strategy, tiny.config(**settings)) as trainer:
        history = trainer.run(jax.random.key(0))
        assert_trees_close(trainer.state, ts, 1e-5)
        np.testing.assert_allclose(
            [row["return"] for row in history], found["eval"]["return"], rtol=1e-4
        )
        # Without counters, steps count
        assert (trainer.env_steps, trainer.plan.total_steps) == (
            100,
            100,
        )
    records = [
        record
        for record in read_records(tmp_path / "run" / "metrics.jsonl")
        if record.kind == "train"
    ]
    assert [(record.env_steps, record.updates) for record in records] == [
        (25, 25),
        (50, 50),
        (75, 75),
        (100, 100),
    ]
    assert {"train/loss", "train/samples", "train/steps_per_second"} <= records[-1].metrics.keys()

    longer = tiny.config(**settings | {"num_checkpoints": 6, "restore_checkpoint": "auto"})
    with Trainer.from_module(strategy, longer) as trainer:
        assert len(trainer.run(jax.random.key(0))) == 2
        again = fit(
            strategy, None, num_outer_iterations=2, iterations_per_outer=25, train_state=ts
        )[0]
        assert_trees_close(trainer.state, again, 1e-5)
    for env in (None, "gymnax/CartPole-v1"):
        with pytest.raises(CheckpointError, match="of which rlkit knows no policy; load its state"):
            load_policy(tmp_path / "run", env=env)


def test_a_module_with_seeds(tiny):
    trainer = Trainer.from_module(EvolutionStrategy(), tiny.config(num_seeds=3))
    history = trainer.run(0)
    assert history[-1]["return"].shape == (3,) and trainer.state["mean"].shape == (3, 2)


def test_a_module_without_evaluation_still_calls_eval_fn(tiny):
    class Silent(EvolutionStrategy):
        def eval_callback(self, ts):
            return {}

    seen = []
    assert (
        Trainer.from_module(
            Silent(), tiny.config(), eval_fn=lambda ts: seen.append(ts["mean"].shape)
        ).run(0)
        == [{}] * 3
    )
    assert seen == [(2,)] * 4


def test_a_module_whose_loss_is_nan_stops(tiny, tmp_path):
    class Diverging(EvolutionStrategy):
        def training_step(self, i, ts, batch):
            ts, metrics = super().training_step(i, ts, batch)
            return ts | {"mean": ts["mean"] * jnp.nan}, metrics

    with Trainer.from_module(Diverging(), tiny.config(run_dir=str(tmp_path / "run"))) as trainer:
        with pytest.raises(NonFiniteError, match="loss of outer iteration 1 is not finite"):
            trainer.run(0)
        assert steps_in(tmp_path / "run" / "checkpoints") == [0]


@pytest.mark.full
def test_an_rlmodule_may_come_through_from_module(tiny):
    trainer = Trainer.from_module(
        tiny.module(eval_env=tiny.env()), tiny.config(num_checkpoints=1, epochs_per_checkpoint=2)
    )
    trainer.run(0)
    assert trainer.env_steps == trainer.state.learner.env_steps.to_int() == 32


@pytest.mark.parametrize("num_seeds", [1, in_full(2), 3])
def test_a_module_whose_metric_is_an_array_is_told_so(tiny, num_seeds):
    class Wide(EvolutionStrategy):
        def training_step(self, i, ts, batch):
            ts, metrics = super().training_step(i, ts, batch)
            return ts, metrics | {"weights": jnp.ones(2)}

    with pytest.raises(
        ConfigError, match=r"the metric 'weights' has shape \(2,\), not \(\); reduce it"
    ):
        Trainer.from_module(Wide(), tiny.config(num_seeds=num_seeds)).run(0)


@pytest.mark.parametrize("num_seeds", [in_full(1), 2])
def test_a_module_whose_evaluation_is_no_dict_is_told_so(tiny, num_seeds):
    class Bare(EvolutionStrategy):
        def eval_callback(self, ts):
            return super().eval_callback(ts)["return"]

    wanted = "Bare.eval_callback returned a .*, not a dict; return {"
    with pytest.raises(ConfigError, match=wanted):
        Trainer.from_module(Bare(), tiny.config(num_seeds=num_seeds)).run(0)
    with pytest.raises(ConfigError, match=wanted):
        fit(Bare(), jax.random.key(0), num_outer_iterations=1, skip_initial_evaluation=True)


def module_of(tiny, name, hyper):
    """With the agent and the algorithm of this name."""
    env = tiny.env()
    return RLModule(
        env=env,
        agent=tiny.agent(env, name),
        algorithm=tiny.algorithm(name, **hyper),
        total_steps=100.0,
    )


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize(
    ("name", "hyper", "packing"),
    [
        ("dqn", {"num_steps": 1, "updates_per_step": 0.5}, Packing),
        ("dqn", {"num_steps": 2}, NoPacking),
        ("ppo", {}, NoPacking),
    ],
    ids=["small", "several-steps", "on-policy"],
)
def test_small_arrays_go_through_the_loop_as_vectors_where_that_is_faster(
    tiny, monkeypatch, name, hyper, packing
):
    module = module_of(tiny, name, hyper)
    state = jax.eval_shape(module.init_train_state, jax.random.key(0))
    assert type(training_module._loop_packing(module, state)) is packing
    monkeypatch.setattr(matmul, "SMALL_PRODUCT", 16)  # everything is large
    assert type(training_module._loop_packing(module, state)) is NoPacking


STEP = {"num_steps": 1, "updates_per_step": 0.5}
# One update or two of an iteration.
SOME_DUE = {
    "num_steps": 1,
    "updates_per_step": 0.75,
    "priority_exponent": 0.6,
}


@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        in_full(("dqn", STEP)),
        in_full(("dqn", STEP | {"priority_exponent": 0.6, "n_step": 3})),
        in_full(("dqn", SOME_DUE)),
        ("ppo", {"num_epochs": 3, "num_minibatches": 2}),
    ],
    ids=["uniform", "prioritised", "some-due", "on-policy"],
)
def test_an_outer_iteration_is_the_same_with_and_without_vectors(tiny, monkeypatch, name, hyper):
    """Of small arrays through the loop of training steps, and of parameters through that of
    updates.
    """
    module = module_of(tiny, name, hyper)
    found = [fit(module, jax.random.key(0), num_outer_iterations=2, iterations_per_outer=4)]
    monkeypatch.setattr(matmul, "SMALL_PRODUCT", 0)
    found.append(fit(module, jax.random.key(0), num_outer_iterations=2, iterations_per_outer=4))
    assert_trees_close(*found, rtol=1e-5)


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize(
    ("name", "hyper", "updates"),
    [("ppo", {"num_epochs": 3, "num_minibatches": 2}, 6), ("dqn", SOME_DUE, 2)],
)
def test_parameters_go_through_the_loop_of_updates_as_one_array(
    tiny, monkeypatch, name, hyper, updates
):
    module = module_of(tiny, name, hyper)
    state = jax.eval_shape(module.init_train_state, jax.random.key(0))
    params = jax.tree.leaves(state.learner.params)

    def carried():
        """The shapes that the loop of updates carries."""
        jaxpr = jax.make_jaxpr(lambda ts: module.training_step(0, *module.get_batch(ts, 0)))(state)
        loops = [
            x for x in jaxpr.eqns if x.primitive.name == "scan" and x.params["length"] == updates
        ]
        return [x.aval.shape for loop in loops for x in loop.outvars[: loop.params["num_carry"]]]

    joined = (sum(x.size for x in params),)
    assert carried().count(joined) == 3  # with the two moments of Adam
    monkeypatch.setattr(matmul, "SMALL_PRODUCT", 0)
    assert carried().count(joined) == 2


def test_a_step_that_changes_the_type_of_the_state_is_told(module):
    class Widening(EvolutionStrategy):
        def training_step(self, i, ts, batch):
            ts, metrics = super().training_step(i, ts, batch)
            return ts | {"mean": jnp.stack([ts["mean"]] * 2)}, metrics

    with pytest.raises(
        ConfigError, match=r"changed \['mean'\] from float32\[2\] to float32\[2, 2\]; return arrays"
    ):
        fit(Widening(), jax.random.key(0), num_outer_iterations=1)


def test_a_seed_is_a_key(module):
    both = [fit(module, key, num_outer_iterations=1)[0] for key in (3, jax.random.key(3))]
    assert tree_digest(both[0]) == tree_digest(both[1])
