"""What a checkpoint holds is needed, leaf by leaf: a resumed run in which one of them has its
initial value, as if the checkpoint had left it out, is not the uninterrupted run.

The leaves are those of the state itself, so that a new field is tested without a line here.
`test_every_field_of_the_state_is_needed` of test_resume.py tests fields as a whole, by default.
"""

import re

import algorithm_rows
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import by_default, in_full

from rlkit.agents.base import memory_for_losses
from rlkit.training.callbacks import Callback
from rlkit.training.files.checkpoint_leaves import tree_digest

SEED = 2  # of which episodes are in progress when it is resumed and when it ends
OFF_POLICY = {"capacity": 200, "n_step": 3}
CASES = {  # environment, and settings
    "ppo": ("gymnax/CartPole-v1", {"num_epochs": 2} | algorithm_rows.NORMALIZED),
    "sac": ("gymnax/Pendulum-v1", OFF_POLICY),
    "dqn": ("gymnax/CartPole-v1", OFF_POLICY | {"priority_exponent": 0.6}),
}
# Leaves that need not be saved, and why.
UNNEEDED = {
    r"\.learner\.total_steps": "the plan of the run sets it",
    r"\.learner\.(env_steps|updates)\.high": "0 for the first 2**32 steps",
    r"\.learner\.opt_state.*\.learning_rate": "each update writes it, for the logs",
    r"\.local\.env_state\.params\..*": "settings of the environment",
}
UNNEEDED_OFF_POLICY = {r"\.local\.discounted_return": "0 unless rewards are normalised"}
UNNEEDED_IN_PENDULUM = {r"\.local\.env_state\.envs\.last_u": "for pictures; each step writes it"}


EXPLORING = {name: ("gymnax/Pendulum-v1", {}) for name in algorithm_rows.EXPLORING}


class Metrics(Callback):
    """The training metrics of the last outer iteration, in which running episodes show."""

    def on_iteration_end(self, trainer, iteration, metrics):
        self.last = {name: x for name, x in metrics.items() if name != "steps_per_second"}


@pytest.mark.parametrize("algorithm", [in_full(case) for case in CASES])
def test_every_leaf_that_a_checkpoint_leaves_out_is_missed(
    tiny, tmp_path, algorithm, record_property
):
    env, hyper = CASES[algorithm]
    metrics = Metrics()

    def trainer(**files):
        settings = {"epochs_per_checkpoint": 1, "callbacks": [metrics]}
        return tiny.trainer(algorithm, env=env, hyper=hyper, **settings, **files)

    def finished(trainer):
        trainer.run()
        assert trainer.outer_iteration == 3
        return tree_digest(trainer.state), metrics.last

    with trainer(checkpointer=tmp_path) as whole:
        initial = jax.tree.leaves(jax.tree.map(jnp.copy, whole.init(SEED)))
        uninterrupted = finished(whole)
    missed, unmissed = [], []
    with trainer() as resumed:
        resumed.load_checkpoint(tmp_path, 2)
        assert finished(resumed) == uninterrupted
        for number, value in enumerate(initial):
            state = resumed.load_checkpoint(tmp_path, 2)
            found, structure = jax.tree_util.tree_flatten_with_path(state)
            leaves = [leaf for _, leaf in found]
            leaves[number] = jnp.copy(value)
            resumed.state = jax.tree.unflatten(structure, leaves)
            noticed = finished(resumed) != uninterrupted
            (missed if noticed else unmissed).append(jax.tree_util.keystr(found[number][0]))
    record_property("cases", len(missed))
    patterns = [*UNNEEDED, *(UNNEEDED_OFF_POLICY if algorithm != "ppo" else ())]
    patterns += UNNEEDED_IN_PENDULUM if algorithm == "sac" else ()
    unneeded = re.compile("|".join(patterns))
    assert [path for path in unmissed if not unneeded.fullmatch(path)] == []
    assert [path for path in missed if unneeded.fullmatch(path)] == []
    assert len(missed) >= 24  # nothing was left out by mistake


@pytest.mark.full
@pytest.mark.parametrize("algorithm", by_default(["sac.pink"], EXPLORING))
def test_noise_goes_on_where_it_was(tiny, tmp_path, algorithm):
    """A resumed run is the uninterrupted one with the state of its noise, and without a leaf of it,
    as if new episodes had begun, it is not.
    """
    env, hyper = EXPLORING[algorithm]

    def trainer(**files):
        settings = {"epochs_per_checkpoint": 1, "enable_evaluation": False}
        return tiny.trainer(algorithm, env=env, hyper=hyper, **settings, **files)

    def finished(trainer):
        trainer.run()
        assert trainer.outer_iteration == 3
        return tree_digest(trainer.state)

    with trainer(checkpointer=tmp_path) as whole:
        initial = jax.tree.map(jnp.copy, whole.init(SEED).local.carry)
        uninterrupted = finished(whole)
    with trainer() as resumed:
        carry = jax.device_get(resumed.load_checkpoint(tmp_path, 2).local.carry)
        assert (carry.age > 0).all()
        assert finished(resumed) == uninterrupted
        for name in ("age", "values"):
            state = resumed.load_checkpoint(tmp_path, 2)
            dropped = state.local.carry.replace(**{name: jnp.copy(getattr(initial, name))})
            resumed.state = state.replace(local=state.local.replace(carry=dropped))
            assert finished(resumed) != uninterrupted, name


CARRIED = {name: algorithm_rows.long_episodes(name) for name in algorithm_rows.MEMORY}


@pytest.mark.full
@pytest.mark.parametrize("algorithm", CARRIED)
def test_memory_goes_on_where_it_was(tiny, tmp_path, algorithm):
    """A resumed run is the uninterrupted one with its memory, and without an array of it it is not.

    The memory of a rollout's steps, from which losses learn, begins with the one that is saved.
    """

    def trainer(**files):
        settings = {"epochs_per_checkpoint": 1, "enable_evaluation": False}
        return tiny.trainer(algorithm, env=CARRIED[algorithm], **settings, **files)

    def finished(trainer):
        trainer.run()
        assert trainer.outer_iteration == 3
        return tree_digest(trainer.state)

    with trainer(checkpointer=tmp_path) as whole:
        whole.init(SEED)
        uninterrupted = finished(whole)
    with trainer() as resumed:
        carry = memory_for_losses(resumed.load_checkpoint(tmp_path, 2).local.carry)
        assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(carry))
        assert finished(resumed) == uninterrupted
        for number in range(len(jax.tree.leaves(carry))):
            state = resumed.load_checkpoint(tmp_path, 2)
            leaves, structure = jax.tree.flatten(state.local.carry)
            kept = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
            dropped = [jnp.zeros_like(x) if x is kept[number] else x for x in leaves]
            carry = jax.tree.unflatten(structure, dropped)
            resumed.state = state.replace(local=state.local.replace(carry=carry))
            assert finished(resumed) != uninterrupted, number
