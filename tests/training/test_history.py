"""What a Trainer keeps and logs of outer iterations, and of single ones on request."""

import gc

import jax
import numpy as np
import pytest
from host_twins import HostCounter
from tiers import in_full

import rlkit
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.history import History
from rlkit.training.logs.records import read_records
from rlkit.training.policy import load_policy


def train_rows(run, seed=None):
    records = read_records(f"{run}/metrics.jsonl")
    return [row for row in records if row.kind == "train" and row.seed == seed]


def test_history_holds_training_and_evaluations(tiny):
    with tiny.trainer(eval_every=2) as trainer:
        assert trainer.run(0) == trainer.history.evaluations
        training, evaluations = trainer.history.training, trainer.history.evaluations
    assert [row["env_steps"] for row in training] == [32, 64, 96]
    assert [row["updates"] for row in training] == sorted(row["updates"] for row in training)
    assert all(np.isfinite(row["loss"]) and "train/loss" not in row for row in training)
    assert [row.get("env_steps") for row in evaluations] == [None, 64, 96]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "num_seeds", "kind"),
    [
        in_full(("dqn", 2, "jittable")),
        ("ppo", 1, "jittable"),
        in_full(("ppo", 2, "host")),
        in_full(("ppo", 2, "jittable")),
        in_full(("dqn", 1, "host")),
        in_full(("dqn", 2, "host")),
    ],
)
def test_each_iteration_is_logged_on_request(tiny, tmp_path, name, num_seeds, kind):
    """Their average is what is logged otherwise, and training is the same."""
    digests = []
    for choice in (False, True):
        env = GymnasiumAdapter(HostCounter, 2) if kind == "host" else None
        run = str(tmp_path / str(choice))
        settings = {"num_seeds": num_seeds, "log_iterations": choice, "num_checkpoints": 2}
        with tiny.trainer(name, env=env, run_dir=run, share=False, **settings) as trainer:
            trainer.run(0)
            digests.append(tree_digest(trainer.state.learner))
            plan, training = trainer.plan, trainer.history.training
        if env is not None:
            env.close()
    assert digests[0] == digests[1]
    seeds = [None] if num_seeds == 1 else [None, 0, 1]
    for seed in seeds:
        wholes, singles = (train_rows(tmp_path / choice, seed) for choice in ("False", "True"))
        assert len(wholes) == 2 and len(singles) == 4
        size = plan.env_steps_per_iteration
        ends = [plan.prefill_steps + size * n for n in (1, 2, 3, 4)]
        assert [row.env_steps for row in singles] == ends
        for index, whole in enumerate(wholes):
            pair = singles[2 * index : 2 * index + 2]
            assert pair[1].updates == whole.updates and pair[0].updates < pair[1].updates
            for metric in ("train/loss", "train/grad_norm"):
                mean = np.mean([row.metrics[metric] for row in pair])
                np.testing.assert_allclose(mean, whole.metrics[metric], rtol=1e-5)
    assert [row["env_steps"] for row in training] == ends


def test_checkpoints_and_policies_hold_the_latest_metrics(tiny, tmp_path):
    with tiny.trainer(run_dir=str(tmp_path / "run")) as trainer:
        trainer.run(0)
        env, agent = trainer.module.env, trainer.module.agent
        last = trainer.history.training[-1]
    metrics = load_policy(tmp_path / "run", "latest", env=env, agent=agent).metrics
    assert metrics["train/loss"] == last["loss"]
    returns = trainer.history.evaluations[-1]["return"]
    np.testing.assert_allclose(metrics["eval/avg_return"], returns.mean(), rtol=1e-6)


def test_a_long_history_keeps_the_newest_entries(monkeypatch):
    monkeypatch.setattr("rlkit.training.history.MAX_ENTRIES", 4)
    history = History()
    for index in range(6):
        history.add([{"loss": float(index)}], {"return": np.full(2, index)})
    assert [row["loss"] for row in history.training] == [2, 3, 4, 5]
    assert [row["return"][0] for row in history.evaluations] == [2, 3, 4, 5]
    assert [row["return"][0] for row in history.since(4)] == [4, 5]
    assert len(history.since(1)) == 4 and history.since(6) == []


def test_evaluations_own_their_arrays(tiny):
    """Views of what the device returned would keep its buffers, some kilobytes each."""
    with tiny.trainer() as trainer:
        for evaluation in trainer.run(0):
            assert all(x.flags.owndata for x in jax.tree.leaves(evaluation) if np.ndim(x))


@pytest.mark.full
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_outer_iterations_leave_no_objects_behind(tiny, tmp_path, name):
    """Each is evaluated, logged and saved, as in a run of days."""
    counts = {}

    class Count(rlkit.Callback):
        def on_iteration_end(self, trainer, iteration, metrics):
            if iteration in range(10, 20) or iteration in range(50, 60):
                gc.collect()
                counts[iteration] = len(gc.get_objects())

    settings = {"num_checkpoints": 60, "epochs_per_checkpoint": 1, "log_iterations": True}
    with tiny.trainer(name, run_dir=str(tmp_path / "run"), callbacks=[Count()], **settings) as run:
        run.run(0)
    # a save that is being written has up to 700 of its own, hence the highest of ten counts
    early, late = (max(counts[n + k] for k in range(10)) for n in (10, 50))
    assert late - early < 5 * 40
