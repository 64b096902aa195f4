"""The policy of a run in a directory of its own, small enough to share."""

import json
import shutil

import numpy as np
import pytest
import yaml

import rlkit
from rlkit.errors import CheckpointError
from rlkit.training.config import CheckpointerConfig
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.files.exported_policy import export_policy
from rlkit.training.policy import load_policy


@pytest.mark.parametrize(("scores", "chosen"), [((2.0, 1.0), 0), ((None, None), 1)])
def test_the_best_policy_or_the_latest_loads_elsewhere(scores, chosen, tiny, tmp_path):
    elsewhere, exported = tmp_path / "checkpoints", tmp_path / "exported"
    kept = CheckpointerConfig(directory=str(elsewhere))
    with tiny.trainer("dqn", run_dir=str(tmp_path / "run"), checkpointer_config=kept) as trainer:
        trainer.init(3)
        for score in scores:
            trainer.save_checkpoint(evaluation_score=score)
            trainer.train_epoch()
    description = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    with Checkpointer(kept, read_only=True) as checkpointer:
        metadata = export_policy(checkpointer, description, exported)
    original = rlkit.load_policy(tmp_path / "run")
    shutil.rmtree(elsewhere)
    policy = rlkit.load_policy(exported)
    assert policy.checkpoint_step == original.checkpoint_step == chosen
    assert metadata == {"step": chosen, "env_steps": original.env_steps, "return": None}
    obs = np.zeros((3, *policy.env.observation_space.shape), np.float32)
    np.testing.assert_array_equal(policy(obs), original(obs))
    with pytest.raises(CheckpointError, match="has no item 'learner'; it has policy"):
        tiny.trainer("dqn").load_checkpoint(exported)


def test_secrets_stay_behind(tiny, tmp_path):
    with tiny.trainer(run_dir=str(tmp_path / "run")) as trainer:
        trainer.run(3)
    description = trainer.description()
    description["env"]["arguments"] = {"api_key": "s3cr3t", "steps": 3}
    directory = CheckpointerConfig(directory=str(tmp_path / "run" / "checkpoints"))
    with Checkpointer(directory, read_only=True) as checkpointer:
        export_policy(checkpointer, description, tmp_path / "exported")
    files = [path for path in (tmp_path / "exported").rglob("*") if path.is_file()]
    assert not any(b"s3cr3t" in path.read_bytes() for path in files)
    stored = yaml.safe_load((tmp_path / "exported" / "config.yaml").read_text())
    assert stored["env"]["arguments"] == {"api_key": "<redacted>", "steps": 3}
    with pytest.raises(
        CheckpointError, match=r"api_key of its environments is a secret.*pass env="
    ):
        load_policy(tmp_path / "exported")
    (record,) = (path for path in files if path.parent.name == "record")
    assert json.loads(record.read_text())["body"]["metadata"]["logger"] == {}


def test_no_policy_is_told(tmp_path):
    with Checkpointer(CheckpointerConfig(directory=str(tmp_path / "checkpoints"))) as checkpointer:
        with pytest.raises(CheckpointError, match="holds no checkpoints; train and save first"):
            export_policy(checkpointer, {}, tmp_path / "exported")
        checkpointer.save(0, {"state": np.zeros(3)})
        description = {"trainer": {"checkpointer_config": {}}}
        with pytest.raises(CheckpointError, match="has no item 'policy'; it has state"):
            export_policy(checkpointer, description, tmp_path / "exported")
