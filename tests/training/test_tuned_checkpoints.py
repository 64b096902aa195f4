"""What a checkpoint holds depends neither on `RLKIT_CPU_TUNING` nor on the device."""

import algorithm_rows as rows
import jax
import numpy as np
import pytest
from tiers import in_full

from rlkit.training.core.module import RLModule
from rlkit.xla_cpu.switch import VARIABLE


@pytest.mark.fast
@pytest.mark.parametrize("name", rows.NAMES)
def test_every_state_has_one_form(tiny, monkeypatch, name):
    env = tiny.env(rows.training_env(name))
    forms = []
    for setting, backend in (("on", "cpu"), ("off", "cpu"), ("on", "gpu")):
        monkeypatch.setenv(VARIABLE, setting)
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        module = RLModule(
            env=env,
            agent=tiny.agent(env, name),
            algorithm=tiny.algorithm(name),
            total_steps=100.0,
        )
        forms.append(jax.eval_shape(module.init_train_state, jax.random.key(0)))
    for form in forms[1:]:
        assert jax.tree.structure(form) == jax.tree.structure(forms[0])
        assert [(x.shape, x.dtype) for x in jax.tree.leaves(form)] == [
            (x.shape, x.dtype) for x in jax.tree.leaves(forms[0])
        ]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "num_seeds", "before", "after"),
    [
        ("ppo", 2, "on", "off"),
        in_full(("dqn", 1, "off", "on")),
        in_full(("ppo", 2, "off", "on")),
        in_full(("dqn", 1, "on", "off")),
    ],
)
def test_a_run_goes_on_under_the_other_setting(
    tiny, monkeypatch, tmp_path, name, num_seeds, before, after
):
    """From the same bits; what is computed from there differs by rounding."""
    settings = {
        "num_seeds": num_seeds,
        "epochs_per_checkpoint": 1,
        "enable_evaluation": False,
        "run_dir": str(tmp_path / "run"),
        "share": False,
    }
    monkeypatch.setenv(VARIABLE, before)
    with tiny.trainer(name, num_checkpoints=1, **settings) as first:
        first.run(0)
        saved = learned(first.state)
    monkeypatch.setenv(VARIABLE, after)
    with tiny.trainer(name, num_checkpoints=1, restore_checkpoint="latest", **settings) as second:
        jax.tree.map(np.testing.assert_array_equal, learned(second.init(0)), saved)
        second.run()
        assert second.outer_iteration == 2


def learned(state):
    learner = state.learner
    return jax.device_get((learner.params, learner.target_params, learner.opt_state))
