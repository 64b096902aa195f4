"""The arithmetic of `make curves`: areas, intervals, records and tenths."""

import dataclasses

import numpy as np
import pytest

pytestmark = pytest.mark.fast


def test_a_curve_has_no_point_where_no_episode_ended():
    from intervals import area, curve

    found = curve([10.0, 0.0, 30.0], [2, 0, 3])
    np.testing.assert_array_equal(found, [5.0, np.nan, 10.0])
    assert area(found) == 7.5


def test_intervals_cover_the_difference_as_often_as_they_say():
    """Of two means of eight normal values each: 95 % aimed at, and a bootstrap of few is short."""
    from intervals import difference

    dice, covered = np.random.default_rng(1), 0
    for _ in range(200):
        ours, theirs = dice.normal(3.0, 1.0, 8), dice.normal(1.0, 2.0, 8)
        found = difference(ours.tolist(), theirs.tolist())
        assert found.value == pytest.approx(ours.mean() - theirs.mean())
        covered += found.low <= 2.0 <= found.high
    assert 170 <= covered <= 199


@pytest.mark.parametrize(
    ("ours", "theirs", "is_behind"), [(1.0, 2.0, True), (2.0, 1.0, False), (1.0, 1.05, False)]
)
def test_behind_is_what_excludes_zero(ours, theirs, is_behind):
    from intervals import difference

    spread = np.linspace(-0.2, 0.2, 8)
    assert difference((ours + spread).tolist(), (theirs + spread).tolist()).is_behind == is_behind


def test_episodes_fall_into_tenths_of_the_steps_after_the_prefill():
    """100 steps of prefill and 200 of learning: tenths of 20 steps, each with its last step."""
    from curve_serving import parts_of

    from tasks import OffPolicyTask

    task = OffPolicyTask(
        algorithm="sac", env="any", num_updates=200, prefill_steps=100, capacity=100
    )
    sums, episodes = parts_of([100, 101, 120, 121, 300], [7.0, 1.0, 2.0, 4.0, 8.0], task)
    np.testing.assert_array_equal(sums, [3.0, 4.0, *[0.0] * 7, 8.0])
    np.testing.assert_array_equal(episodes, [2, 1, *[0] * 7, 1])


def test_updates_of_the_zoos_dqn_are_rounds_of_gradient_steps():
    """8 after every 16 steps; other tasks have one after each step of all environments."""
    from cells import CELLS

    from rlkit_parts import SETTINGS

    task = CELLS["dqn-mountaincar-host"].task
    assert (task.env_steps, task.total_steps, task.gradient_steps) == (119_040, 120_048, 59_520)
    _, config = SETTINGS["dqn"](task)
    assert (config.num_steps, config.updates_per_step) == (16, 0.5)
    assert (config.loss, config.max_grad_norm) == ("huber", 10.0)
    _, config = SETTINGS["dqn"](CELLS["dqn-cartpole"].task)
    assert (config.num_steps, config.updates_per_step, config.loss) == (1, 0.1, "mse")


class Four:
    """Episodes of four steps, each with a reward of its action; as gymnax 0.0.9 steps."""

    def reset(self, key, params=None):
        return 0, 0

    def step(self, key, state, action, params=None):
        done = state == 3
        return 0, (state + 1) % 4, action, done, {}


def test_an_environment_counts_its_episodes_by_tenths():
    import jax
    import jax.numpy as jnp
    from curve_episodes import CountsEpisodes, curve

    from tasks import PPOTask

    task = PPOTask(
        env="any", num_envs=1, num_steps=4, num_updates=10, num_minibatches=1, learning_rate=1e-3
    )
    env = CountsEpisodes(Four(), task)
    _, state = env.reset(None)
    state = dataclasses.replace(state, env_state=jnp.int32(0))

    def step(state, reward):
        return env.step(None, state, reward)[1], None

    rewards = jnp.repeat(jnp.arange(10.0), 4)
    state, _ = jax.lax.scan(step, state, rewards)
    sums, counts = curve({"environments": jax.tree.map(lambda x: x[None], state)})
    np.testing.assert_array_equal(sums, 4.0 * np.arange(10))
    np.testing.assert_array_equal(counts, np.ones(10))


def row(seed, value):
    return {
        "seed": seed,
        "return_sums": [value] * 10,
        "episodes": [1] * 10,
        "seconds": 1.0,
        "revision": "abc",
        "versions": {},
    }


def test_records_are_added_seed_by_seed_and_say_what_is_missing(tmp_path):
    import curve_records
    from cells import CELLS

    name = "ppo-cartpole"
    seeds = list(range(CELLS[name].seeds))
    assert curve_records.missing(name, "rlkit", tmp_path) == seeds
    curve_records.add(name, "rlkit", row(1, 5.0), tmp_path)
    curve_records.add(name, "purejaxrl", row(0, 7.0), tmp_path)
    assert curve_records.missing(name, "rlkit", tmp_path) == [0, *seeds[2:]]
    curve_records.add(name, "rlkit", row(1, 6.0), tmp_path)
    found = {(r.contender, r.seed): r.curve[0] for r in curve_records.read(name, tmp_path)}
    assert found == {("rlkit", 1): 6.0, ("purejaxrl", 0): 7.0}


def test_records_of_other_settings_do_not_count(tmp_path, monkeypatch):
    import curve_records
    from cells import CELLS

    name = "ppo-cartpole"
    curve_records.add(name, "rlkit", row(0, 5.0), tmp_path)
    other = dataclasses.replace(CELLS[name].task, learning_rate=1.0)
    monkeypatch.setitem(CELLS, name, dataclasses.replace(CELLS[name], task=other))
    assert curve_records.read(name, tmp_path) == []


def test_tenths_behind_are_those_with_an_interval_below_zero():
    import curve_records
    import report

    def rows(contender, middle):
        return [
            curve_records.Row(
                contender,
                seed,
                {"return_sums": [1.0 + seed, middle + seed, 1.0] * 3 + [5.0], "episodes": [1] * 10},
            )
            for seed in range(4)
        ]

    ours, theirs = rows("rlkit", 1.0), rows("purejaxrl", 9.0)
    assert report.tenths_behind(ours, theirs) == [2, 5, 8]
    ours[0].fields["episodes"][1] = 0
    assert report.tenths_behind(ours, theirs) == [5, 8]


def test_variants_are_contenders_of_their_own():
    from cells import CELLS

    cell = CELLS["dqn-cartpole"]
    assert cell.contenders[:2] == ("rlkit", "purejaxrl")
    (variant,) = cell.contenders[2:]
    assert cell.changes(variant) == {"time_limits_terminate": True}
    assert cell.changes("rlkit") == {} and cell.changes("purejaxrl") is None


def test_both_sides_of_every_cell_can_be_trained():
    import report
    from cells import CELLS

    from rlkit_parts import FACTORIES, SETTINGS

    drivers = {path.stem for path in (report.page.PAGE.parents[1] / "benchmarks/drivers").iterdir()}
    for name, cell in CELLS.items():
        assert f"curve_{cell.reference}" in drivers and cell.reference in report._NAME, name
        algorithm = cell.task.kind[0]
        config = SETTINGS[algorithm](cell.task)[1]
        assert algorithm in FACTORIES and config.learning_rate == cell.task.learning_rate, name


def test_the_page_shows_the_records():
    import report

    import page

    assert page.shown(report.COMMAND) == report.table()
