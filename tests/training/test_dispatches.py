"""How many programs of its own an outer iteration calls: exact numbers, for each call costs what a
small update costs.
"""

import collections

import pytest
from host_twins import HostCounter
from tiers import by_default, in_full

from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.training.compile import parallel_seeds as seed_groups
from rlkit.training.compile.aot_compile import Compiled
from rlkit.training.compile.parallel_seeds import ParallelSeeds
from rlkit.training.programs.host_functions import HostFunctions
from rlkit.training.programs.schedules.compiled_host_loop import CompiledLoop

OUTER, EPOCHS, NUM_STEPS = 3, 2, 8  # outer iterations; iterations in each; steps of a rollout


@pytest.fixture
def count(monkeypatch):
    """Calls of a trainer's compiled functions by their names, from when it is called on."""

    def begin(trainer):
        calls = collections.Counter()
        names = {}
        for name, value in vars(trainer.program).items():
            if isinstance(value, ParallelSeeds):
                names |= {
                    id(value._part): "part",
                    id(value.function): name,
                    id(value._join): "join",
                }
            elif isinstance(value, CompiledLoop):
                names[id(value.program)] = "loop"
            elif isinstance(value, HostFunctions):
                names |= {id(function): name for name, function in vars(value).items()}
            elif isinstance(value, Compiled):
                names[id(value)] = name
        original = Compiled.__call__

        def counted(self, *arguments):
            calls[names.get(id(self), "evaluate")] += 1  # which is in no attribute
            return original(self, *arguments)

        monkeypatch.setattr(Compiled, "__call__", counted)
        return calls

    return begin


def run(tiny, count, **settings):
    trainer = tiny.trainer(
        num_checkpoints=OUTER, epochs_per_checkpoint=EPOCHS, share=False, **settings
    )
    trainer.init(0)
    calls = count(trainer)
    trainer.run()
    trainer.close()
    return dict(calls)


@pytest.mark.parametrize(
    ("name", "num_seeds"),
    by_default([("ppo", 2)], [("ppo", 1), ("ppo", 2), ("dqn", 1), ("dqn", 2)]),
)
def test_on_the_device_an_outer_iteration_is_one_call(tiny, count, monkeypatch, name, num_seeds):
    monkeypatch.setattr(seed_groups, "cores", lambda: 1)
    found = run(tiny, count, algorithm=name, num_seeds=num_seeds)
    assert found == {"outer": OUTER, "evaluate": 1 + OUTER}


def test_groups_of_seeds_are_a_call_each_and_those_that_part_and_join_them(
    tiny, count, monkeypatch
):
    monkeypatch.setattr(seed_groups, "cores", lambda: 2)
    found = run(tiny, count, num_seeds=3)
    groups = 2
    evaluated = (1 + OUTER) * (groups + groups + 1)
    assert found == {
        "part": groups * OUTER,
        "outer": groups * OUTER,
        "join": OUTER,
        "evaluate": evaluated,
    }


@pytest.mark.parametrize("num_seeds", [in_full(1), 2])
def test_a_checkpoint_is_one_more_call(tiny, count, monkeypatch, tmp_path, num_seeds):
    monkeypatch.setattr(seed_groups, "cores", lambda: 1)
    found = run(tiny, count, num_seeds=num_seeds, checkpointer=tmp_path)
    assert found == {"outer": OUTER, "evaluate": 1 + OUTER, "copy": 1 + OUTER}


@pytest.mark.parametrize(("overlap", "acted"), [("none", 1), ("acting", 2), in_full(("update", 1))])
def test_on_the_host_an_iteration_is_a_call_for_each_step_and_one_to_learn(
    tiny, count, overlap, acted
):
    env = GymnasiumAdapter(HostCounter, 2, floats=True)
    found = run(tiny, count, env=env, overlap=overlap, enable_evaluation=False)
    iterations = OUTER * EPOCHS
    expected = {
        "keys_of_rollout": iterations,
        "pack": iterations,
        "act": acted * NUM_STEPS * iterations,
        "learn": iterations,
    }
    assert found == expected | ({"copy_policy": iterations} if overlap == "update" else {})


@pytest.mark.full
@pytest.mark.parametrize("num_seeds", [1, 2])
@pytest.mark.parametrize("overlap", ["none", "update"])
def test_on_the_host_single_steps_off_policy_are_one_call_but_for_the_first(
    tiny, count, overlap, num_seeds
):
    env = GymnasiumAdapter(HostCounter, 2, floats=True)
    settings = {
        "algorithm": "dqn",
        "hyper": {"num_steps": 1, "updates_per_step": 0.5},
        "enable_evaluation": False,
    }
    found = run(tiny, count, env=env, overlap=overlap, num_seeds=num_seeds, **settings)
    expected = {"keys_of_rollout": OUTER, "act": OUTER, "loop": OUTER}
    assert found == expected | ({"copy_policy": OUTER} if overlap == "update" else {})


def test_on_the_host_a_single_step_on_its_own_is_three_calls(tiny, count):
    env = GymnasiumAdapter(HostCounter, 2, floats=True)
    hyper = {"num_steps": 1, "updates_per_step": 0.5}
    trainer = tiny.trainer(
        num_checkpoints=1,
        algorithm="dqn",
        hyper=hyper,
        env=env,
        enable_evaluation=False,
        share=False,
    )
    trainer.init(0)
    calls = count(trainer)
    trainer.train_step()
    trainer.close()
    assert dict(calls) == {"keys_of_rollout": 1, "act": 1, "learn": 1}
