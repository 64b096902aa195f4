"""The policy of a run in a directory of its own, small enough to share."""

import json

import numpy as np
import pytest
import yaml

import rlkit
from rlkit.errors import CheckpointError
from rlkit.training.config import CheckpointerConfig
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.files.exported_policy import export_policy


@pytest.mark.parametrize("is_evaluated", [True, False])
def test_the_best_policy_or_the_latest_loads_elsewhere(is_evaluated, tiny, tmp_path):
    run_dir, elsewhere, exported = (tmp_path / name for name in ("run", "checkpoints", "exported"))
    kept = CheckpointerConfig(directory=str(elsewhere), max_to_keep=3)
    config = {"run_dir": str(run_dir), "checkpointer_config": kept}
    with tiny.trainer("dqn", enable_evaluation=is_evaluated, **config) as trainer:
        trainer.run(3)
    description = yaml.safe_load((run_dir / "config.yaml").read_text())
    exported.mkdir()
    with Checkpointer(kept, read_only=True) as checkpointer:
        metadata = export_policy(checkpointer, description, exported)
        best = checkpointer.best_step()
    policy, original = rlkit.load_policy(exported), rlkit.load_policy(run_dir)
    assert (best is not None) == is_evaluated and metadata["step"] == original.checkpoint_step
    assert policy.checkpoint_step == original.checkpoint_step == (best or 3)
    assert policy.env_steps == original.env_steps == metadata["env_steps"]
    obs = np.zeros((3, *policy.env.observation_space.shape), np.float32)
    np.testing.assert_array_equal(policy(obs), original(obs))
    assert isinstance(metadata["return"], float) == is_evaluated
    with pytest.raises(CheckpointError, match="has no item 'learner'; it has policy"):
        tiny.trainer("dqn", num_checkpoints=4).load_checkpoint(exported)


def test_secrets_stay_behind(tiny, tmp_path):
    with tiny.trainer(run_dir=str(tmp_path / "run")) as trainer:
        trainer.run(3)
    description = trainer.description()
    description["env"]["arguments"] = {"api_key": "s3cr3t", "steps": 3}
    (tmp_path / "exported").mkdir()
    directory = CheckpointerConfig(directory=str(tmp_path / "run" / "checkpoints"))
    with Checkpointer(directory, read_only=True) as checkpointer:
        export_policy(checkpointer, description, tmp_path / "exported")
    files = [path for path in (tmp_path / "exported").rglob("*") if path.is_file()]
    assert not any(b"s3cr3t" in path.read_bytes() for path in files)
    stored = yaml.safe_load((tmp_path / "exported" / "config.yaml").read_text())
    assert stored["env"]["arguments"] == {"api_key": "<redacted>", "steps": 3}
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
