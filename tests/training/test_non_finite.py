"""NaN and infinity: nothing that goes on, and nothing that is saved, holds any."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from algorithm_rows import agent_of, algorithm_of, config_of
from host_twins import HostCounter
from stopping import StopAt
from tiers import in_full

from rlkit.algorithms.configs import PPOConfig
from rlkit.algorithms.finite import finite_or, is_finite_update, non_finite_leaves
from rlkit.algorithms.ppo import ppo
from rlkit.algorithms.sac import sac
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.envs.probes.space_probes import Counter
from rlkit.errors import ConfigError, EnvFailedError, NonFiniteError
from rlkit.ops.running_stats import fold, init_stats
from rlkit.training.config import CheckpointerConfig
from rlkit.training.files.checkpointer import steps_in
from rlkit.training.finite_checks import check_evaluation
from rlkit.training.logs.loaded_run import load_run
from rlkit.training.logs.records import read_records
from rlkit.training.policy import load_policy
from rlkit.training.trainer import Trainer

SHORT = PPOConfig(num_steps=4, num_minibatches=1, num_epochs=2)


@dataclasses.dataclass(frozen=True)
class Breaking:
    """`Counter` with float observations; from step 10 of an episode on, one value is broken."""

    reward: float = 0.0
    observation: float = 0.0
    max_episode_steps: int = 16
    action_space = Counter.action_space

    @property
    def observation_space(self):
        space = Counter(goal=1000, max_episode_steps=16).observation_space
        return type(space)(space.low.astype(np.float32), space.high.astype(np.float32))

    def reset(self, key):
        state, obs = Counter(goal=1000, max_episode_steps=16).reset(key)
        return state, obs.astype(jnp.float32)

    def step(self, key, state, action):
        state, obs, reward, *rest = Counter(goal=1000, max_episode_steps=16).step(
            key, state, action
        )
        late = state.time >= 10
        obs = obs.astype(jnp.float32) + jnp.where(late, self.observation, 0.0)
        return state, obs, reward + jnp.where(late, self.reward, 0.0), *rest


def spoils(after, value=jnp.nan):
    """An optimiser whose step is `value` from its update number `after` on."""

    def update(gradients, count, params=None):
        factor = jnp.where(count >= after, value, -0.01)
        return jax.tree.map(lambda g: factor * jnp.ones_like(g), gradients), count + 1

    return optax.GradientTransformation(lambda params: jnp.int32(0), update)


def of_run(run):
    """(steps saved, texts of warnings and errors) of a run directory."""
    records = read_records(run / "metrics.jsonl")
    told = [r.text for r in records if r.kind in ("warning", "error")]
    return steps_in(run / "checkpoints"), told


@pytest.mark.parametrize(
    ("on_host", "value"),
    [(True, jnp.nan), *map(in_full, [(False, jnp.inf), (False, jnp.nan), (True, jnp.inf)])],
)
def test_an_optimizer_that_overflows_changes_nothing(tiny, tmp_path, on_host, value):
    run = tmp_path / "run"
    env = GymnasiumAdapter(HostCounter, 2) if on_host else tiny.env()
    algorithm = ppo(SHORT, optimizer=spoils(4, value))  # in the third of five outer iterations
    settings = {"num_checkpoints": 5, "epochs_per_checkpoint": 1, "max_skipped_updates": None}
    with tiny.trainer(algorithm, env=env, run_dir=str(run), **settings) as trainer:
        trainer.run(0)
        assert not non_finite_leaves(trainer.state.learner)
        skipped = [row["skipped_updates"] for row in trainer.history.training]
        assert skipped == [0, 0, 2, 2, 2]
        summary = trainer.summary()
    env.close()
    found, texts = of_run(run)
    assert (summary["updates"], summary["skipped_updates"]) == (10, 6)
    assert any("skipped 6 of 10 updates" in text for text in texts)
    policy = load_policy(run, env=tiny.env(), agent=tiny.agent(tiny.env()))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(policy.state.params))
    assert max(found) == 5


@pytest.mark.full
def test_off_policy_optimizers_that_overflow_change_nothing(tiny):
    env = tiny.env("probe/ContinuousAction")
    algorithm = sac(config_of("sac"), optimizer=spoils(3))
    config = tiny.config(enable_evaluation=False, max_skipped_updates=None)
    with Trainer(env, None, agent_of("sac", env), algorithm, config) as trainer:
        trainer.run(0)
        assert not non_finite_leaves(trainer.state.learner)
        assert trainer.history.training[-1]["skipped_updates"] == 8


@pytest.mark.parametrize("broken", [in_full({"reward": jnp.inf}), {"observation": jnp.nan}])
def test_a_jittable_environment_that_breaks_ends_the_run(tiny, tmp_path, broken):
    """In the second outer iteration; the first one's checkpoint stays the last."""
    run = tmp_path / "run"
    config = dataclasses.replace(SHORT, normalize_observations=True, normalize_rewards=True)
    env = vectorize(Breaking(**broken), 2)
    settings = {"num_checkpoints": 3, "epochs_per_checkpoint": 1, "enable_evaluation": False}
    with tiny.trainer(ppo(config), env=env, run_dir=str(run), **settings) as trainer:
        problem = "iteration 2, the environment returned NaN or infinity in [46] steps"
        with pytest.raises(EnvFailedError, match=problem) as raised:
            trainer.run(0)
        assert "the last checkpoint, step 1 (16 environment steps), is sound" in str(raised.value)
        assert not non_finite_leaves(trainer.state.learner)  # its statistics among it
    assert steps_in(run / "checkpoints") == [0, 1]


@pytest.mark.full
@pytest.mark.parametrize("broken", [{"reward": jnp.inf}, {"observation": jnp.nan}])
@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_a_jittable_environment_that_breaks_before_training_ends_the_run(
    tiny, tmp_path, name, broken
):
    """In the rollout for the statistics, or the random steps for the memory; nothing is in the way
    of a sound environment.
    """
    settings = {"run_dir": str(tmp_path / "run"), "enable_evaluation": False}
    normalized = dataclasses.replace(SHORT, num_steps=16, normalize_observations=True)
    algorithm = ppo(normalized) if name == "ppo" else algorithm_of("dqn")
    if name == "dqn":
        settings["warmup_steps"] = 32
    with trainer_of(name, Breaking(**broken), algorithm, tiny.config(**settings)) as trainer:
        problem = r"in the random steps before training, the environment returned NaN .* 1\d steps"
        with pytest.raises(EnvFailedError, match=problem):
            trainer.run(0)
        assert trainer.state is None
    with trainer_of(name, Breaking(), algorithm, tiny.config(**settings)) as trainer:
        trainer.run(0)


@pytest.mark.full
def test_a_jittable_environment_that_breaks_while_the_memory_is_refilled_ends_the_run(
    tiny, tmp_path
):
    algorithm, run = algorithm_of("dqn"), tmp_path / "run"
    keeping = CheckpointerConfig(save_replay=False)
    config = tiny.config(
        run_dir=str(run), warmup_steps=32, enable_evaluation=False, checkpointer_config=keeping
    )
    with trainer_of("dqn", Breaking(), algorithm, config) as trainer:
        trainer.run(0)
    other = dataclasses.replace(config, run_dir=None)
    with trainer_of("dqn", Breaking(reward=jnp.inf), algorithm, other) as trainer:
        trainer.load_checkpoint(run)
        with pytest.raises(EnvFailedError, match="in the steps that fill the replay memory, the"):
            trainer.train_epoch()
        assert trainer.state is None


def trainer_of(name, env, algorithm, config):
    env = vectorize(env, 2)
    return Trainer(env, None, agent_of(name, env), algorithm, config)


@pytest.mark.fast
def test_statistics_that_would_break_stay():
    stats = fold(init_stats(jnp.zeros(2)), jnp.ones((3, 2)))
    for bad in (jnp.nan, jnp.inf, 1e30):  # the square of the last one overflows
        kept = finite_or(fold(stats, jnp.ones((3, 2)).at[1, 1].set(bad)), stats)
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), kept, stats))
    good = fold(stats, jnp.zeros((3, 2)))
    assert float(finite_or(good, stats).count) == 6.0


def test_a_run_ends_once_k_updates_in_a_row_were_skipped(tiny, tmp_path):
    run = tmp_path / "run"
    settings = {"num_checkpoints": 9, "epochs_per_checkpoint": 1, "max_skipped_updates": 5}
    algorithm = ppo(SHORT, optimizer=spoils(2))
    with tiny.trainer(algorithm, run_dir=str(run), **settings) as trainer:
        with pytest.raises(NonFiniteError, match="the last 6 updates were skipped") as raised:
            trainer.run(0)
        assert "the last checkpoint, step 3 (24 environment steps), is sound" in str(raised.value)
    found, texts = of_run(run)
    assert max(found) == 3 and "NonFiniteError" in texts[-1]
    assert sum("skipped 100.0% of the updates in outer" in text for text in texts) == 3


@pytest.mark.full
def test_a_run_that_is_resumed_goes_on_counting_what_it_skipped(tiny, tmp_path):
    settings = {
        "run_dir": str(tmp_path / "run"),
        "restore_checkpoint": "auto",
        "num_checkpoints": 9,
        "epochs_per_checkpoint": 1,
        "max_queued": 1,
        "max_skipped_updates": 5,
    }
    algorithm = ppo(SHORT, optimizer=spoils(2))
    with tiny.trainer(algorithm, callbacks=[StopAt(3)], **settings) as trainer:
        trainer.run(0)
        assert trainer.outer_iteration == 3  # of which two skipped all of their updates
    with tiny.trainer(algorithm, **settings) as trainer:
        with pytest.raises(NonFiniteError, match="the last 6 updates were skipped"):
            trainer.run(0)
        assert trainer.outer_iteration == 4  # as if it had never stopped


def test_one_seed_that_diverges_stops_no_other(tiny):
    def loss(agent, params, target_params, batch, key):
        value = agent.value(params, batch.obs).mean()
        is_first = jax.random.bits(key) % 2 == 0  # differs between seeds
        return jnp.where(is_first, jnp.nan, value), {"policy_loss": value, "value_loss": value}

    settings = {"num_checkpoints": 2, "epochs_per_checkpoint": 4, "max_skipped_updates": 1}
    with tiny.trainer(ppo(SHORT, loss=loss), num_seeds=2, **settings) as trainer:
        trainer.run(0)
        assert not non_finite_leaves(trainer.state.learner)


def test_a_state_with_nan_is_never_saved(tiny, tmp_path):
    with tiny.trainer(run_dir=str(tmp_path / "run")) as trainer:
        state = trainer.init(0)
        learner = state.learner
        params = jax.tree.map(lambda x: x * jnp.nan, learner.params)
        trainer.state = state.replace(learner=learner.replace(params=params))
        with pytest.raises(NonFiniteError, match=r"was not saved, because it holds NaN.*params"):
            trainer.save_checkpoint()
        with pytest.raises(NonFiniteError, match="was not saved"):
            trainer.save_checkpoint(tmp_path / "copy")
    assert steps_in(tmp_path / "run" / "checkpoints") == []


@pytest.mark.full
def test_optimizers_may_begin_with_infinity(tiny, tmp_path):
    optimizer = optax.chain(optax.sgd(1e-3), optax.contrib.reduce_on_plateau(patience=1))
    with tiny.trainer(ppo(SHORT, optimizer=optimizer), run_dir=str(tmp_path / "run")) as trainer:
        trainer.run(0)
        assert trainer.history.training[-1]["skipped_updates"] == 0


@pytest.mark.fast
def test_numbers_that_float32_cannot_hold_are_refused():
    with pytest.raises(ConfigError, match="max_grad_norm: 1e\\+39 is too large for float32"):
        ppo(PPOConfig(max_grad_norm=1e39))
    with pytest.raises(ConfigError, match="learning_rate: 1e-50 is too small for float32"):
        ppo(PPOConfig(learning_rate=1e-50))


@pytest.mark.fast
@pytest.mark.parametrize("rate", [1e39, 101.0, np.float64(1e39)])
def test_steps_that_could_overflow_are_refused(rate):
    with pytest.raises(ConfigError, match="learning_rate: input should be less than or equal to"):
        ppo(PPOConfig(learning_rate=rate))
    with pytest.raises(ConfigError, match=r"times weight_decay=.* exceeds 1"):
        ppo(PPOConfig(learning_rate=1.0, weight_decay=100.0))


def test_the_rule_covers_all_that_a_learner_holds():
    env = vectorize(Breaking(), 2)
    algorithm = algorithm_of("dqn", normalize_observations=True)
    state = algorithm.init(agent_of("dqn", env), env, jax.random.key(0), total_steps=100.0)
    assert not non_finite_leaves(state.learner)
    for name in ("params", "target_params", "opt_state", "obs_stats"):
        spoilt = jax.tree.map(
            lambda x: x * jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else x,
            getattr(state.learner, name),
        )
        learner = state.learner.replace(**{name: spoilt})
        assert non_finite_leaves(learner)[0].startswith(name)
        assert bool(is_finite_update(learner.params, learner.opt_state)) == (
            name in ("target_params", "obs_stats")
        )


@pytest.mark.parametrize("num_seeds", [1, in_full(2)])
def test_an_evaluation_that_returns_nan_ends_the_run(num_seeds, tiny, tmp_path):
    """As on the host. The most likely actions may come to where sampled ones do not."""
    sound = Breaking()
    env, eval_env = vectorize(sound, 2), vectorize(Breaking(reward=jnp.nan), 2)
    run = {"run_dir": str(tmp_path / "run"), "num_seeds": num_seeds, "max_evaluation_steps": 16}
    algorithm = ppo(SHORT)
    told = r"in the evaluation before training, .* returned"
    with (
        tiny.trainer(algorithm, env=env, eval_env=eval_env, **run) as trainer,
        pytest.raises(EnvFailedError, match=told),
    ):
        trainer.run(0)
    assert load_run(tmp_path / "run").status == "failed"


def test_returns_by_hand():
    one = {"return": np.array([1.0, np.nan]), "sampled_return": np.array([np.inf, 2.0])}
    with pytest.raises(EnvFailedError, match=r"evaluation after outer iteration 3, 2 of 4 episod"):
        check_evaluation("after outer iteration 3", one, "")
    check_evaluation("after outer iteration 3", {"return": np.ones((2, 3))}, "")
    check_evaluation("after outer iteration 3", {}, "")
