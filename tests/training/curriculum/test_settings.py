"""What a curriculum may say, and how long its phases are. Nothing here compiles."""

import dataclasses

import pytest
import yaml

from rlkit.errors import ConfigError
from rlkit.training import run_config
from rlkit.training.config import PhasePlan, TrainerConfig
from rlkit.training.curriculum import Curriculum, Phase, from_plain, replaced
from rlkit.training.phase_plan import (
    advanced,
    extended,
    phase_at,
    plan_phases,
    starts,
)

pytestmark = pytest.mark.fast

BAD_PHASES = [
    ({"steps": 0}, "steps"),
    ({"steps": 10, "weights": (-1.0,)}, "weights"),
    ({"steps": 10, "num_envs": 0}, "num_envs"),
    (
        {"steps": 10, "hyperparameters": [1]},
        "Phase.hyperparameters: input should be a valid dictionary",
    ),
    (
        {"steps": 10, "num_steps": 4, "hyperparameters": {"num_steps": 8}},
        "num_steps of a phase is set twice",
    ),
    ({"steps": 10, "num_steps": 4, "algorithm": object()}, "a phase sets algorithm and num_steps"),
    ({"steps": 10, "env": object(), "env_params": {"a": 1}}, "env_params go to"),
    ({"steps": 10, "env": object(), "weights": (0.5, 0.5)}, "weights go to"),
]


@pytest.mark.parametrize(("given", "said"), BAD_PHASES)
def test_bad_phases(given, said):
    with pytest.raises(ConfigError) as error:
        Phase(**given)
    assert said in str(error.value)


BAD_CURRICULA = [
    ({"phases": ()}, "a curriculum needs phases"),
    ({"phases": ({"steps": 3},)}, "a curriculum needs phases"),
    ({"phases": (Phase(name="a"), Phase(steps=3))}, "phase 1 of 2 (a) has no steps"),
    ({"phases": (Phase(steps=3, advance_at=1.0),)}, "has nothing to advance to"),
    ({"phases": (Phase(steps=3),), "evaluate_in": "env"}, "evaluate_in"),
]


@pytest.mark.parametrize(("given", "said"), BAD_CURRICULA)
def test_bad_curricula(given, said):
    with pytest.raises(ConfigError) as error:
        Curriculum(**given)
    assert said in str(error.value)


BAD_PLAIN = [
    (3, "a curriculum needs a list of phases, got 3"),
    ({"phase": []}, "a curriculum needs a list of phases"),
    ({"phases": [{"steps": 3}], "evaluat_in": "run"}, "did you mean 'evaluate_in'?"),
    ([{"steps": 3, "algorithm": "ppo"}], "phase 1: all phases train the same algorithm"),
    ([{"steps": 3}, {"env": {"id": "x"}}], "phase 2: env must be an id"),
    ([{"stesp": 3}], "phase 1: Phase has no field 'stesp'; did you mean 'steps'"),
    ([{"hidden_sizes": [8]}], "phase 1: a phase cannot change the network, got hidden_sizes; set"),
    ([{"steps": 3, "network": {}}], "phase 1: a phase cannot change the network, got network"),
    ([{"hyperparameters": {"activation": "relu"}}], "cannot change the network, got activation"),
    (["short"], "phase 1"),
]


@pytest.mark.parametrize(("given", "said"), BAD_PLAIN)
def test_bad_files(given, said):
    with pytest.raises(ConfigError) as error:
        from_plain(given)
    assert said in str(error.value)


def test_a_curriculum_goes_through_yaml_unchanged():
    text = """
    algorithm: ppo
    env: {id: gymnax/CartPole-v1, num_envs: 8}
    curriculum:
      evaluate_in: run
      phases:
        - {name: short, steps: 4096, env_params: {length: 0.25}, advance_at: 300}
        - {steps: 4096, num_envs: 16, num_steps: 64, hyperparameters: {learning_rate: 1.0e-4}}
    """
    config = run_config.from_dict(yaml.safe_load(text))
    assert config.curriculum == Curriculum(
        evaluate_in="run",
        phases=(
            Phase(name="short", steps=4096, env_params={"length": 0.25}, advance_at=300.0),
            Phase(steps=4096, num_envs=16, num_steps=64, hyperparameters={"learning_rate": 1.0e-4}),
        ),
    )
    plain = yaml.safe_load(yaml.safe_dump(run_config.to_dict(config)))
    assert run_config.from_dict(plain) == config
    listed = from_plain([{"steps": 5}, {"steps": 6}])  # the list of phases alone
    assert listed == Curriculum(phases=(Phase(steps=5), Phase(steps=6)))
    assert from_plain(None) is None and from_plain(config.curriculum) is config.curriculum


def test_arguments_of_the_environments_of_a_phase():
    cart, own = "gymnax/CartPole-v1", {"params": {"length": 1.0, "tau": 0.01}}
    phase = Phase(steps=1, env_params={"length": 2.0})
    changed = replaced(own, phase, run_env=cart, env=cart)
    assert changed == {"params": {"length": 2.0, "tau": 0.01}} and own["params"]["length"] == 1.0
    other = replaced(own, phase, run_env=cart, env="gymnax/Acrobot-v1")
    assert other == {"params": {"length": 2.0}}  # those of the run are for its environment
    host = replaced({"g": 9.8}, Phase(steps=1, env_params={"g": 1.0}), run_env="a/b", env="a/b")
    assert host == {"g": 1.0}
    mixed = Phase(steps=1, weights=(1.0, 2.0))
    assert replaced({"envs": ["a"]}, mixed, run_env="rlkit/Mixture", env="rlkit/Mixture") == {
        "envs": ["a"],
        "weights": [1.0, 2.0],
    }
    with pytest.raises(ConfigError, match="weights are those of a mixture"):
        replaced({}, mixed, run_env=cart, env=cart)


# Lengths. Iterations have 100 steps, unless a phase says otherwise.


def plan(*steps, sizes=None, prefill=0, **config):
    curriculum = Curriculum(phases=tuple(Phase(steps=count) for count in steps))
    config = {"num_checkpoints": None, **config}
    return plan_phases(
        curriculum,
        TrainerConfig(**config),
        env_steps_per_iteration=sizes or [100] * len(steps),
        prefill_steps=prefill,
    )


def lengths(found):
    """(outer iterations, iterations in each) of the phases."""
    return [(phase.num_checkpoints, phase.epochs_per_checkpoint) for phase in found.phases]


def test_phases_are_rounded_up_to_whole_outer_iterations():
    # 1000 and 2050 steps are 10 and 21 iterations; 6 outer iterations would have 6 of them each.
    # Of 3, 4, 5 and 6 iterations, 3 rounds 31 to 12 + 21 = 33, 4 to 36, 5 to 35, 6 to 36.
    found = plan(1000, 2050, num_checkpoints=6)
    assert lengths(found) == [(4, 3), (7, 3)]
    assert found.num_checkpoints == 11 and found.total_steps == 3300
    assert starts(found) == [0, 4]


def test_a_single_phase_is_as_long_as_a_run_without_a_curriculum():
    from rlkit.training.config import make_plan

    for total in (1000, 1050, 77):
        config = TrainerConfig(total_steps=total, num_checkpoints=4)
        own = make_plan(config, env_steps_per_iteration=100, prefill_steps=30)
        found = plan(total, num_checkpoints=4, prefill=30)
        assert dataclasses.replace(found, phases=()) == own


def test_iterations_of_another_size_have_outer_iterations_of_their_own():
    found = plan(1000, 1000, sizes=[100, 500], num_checkpoints=4)
    assert lengths(found) == [(2, 5), (2, 1)]
    assert [found.steps_up_to(i) for i in range(5)] == [0, 500, 1000, 1500, 2000]


def test_epochs_per_checkpoint_is_that_of_all_phases():
    assert lengths(plan(1000, 900, epochs_per_checkpoint=4)) == [(3, 4), (3, 4)]


def test_the_prefill_is_part_of_the_first_phase():
    found = plan(1000, 500, prefill=200, epochs_per_checkpoint=1)
    assert lengths(found) == [(8, 1), (5, 1)] and found.total_steps == 1500


def test_total_steps_end_the_last_phase():
    assert lengths(plan(500, 100, total_steps=900, epochs_per_checkpoint=1)) == [(5, 1), (4, 1)]
    curriculum = Curriculum(phases=(Phase(steps=500), Phase()))
    config = TrainerConfig(total_steps=700, epochs_per_checkpoint=1)
    found = plan_phases(curriculum, config, env_steps_per_iteration=[100, 100], prefill_steps=0)
    assert lengths(found) == [(5, 1), (2, 1)]


BAD_LENGTHS = [
    ({"total_steps": 500}, "the phases before the last one take 500 steps"),
    ({"num_checkpoints": 5, "epochs_per_checkpoint": 2}, "are redundant"),
    ({"prefill": 600}, "does not exceed the 600 random steps"),
]


@pytest.mark.parametrize(("given", "said"), BAD_LENGTHS)
def test_bad_lengths(given, said):
    with pytest.raises(ConfigError) as error:
        plan(500, 100, **given)
    assert said in str(error.value)


def test_a_last_phase_without_steps_needs_total_steps():
    curriculum = Curriculum(phases=(Phase(steps=500), Phase(name="end")))
    with pytest.raises(ConfigError, match=r"phase 2 of 2 \(end\) has no steps"):
        plan_phases(
            curriculum,
            TrainerConfig(num_checkpoints=4),
            env_steps_per_iteration=[100, 100],
            prefill_steps=0,
        )


def test_the_phase_of_an_outer_iteration():
    found = plan(300, 200, 100, epochs_per_checkpoint=1)
    assert starts(found) == [0, 3, 5]
    assert [phase_at(found, i) for i in range(8)] == [0, 0, 0, 0, 1, 1, 2, 2]


def test_a_phase_that_ends_early_leaves_its_steps_to_the_last():
    found = plan(1000, 200, 500, epochs_per_checkpoint=1)
    shorter = advanced(found, 4, total_steps=found.total_steps)
    assert lengths(shorter) == [(4, 1), (2, 1), (11, 1)]
    assert shorter.total_steps == found.total_steps
    second = advanced(shorter, 5, total_steps=found.total_steps)
    assert lengths(second) == [(4, 1), (1, 1), (12, 1)]


def test_a_last_phase_of_larger_iterations_takes_at_least_what_is_left():
    found = plan(1000, 900, sizes=[100, 300], epochs_per_checkpoint=1)
    shorter = advanced(found, 8, total_steps=found.total_steps)  # 200 steps earlier
    assert lengths(shorter) == [(8, 1), (4, 1)] and shorter.total_steps == 2000


def test_a_longer_run_has_a_longer_last_phase():
    found = plan(500, 300, epochs_per_checkpoint=1)
    assert lengths(extended(found, 1050, 1)) == [(5, 1), (6, 1)]
    assert extended(found, 10, 0) == found
    assert found.phases[0] == PhasePlan(
        num_checkpoints=5, epochs_per_checkpoint=1, env_steps_per_iteration=100
    )
