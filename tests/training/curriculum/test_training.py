"""Laws of curricula: what goes on from phase to phase, and what starts anew."""

import dataclasses
import json

import algorithm_rows
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import struct
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from stopping import StopAt
from tiers import by_default

import rlkit
import rlkit.training.outer_loop
from rlkit.algorithms.packed_transition import TRUNCATED
from rlkit.envs import registry
from rlkit.envs.ids import MIXTURE
from rlkit.envs.probes.space_probes import Counter
from rlkit.envs.registry import make_env
from rlkit.errors import ConfigError, RlkitError
from rlkit.training import run_config
from rlkit.training.core.module import outer_iteration
from rlkit.training.curriculum import Curriculum, Phase
from rlkit.training.from_config import build, reopen
from rlkit.training.logs.records import read_records
from rlkit.training.trainer import Trainer

CART, ROLLOUT = "gymnax/CartPole-v1", 8
STEPS = 2 * ROLLOUT  # of an iteration of two environments


def settings(*phases, algorithm="ppo", env=CART, arguments=None, num_envs=2, **trainer):
    """A run of small parts. `hyperparameters` and `evaluate_in` are not the trainer's."""
    table = algorithm_rows.SMALL | trainer.pop("hyperparameters", {})
    given = {"evaluate_in": trainer.pop("evaluate_in", "phase")}
    trainer = {
        "num_checkpoints": None if "epochs_per_checkpoint" in trainer else 4,
        "evaluation_episodes": 2,
        "max_evaluation_steps": 16,
        "enable_evaluation": False,
        "logger_config": {"console": False},
        "debug": False,
        **trainer,
    }
    return run_config.RunConfig(
        algorithm=algorithm_rows.registered(algorithm),
        hyperparameters=algorithm_rows.config_of(algorithm, table),
        network=algorithm_rows.network_of(algorithm),
        env=run_config.EnvConfig(id=env, num_envs=num_envs, arguments=arguments or {}),
        trainer=run_config.validation.from_dict(rlkit.TrainerConfig, trainer),
        curriculum=Curriculum(phases=phases, **given) if phases else None,
        seed=3,
    )


def trained(*phases, **given):
    """The trainer of such a run, at its end."""
    trainer = build(settings(*phases, **given))
    trainer.run(trainer.seed)
    return trainer


def same(one, other):
    jax.tree.map(np.testing.assert_array_equal, plain(one), plain(other))


def plain(tree):
    """Copies of its arrays, and of the numbers of its keys."""

    def numbers(x):
        is_key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
        return np.array(jax.random.key_data(x) if is_key else x)

    return jax.tree.map(numbers, tree)


# Phases that change nothing

ALGORITHMS = [*algorithm_rows.NAMES, "sac.pink", "ppo.gsde"]


def env_for(name):
    return "gymnax/Pendulum-v1" if not fits_cart(name) else CART


def fits_cart(name):
    return algorithm_rows.acts_in(name, rlkit.make_env(CART, 1).action_space)


@pytest.mark.parametrize("name", by_default(["ppo"], ALGORITHMS))
def test_phases_that_change_nothing_change_nothing(name):
    """The episodes go on, too; to the bit."""
    given = {"algorithm": name, "env": env_for(name), "epochs_per_checkpoint": 1}
    plain = trained(**given, total_steps=96)
    phased = trained(Phase(steps=48), Phase(steps=32), Phase(), **given, total_steps=96)
    same(plain.state, phased.state)
    assert phased.phase == 2 and plain.phase is None


@pytest.mark.full
def test_phases_that_change_nothing_on_the_host():
    given = {"env": "gymnasium/CartPole-v1", "epochs_per_checkpoint": 1, "num_seeds": 2}
    plain = trained(**given, total_steps=64)
    phased = trained(Phase(steps=32), Phase(steps=32), **given)
    same(plain.state, phased.state)


@pytest.mark.full
def test_outer_iterations_of_another_size_go_on_in_the_same_episodes():
    """A phase with longer rollouts, on the host: the program is another one."""
    given = {"env": "gymnasium/CartPole-v1", "epochs_per_checkpoint": 1}
    with build(settings(Phase(steps=32), Phase(steps=64, num_steps=16), **given)) as trainer:
        trainer.init(3)
        trainer.train_epoch()
        trainer.train_epoch()
        obs = trainer.state.local.obs
        resets = trainer.program.collector.groups[0].env._resets
        assert trainer.phase == 0
        trainer.train_epoch()
        assert trainer.phase == 1 and obs.shape == trainer.state.local.obs.shape
        assert trainer.program.collector.groups[0].env._resets == resets  # nobody was reset


# Hyperparameters


@pytest.mark.full
def test_a_phase_learns_with_its_own_hyperparameters():
    """As two modules that train the same state one after the other, to rounding."""
    phases = (
        Phase(steps=2 * STEPS),
        Phase(steps=2 * STEPS, hyperparameters={"learning_rate": 0.05, "gamma": 0.5}),
    )
    phased = trained(*phases, epochs_per_checkpoint=1)
    config = settings(epochs_per_checkpoint=1, total_steps=4 * STEPS)
    with build(config) as first:
        ts = first.module.init_train_state(phased.compiler.keys(3))
        ts, _ = outer_iteration(first.module, ts, 2)
        own = algorithm_rows.config_of("ppo", learning_rate=0.05, gamma=0.5)
        second = rlkit.ppo(own)
        module = first.module.__class__(
            env=first.module.env,
            agent=first.module.agent,
            algorithm=second,
            total_steps=first.module.total_steps,
        )
        ts, _ = outer_iteration(module, ts, 2)
    found, wanted = phased.state.learner.params, ts.learner.params
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, wanted)


@pytest.mark.full
def test_phases_of_one_shape_are_compiled_once():
    """Learning rates, parameters of Gymnax and the weights of mixtures are inputs of a program."""
    one = trained(Phase(steps=4 * STEPS), epochs_per_checkpoint=2, enable_evaluation=True)
    phases = (
        Phase(steps=2 * STEPS, env_params={"length": 0.25}),
        Phase(steps=2 * STEPS, env_params={"length": 0.75}),
        Phase(steps=2 * STEPS, hyperparameters={"learning_rate": 0.01, "entropy_coef": 0.1}),
        Phase(steps=2 * STEPS, env_params={"length": 0.25}, hyperparameters={"gamma": 0.9}),
    )
    many = trained(*phases, epochs_per_checkpoint=2, enable_evaluation=True)
    # Entering other environments is a program of its own, the same for all of them.
    assert many.compiler.count == one.compiler.count + 1
    other = trained(
        *phases, Phase(steps=2 * STEPS, num_envs=4), epochs_per_checkpoint=2, enable_evaluation=True
    )
    assert other.compiler.count == many.compiler.count + 2  # the iteration, and entering it


@pytest.mark.full
def test_weights_of_a_mixture_do_not_compile():
    envs = [CART, {"id": CART, "arguments": {"params": {"length": 1.0}}}]
    phases = [Phase(steps=2 * STEPS, weights=weights) for weights in ((1, 0), (1, 1), (0, 1))]
    given = {"env": MIXTURE, "arguments": {"envs": envs}, "epochs_per_checkpoint": 2}
    many = trained(*phases, **given)
    assert many.compiler.count == trained(Phase(steps=64), **given).compiler.count + 1
    assert (np.asarray(many.state.local.env_state.envs.which) == 1).all()


@pytest.mark.parametrize("name", by_default(["ppo"], algorithm_rows.NAMES))
def test_the_state_holds_the_hyperparameters_of_its_phase(name):
    changed = "learning_rate" if "learning_rate" in algorithm_rows.fields(name) else "gamma"
    phases = (Phase(steps=48), Phase(steps=32, hyperparameters={changed: 0.125}))
    trainer = trained(
        *phases, algorithm=name, env=env_for(name), epochs_per_checkpoint=1, num_seeds=2
    )
    held = trainer.state.learner.hyperparameters
    assert held.keys() == {changed}
    np.testing.assert_array_equal(held[changed], np.full(2, 0.125, np.float32))


@pytest.mark.full
def test_settings_that_change_the_program_compile_it_anew():
    phases = (Phase(steps=2 * STEPS), Phase(steps=2 * STEPS, hyperparameters={"num_epochs": 3}))
    trainer = trained(*phases, epochs_per_checkpoint=1)
    assert not trainer.state.learner.hyperparameters
    # 1 epoch of 2 minibatches in two iterations, then 3 of 2 in two more
    assert int(trainer.state.learner.updates.low) == 2 * 2 + 2 * 6


# Environments


@pytest.mark.parametrize(
    ("num_envs", "num_seeds"),
    by_default([(2, 1)], [(envs, seeds) for envs in (2, 4, 1) for seeds in (1, 2)]),
)
def test_a_learner_goes_on_in_other_environments(num_envs, num_seeds):
    phase = Phase(steps=64, env_params={"length": 1.0}, num_envs=num_envs)
    given = {"num_seeds": num_seeds, "epochs_per_checkpoint": 1, "normalize_observations": True}
    given["hyperparameters"] = {"normalize_observations": given.pop("normalize_observations")}
    with build(settings(Phase(steps=2 * STEPS), phase, **given)) as trainer:
        trainer.init(3)  # an iteration's steps with random actions, for the statistics
        trainer.train_epoch()
        before = plain(trainer.state)
        key = jax.random.wrap_key_data(before.local.key)
        trainer._loop.enter_next_phase()
        after = plain(trainer.state)
        # Not the episodes that the key itself would start, which the next rollout draws from.
        again = trainer.module.env.reset(key if num_seeds == 1 else key[0])[1]
        mine = after.local.obs if num_seeds == 1 else after.local.obs[0]
        assert not np.array_equal(mine, again)
        same(before.learner, after.learner)  # networks, optimiser, statistics, counters
        assert after.local.obs.shape[-2:] == (num_envs, 4)
        np.testing.assert_array_equal(
            after.local.env_state.params.length, np.ones_like(after.local.env_state.params.length)
        )
        assert (np.asarray(after.local.env_state.envs.time) == 0).all()
        assert not np.asarray(after.local.discounted_return).any()
        trainer.train_epoch()
        assert trainer.env_steps == 2 * STEPS + num_envs * ROLLOUT


@pytest.mark.full
@pytest.mark.parametrize(
    ("per", "num_envs"),
    [(per, envs) for per in (None, 0.6) for envs in (2, 5, 1)],
)
def test_the_replay_memory_goes_on(per, num_envs):
    """With the newest transitions, all of them ended where they are."""
    extra = {"capacity": 24, "prefill_steps": 16, "n_step": 3, "priority_exponent": per}
    phase = Phase(steps=64, env_params={"length": 1.0}, num_envs=num_envs, num_steps=4)
    given = {"algorithm": "dqn", "hyperparameters": extra, "epochs_per_checkpoint": 1}
    with build(settings(Phase(steps=48), phase, **given)) as trainer:
        trainer.init(3)
        for _ in range(2):
            trainer.train_epoch()
        old, ends, old_priorities = stored(trainer)
        trainer._loop.enter_next_phase()
        new, cut, priorities = stored(trainer)
        kept = 24 // num_envs * num_envs
        assert len(new) == kept
        np.testing.assert_array_equal(old[-kept:], new)
        np.testing.assert_array_equal(old_priorities[-kept:], priorities)
        if per:
            assert len(set(priorities)) > 2  # not those of new transitions alone
        # Of the same environments the newest transition is the end, of others each one is.
        is_end = np.arange(kept) >= (kept - num_envs if num_envs == 2 else 0)
        np.testing.assert_array_equal(cut, np.where(is_end, ends[-kept:] | TRUNCATED, ends[-kept:]))
        assert np.isfinite(trainer.train_epoch()["loss"])


def stored(trainer):
    """The words of each transition, the flags of its end, and its priority; the oldest first."""
    memory = plain(trainer.state.local.memory)
    ring = getattr(memory, "ring", memory)
    size, rows = int(ring.size), ring.num_rows
    order = [(int(ring.head) - size + age) % rows for age in range(size)]
    words = ring.words[order].reshape(size * ring.num_envs, -1)
    flags = ring.layout.outcome.end[0] - 1
    count = rows * ring.num_envs
    leaves = np.ones(count) if ring is memory else memory.tree.leaves[:count]
    priorities = leaves.reshape(rows, -1)[order].ravel()
    return np.delete(words, flags, axis=1), words[:, flags], priorities


@pytest.mark.full
def test_other_environments_on_the_host():
    """More of them, then others; the learner goes on, and the simulators of before are closed."""
    phases = (
        Phase(steps=32),
        Phase(steps=64, num_envs=4),
        Phase(steps=64, num_envs=4, env_params={"sutton_barto_reward": True}),
    )
    given = {"env": "gymnasium/CartPole-v1", "epochs_per_checkpoint": 1}
    with build(settings(*phases, **given)) as trainer:
        trainer.init(3)
        for _ in range(2):
            trainer.train_epoch()
        before, first = plain(trainer.state.learner), trainer.module.env
        trainer._loop.enter_next_phase()
        same(before, plain(trainer.state.learner))
        assert trainer.state.local.obs.shape == (4, 4) and first._run is None
        programs = trainer.compiler.count
        for _ in range(3):
            trainer.train_epoch()
        assert trainer.phase == 2 and trainer.module.env.recipe.kwargs == {
            "sutton_barto_reward": True
        }
        # The programs of four environments serve both phases; entering is a small one each time.
        assert trainer.compiler.count <= programs + 4


@pytest.mark.full
def test_simulators_of_a_phase_are_closed_where_the_next_one_shares_its_program():
    """Those of evaluation too; a phase that comes back to them starts them again."""
    limits = (4, 6, 4)
    phases = [Phase(steps=STEPS, env_params={"max_episode_steps": limit}) for limit in limits]
    given = {"env": "gymnasium/CartPole-v1", "enable_evaluation": True}
    with build(settings(*phases, epochs_per_checkpoint=1, **given)) as trainer:
        parts = trainer._run.phases.whole.phases
        trainer.init(3)
        for place, part in enumerate(parts):
            trainer.train_epoch()
            trainer.evaluate()
            others = [x for x in parts if x.module.env is not part.module.env]
            assert trainer.phase == place and part.module.env._run is not None
            assert len(others) in (1, 2)
            assert all(x.module.env._run is x.eval_env._run is None for x in others)


@pytest.mark.full
@pytest.mark.parametrize("num_seeds", [1, 2])
def test_environments_keep_their_params_when_a_phase_enters_them(num_seeds):
    """Phase 3 comes back to those of the first; what enters them donates its arguments."""
    env, other = (rlkit.vectorize(Aimed(Aim(goal=jnp.float32(goal))), 2) for goal in (1.0, -1.0))
    agent, algorithm = algorithm_rows.agent_of("ppo", env), algorithm_rows.algorithm_of("ppo")
    phases = [Phase(steps=STEPS), Phase(steps=STEPS, env=other), Phase(steps=STEPS, env=env)]
    config = rlkit.TrainerConfig(
        epochs_per_checkpoint=1,
        evaluation_episodes=2,
        num_seeds=num_seeds,
        logger_config=None,
        debug=False,
    )
    curriculum = Curriculum(phases=phases)
    with Trainer(env, None, agent, algorithm, config, curriculum=curriculum) as trainer:
        for _ in range(2):
            trainer.run(3)
            assert trainer.env_steps == 3 * STEPS
    for batch in (env, other):
        assert batch.reset(jax.random.key(0))[1].shape == (2, 1)


class Aim(struct.PyTreeNode):
    goal: jax.Array


@dataclasses.dataclass(frozen=True)
class Aimed:
    """Walks on a line, and pays the distance from the goal."""

    params: Aim
    observation_space = spaces.Box(-10.0, 10.0, (1,))
    action_space = spaces.Discrete(2)
    max_episode_steps = 8

    def replace_params(self, params):
        return dataclasses.replace(self, params=params)

    def reset(self, key):
        return (jnp.float32(0), jnp.int32(0)), jnp.zeros(1)

    def step(self, key, state, action):
        x, time = state[0] + 2.0 * action - 1.0, state[1] + 1
        reward = -jnp.abs(x - self.params.goal)
        return (x, time), x[None], reward, jnp.bool_(False), time >= 8, {}


@pytest.mark.full
def test_environments_as_objects():
    """In Python a phase may have adapters and classes; equal ones are the same environments."""
    env = rlkit.make_env(CART, 2)
    other = rlkit.make_env(CART, 2, params={"length": 1.0})
    agent = algorithm_rows.agent_of("ppo", env)
    algorithm = algorithm_rows.algorithm_of("ppo")
    curriculum = Curriculum(
        phases=(
            Phase(steps=STEPS),
            Phase(steps=STEPS, env=other),
            Phase(steps=STEPS, env=other, algorithm=algorithm_rows.algorithm_of("ppo", gamma=0.5)),
        )
    )
    config = rlkit.TrainerConfig(
        epochs_per_checkpoint=1, enable_evaluation=False, logger_config=None, debug=False
    )
    trainer = Trainer(env, None, agent, algorithm, config, curriculum=curriculum)
    trainer.run(3)
    assert trainer.module.env is other and trainer.env_steps == 3 * STEPS
    assert int(trainer.state.local.env_state.envs.time.max()) <= 2 * ROLLOUT
    trainer.close()


# Ends of phases


def pretend(monkeypatch, *values):
    """Evaluations seem to find these returns, one after the other."""
    returns = iter(values)
    monkeypatch.setattr(rlkit.training.outer_loop, "score", lambda record, seeds: next(returns))


@pytest.mark.full
def test_a_phase_ends_when_its_return_is_reached(monkeypatch, tmp_path):
    """The untrained networks' return does not count; the last phase takes the steps left over."""
    phases = (
        Phase(steps=6 * STEPS, advance_at=10.0),
        Phase(steps=8 * STEPS, num_envs=4, advance_at=20.0),
        Phase(steps=2 * STEPS),
    )
    pretend(monkeypatch, 50, 9, 10, 19, 20, *[99] * 10)
    given = {"epochs_per_checkpoint": 1, "enable_evaluation": True, "run_dir": str(tmp_path / "a")}
    trainer = trained(*phases, **given)
    # Of 256 steps, phase 1 took 2 iterations of 16, and phase 2 two of 32: 160 are left.
    assert [phase.num_checkpoints for phase in trainer.plan.phases] == [2, 2, 10]
    assert trainer.env_steps == 256
    rows = read_records(tmp_path / "a" / "metrics.jsonl")
    early = [row.text for row in rows if row.text and "ends early" in row.text]
    assert early == [
        "phase 1 of 3 ends early: the return 10 reached 10",
        "phase 2 of 3 ends early: the return 20 reached 20",
    ]
    numbers = [row.metrics["train/phase"] for row in rows if "train/phase" in row.metrics]
    assert numbers == [1, 1, 2, 2, *[3] * 10]


@pytest.mark.full
def test_schedules_end_with_the_run_where_a_phase_ended_early(monkeypatch):
    """The iterations of 32 steps in the last one take the 112 that are left over, and 16 more."""
    phases = (Phase(steps=6 * STEPS, advance_at=10.0), Phase(steps=2 * STEPS, num_envs=4))
    pretend(monkeypatch, 0, 10, *[0] * 9)
    trainer = trained(*phases, epochs_per_checkpoint=1, enable_evaluation=True)
    assert trainer.plan.total_steps == STEPS + 4 * 2 * STEPS
    assert float(trainer.state.learner.total_steps) == trainer.plan.total_steps


@pytest.mark.full
def test_a_goal_that_is_not_reached_changes_nothing(monkeypatch):
    pretend(monkeypatch, *[5] * 9)
    phases = (Phase(steps=2 * STEPS, advance_at=10.0), Phase(steps=2 * STEPS))
    given = {"epochs_per_checkpoint": 1, "enable_evaluation": True}
    trainer = trained(*phases, **given)
    assert [phase.num_checkpoints for phase in trainer.plan.phases] == [2, 2]


# Evaluation


def ranks(run):
    """The returns by which checkpoints are ranked, by outer iterations."""
    records = {
        path.parts[-3]: json.loads(path.read_text())
        for path in run.glob("checkpoints/*/record/metadata")
    }
    return {int(step): record["body"]["score"] for step, record in sorted(records.items())}


def played_in(trainer):
    return trainer.module.evaluator().env.env.params.length


@pytest.mark.full
@pytest.mark.parametrize("where", ["phase", "run"])
def test_where_evaluations_play(where, tmp_path):
    """In the phase's environments only the last phase ranks checkpoints; in the run's, all do."""
    phases = (
        Phase(steps=2 * STEPS, env_params={"length": 0.25}),
        Phase(steps=2 * STEPS, env_params={"length": 0.75}),
    )
    given = {"epochs_per_checkpoint": 1, "enable_evaluation": True, "evaluate_in": where}
    given |= {"checkpointer_config": {"max_to_keep": 9}}
    with build(settings(*phases, **given, run_dir=str(tmp_path / where))) as trainer:
        assert played_in(trainer) == (0.25 if where == "phase" else 0.5)
        trainer.run(trainer.seed)
        assert played_in(trainer) == (0.75 if where == "phase" else 0.5)
    ranked = [step for step, rank in ranks(tmp_path / where).items() if rank is not None]
    assert ranked == ([3, 4] if where == "phase" else [1, 2, 3, 4])


# Building


BAD = [
    (Phase(steps=STEPS, env="gymnax/Acrobot-v1"), {}, "observation_space"),
    (Phase(steps=STEPS, env="gymnasium/CartPole-v1"), {}, "observation_space"),
    (Phase(steps=STEPS, env_params={"lenght": 1.0}), {}, "did you mean 'length'"),
    (Phase(steps=STEPS, weights=(1.0,)), {}, "weights are those of a mixture"),
    (Phase(steps=STEPS, hyperparameters={"gama": 0.9}), {}, "did you mean 'gamma'"),
    (Phase(steps=STEPS, hyperparameters={"gamma": 2.0}), {}, "gamma"),
    (Phase(steps=STEPS, hyperparameters={"num_minibatches": 3}), {}, "minibatches"),
    (Phase(steps=STEPS, hyperparameters={"optimizer": "sgd"}), {}, "the state of the learner"),
    (
        Phase(steps=STEPS, hyperparameters={"normalize_observations": True}),
        {},
        "the state of the learner",
    ),
    (
        Phase(steps=48, hyperparameters={"capacity": 99}),
        {"algorithm": "dqn"},
        "would change the replay buffer",
    ),
    (
        Phase(steps=48, hyperparameters={"prefill_steps": 99}),
        {"algorithm": "dqn"},
        "random steps come before the first phase alone; set it in the first phase",
    ),
    (
        Phase(steps=STEPS, hyperparameters={"normalize_rewards": True}),
        {},
        "keep the optimiser, normalize_observations and normalize_rewards",
    ),
    (
        Phase(steps=48, hyperparameters={"n_step": 2}),
        {"algorithm": "dqn.gru", "hyperparameters": {"priority_exponent": 0.6}},
        "keep sequence_length, burn_in and n_step",
    ),
    (
        Phase(steps=48, num_envs=3),
        {"algorithm": "dqn.gru"},
        "another number of environments would mix the sequences",
    ),
]


@pytest.mark.parametrize(("phase", "given", "said"), BAD)
def test_phases_that_do_not_fit_are_refused_before_anything_compiles(phase, given, said):
    with pytest.raises(RlkitError) as error:
        build(settings(Phase(steps=48), phase, epochs_per_checkpoint=1, **given))
    assert str(error.value).startswith("phase 2 of 2: ") and said in str(error.value)


@pytest.mark.parametrize(("steps", "is_enough"), [(104, False), (144, True)])
def test_sequences_of_a_later_phase_are_stored_by_its_first_update(steps, is_enough):
    """26 or 36 steps of each environment, and 64 of the phase's first rollout, for sequences of
    100.
    """
    longer = {"num_steps": 64, "sequence_length": 90, "burn_in": 10}
    table = {"prefill_steps": 100, "capacity": 4096, "batch_size": 90, "n_step": 1}
    table |= {"num_steps": 1, "sequence_length": 3, "burn_in": 2}
    given = {"algorithm": "dqn.gru", "num_envs": 4, "hyperparameters": table}
    phases = (Phase(steps=steps), Phase(steps=512, hyperparameters=longer))
    config = settings(*phases, epochs_per_checkpoint=1, **given)
    if is_enough:
        build(config).close()
        return
    told = r"sequence takes 100 steps, more than the 90 of .* let the phases before take 40 more"
    with pytest.raises(ConfigError, match=told):
        build(config)


def test_a_class_is_made_as_often_as_the_run_has_environments():
    phases = (Phase(steps=STEPS), Phase(steps=STEPS, env=CartPoleEnv))
    with build(settings(*phases, env="gymnasium/CartPole-v1", epochs_per_checkpoint=1)) as trainer:
        numbers = [phase.module.env.num_envs for phase in trainer._run.phases.whole.phases]
    assert numbers == [2, 2]


def test_arguments_of_environments_may_be_arrays(monkeypatch):
    """Arrays have no single answer to whether they are equal."""
    monkeypatch.setattr(registry, "_registered", {})
    registry.register_env("mine/Arrays-v0", lambda goal: Counter(goal=int(goal[1])))
    env = rlkit.make_env("mine/Arrays-v0", 2, goal=np.array([0, 4]))
    phases = [Phase(steps=STEPS, env_params={"goal": np.array([first, 4])}) for first in (5, 6)]
    with Trainer(
        env,
        None,
        algorithm_rows.agent_of("ppo", env),
        algorithm_rows.algorithm_of("ppo"),
        rlkit.TrainerConfig(epochs_per_checkpoint=1, enable_evaluation=False, debug=False),
        curriculum=Curriculum(phases=(Phase(steps=STEPS), *phases)),
    ) as trainer:
        found = [phase.module.env for phase in trainer._run.phases.whole.phases]
    assert found[0] is env and len({id(each) for each in found}) == 3


def test_an_adapter_has_its_number_of_environments_in_every_phase():
    env = rlkit.make_env(CART, 2)
    phases = (Phase(steps=STEPS, env=env), Phase(steps=STEPS, env=env, num_envs=4))
    with pytest.raises(ConfigError, match="num_envs=4, but env is an adapter of 2"):
        build(settings(*phases, epochs_per_checkpoint=1))


def test_advancing_needs_evaluations():
    phases = (Phase(steps=48, advance_at=1.0), Phase(steps=48))
    with pytest.raises(ConfigError, match="phase 1 of 2: advance_at needs evaluations"):
        build(settings(*phases))


def test_parts_built_in_python_need_whole_algorithms():
    env = rlkit.make_env(CART, 2)
    own = rlkit.ppo(algorithm_rows.config_of("ppo"), optimizer=optax.sgd(0.1))
    phases = (Phase(steps=STEPS), Phase(steps=STEPS, hyperparameters={"gamma": 0.5}))
    with pytest.raises(ConfigError, match=r"phase 2 of 2: .* parts built in Python \(optimizer\)"):
        Trainer(
            env,
            None,
            algorithm_rows.agent_of("ppo", env),
            own,
            rlkit.TrainerConfig(enable_evaluation=False),
            curriculum=Curriculum(phases=phases),
        )


# Resuming


CURRICULA = {
    "jittable": (
        {"num_seeds": 2, "hyperparameters": {"normalize_observations": True}},
        (
            Phase(steps=3 * STEPS, env_params={"length": 0.25}),
            Phase(steps=4 * STEPS, num_envs=4, hyperparameters={"learning_rate": 0.01}),
            Phase(steps=2 * STEPS, hyperparameters={"gamma": 0.5}),
        ),
    ),
    "replay": (
        {"algorithm": "dqn", "hyperparameters": {"capacity": 24, "priority_exponent": 0.6}},
        (
            Phase(steps=3 * STEPS),
            Phase(steps=2 * STEPS, num_envs=1),
            Phase(steps=2 * STEPS, hyperparameters={"gamma": 0.5}),
        ),
    ),
    "host": (
        {"env": "gymnasium/CartPole-v1"},
        (
            Phase(steps=2 * STEPS),
            Phase(steps=2 * STEPS, hyperparameters={"gamma": 0.5}),
            Phase(steps=4 * STEPS, num_envs=4),
        ),
    ),
    "mixture": (
        {
            "env": MIXTURE,
            "arguments": {"envs": [CART, {"id": CART, "arguments": {"params": {"length": 1.0}}}]},
        },
        (Phase(steps=2 * STEPS, weights=(1, 0)), Phase(steps=2 * STEPS, weights=(1, 3))),
    ),
    "host mixture": (
        {
            "env": MIXTURE,
            "arguments": {
                "envs": [
                    "gymnasium/CartPole-v1",
                    {"id": "gymnasium/CartPole-v1", "arguments": {"max_episode_steps": 5}},
                ]
            },
        },
        (Phase(steps=2 * STEPS, weights=(1, 1)), Phase(steps=2 * STEPS, weights=(1, 3))),
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", CURRICULA)
def test_a_run_stopped_after_any_iteration_goes_on_as_if_it_was_not(kind, tmp_path):
    """At the ends of phases as in their middle, to the bit."""
    given, phases = CURRICULA[kind]
    given = {**given, "epochs_per_checkpoint": 1, "max_queued": 1}

    def run(directory, at=None, restore=None):
        config = settings(*phases, **given, run_dir=str(directory), restore_checkpoint=restore)
        with build(config, callbacks=[StopAt(at)]) as trainer:
            trainer.run(trainer.seed)
            return trainer.outer_iteration, plain(trainer.state), trainer.plan

    total, wanted, plan = run(tmp_path / "whole")
    for at in range(1, total):
        directory = tmp_path / str(at)
        assert run(directory, at=at)[0] == at
        iteration, found, again = run(directory, restore="latest")
        assert (iteration, again) == (total, plan)
        same(found, wanted)


@pytest.mark.full
def test_a_phase_that_ended_early_stays_so_when_resumed(monkeypatch, tmp_path):
    phases = (Phase(steps=6 * STEPS, advance_at=10.0), Phase(steps=2 * STEPS))
    given = {"epochs_per_checkpoint": 1, "enable_evaluation": True, "run_dir": str(tmp_path / "a")}
    pretend(monkeypatch, 0, 10, *[0] * 20)
    with build(settings(*phases, **given), callbacks=[StopAt(3)]) as trainer:
        trainer.run(trainer.seed)
        assert trainer.phase == 1
    with reopen(tmp_path / "a") as trainer:
        trainer.run(trainer.seed)
        assert [phase.num_checkpoints for phase in trainer.plan.phases] == [1, 7]
        assert trainer.env_steps == 8 * STEPS
    rows = read_records(tmp_path / "a" / "metrics.jsonl")
    assert "continuing in phase 2 of 2" in [row.text for row in rows]


@pytest.mark.full
def test_a_changed_phase_goes_on_as_changed_if_that_is_accepted(tmp_path):
    phases = (Phase(steps=2 * STEPS), Phase(steps=3 * STEPS, hyperparameters={"gamma": 0.5}))
    given = {"epochs_per_checkpoint": 1, "run_dir": str(tmp_path / "a"), "max_queued": 1}
    with build(settings(*phases, **given), callbacks=[StopAt(3)]) as trainer:
        trainer.run(trainer.seed)
        assert trainer.state.learner.hyperparameters["gamma"] == 0.5
    path = tmp_path / "a" / "config.yaml"
    path.write_text(path.read_text().replace("gamma: 0.5", "gamma: 0.25"))
    with pytest.raises(RlkitError, match="curriculum"):
        reopen(tmp_path / "a").run()
    with reopen(tmp_path / "a", accept_differences=True) as trainer:
        trainer.run(trainer.seed)
        assert trainer.state.learner.hyperparameters["gamma"] == 0.25


@pytest.mark.full
def test_a_longer_run_trains_on_in_its_last_phase(tmp_path):
    phases = (Phase(steps=2 * STEPS), Phase(steps=2 * STEPS, num_envs=4))
    trained(*phases, epochs_per_checkpoint=1, run_dir=str(tmp_path / "a")).close()
    with reopen(tmp_path / "a", total_steps=8 * STEPS) as trainer:
        trainer.run(trainer.seed)
        assert trainer.env_steps == 8 * STEPS and trainer.phase == 1
        assert [phase.num_checkpoints for phase in trainer.plan.phases] == [2, 3]


@pytest.mark.full
def test_another_curriculum_cannot_go_on(tmp_path):
    phases = (Phase(steps=2 * STEPS), Phase(steps=2 * STEPS))
    given = {"epochs_per_checkpoint": 1, "run_dir": str(tmp_path / "a")}
    trained(*phases, **given).close()
    more = settings(*phases, Phase(steps=STEPS), **given, restore_checkpoint="latest")
    with pytest.raises(RlkitError, match="curriculum"), build(more) as trainer:
        trainer.run(trainer.seed)


def test_checkpoints_of_phases_that_differ_in_their_number_of_environments_are_ranked(tmp_path):
    """They are evaluated in the same environments, whose returns can be compared."""
    told = settings(
        Phase(steps=STEPS, num_envs=2),
        Phase(steps=STEPS, num_envs=4),
        Phase(steps=STEPS, env_params={"max_steps_in_episode": 5}),
        Phase(steps=STEPS, num_envs=4),
        enable_evaluation=True,
        run_dir=str(tmp_path / "run"),
    )
    with build(told) as trainer:
        evaluated = [parts.eval_env for parts in trainer._run.phases.all]
    assert evaluated[0] is evaluated[1] is evaluated[3] is not evaluated[2]
    assert [env.num_envs for env in evaluated] == [2, 2, 2, 2]


@pytest.mark.full
def test_the_environment_of_a_phase_is_not_reset_by_an_evaluation_in_it():
    """Also if the phases share the environments of their evaluations."""
    phases = (Phase(steps=STEPS), Phase(steps=2 * STEPS, num_envs=4))
    told = settings(*phases, env="gymnasium/CartPole-v1", enable_evaluation=True)
    with build(told) as trainer:
        trainer.run(told.seed)
        env = trainer.module.env
        assert trainer.phase == 1 and env.num_envs == 4
        with pytest.raises(ConfigError, match="this is the environment of the training"):
            trainer.evaluate(env=env)


@pytest.mark.parametrize(("array", "goal"), [(np.array, [2, 2]), (jnp.array, [1, 2, 3])])
def test_environments_made_with_other_arrays_are_evaluated_apart(monkeypatch, array, goal):
    monkeypatch.setattr(registry, "_registered", {})
    registry.register_env("mine/Goal-v0", lambda goal: Counter(goal=int(goal[1])))
    env, other = (make_env("mine/Goal-v0", 2, goal=array(x)) for x in ([1, 2], goal))
    agent = rlkit.actor_critic(env.observation_space, env.action_space)
    phases = Curriculum(phases=(Phase(steps=STEPS), Phase(steps=STEPS, env=other)))
    config = rlkit.TrainerConfig(num_checkpoints=4, debug=False)
    with Trainer(env, None, agent, rlkit.ppo(), config, curriculum=phases) as trainer:
        first, second = (parts.eval_env for parts in trainer._run.phases.all)
    assert first.spec[1]["goal"] is env.spec[1]["goal"]
    assert second.spec[1]["goal"] is other.spec[1]["goal"]
