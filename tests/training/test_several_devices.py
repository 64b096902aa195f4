"""Runs on several devices, as a user starts, resumes and moves them."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
import yaml
from small_trainers import NUM_ENVS, OUTER, trainer_of
from stopping import StopAt

import rlkit
from rlkit.cli.main import main
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.registry import make_env
from rlkit.errors import CheckpointError, ConfigError
from rlkit.training.config import TrainerConfig
from rlkit.training.curriculum import Curriculum, Phase
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.logs.records import read_records
from rlkit.training.trainer import Trainer


def trained(*arguments, **settings):
    with trainer_of(*arguments, **settings) as trainer:
        trainer.run(0)
        return tree_digest(trainer.state), trainer


def stopped():
    return {"callbacks": [StopAt(1)]}


def told(run_dir):
    rows = read_records(run_dir / "metrics.jsonl")
    return "\n".join(row.text for row in rows if row.text)


@pytest.mark.full
@pytest.mark.parametrize("name", ["ppo", "dqn", "sac", "td3", "pqn"])
@pytest.mark.parametrize("num_seeds", [1, 2])
def test_resumed_ends_as_uninterrupted(name, num_seeds, tmp_path):
    both = {"devices": 2, "num_seeds": num_seeds}
    whole, _ = trained(name, run_dir=str(tmp_path / "whole"), **both)
    part = both | {"run_dir": str(tmp_path / "part")}
    trained(name, others=stopped(), **part)
    resumed, _ = trained(name, restore_checkpoint="auto", **part)
    assert resumed == whole


@pytest.mark.full
@pytest.mark.parametrize("name", ["ppo", "dqn", "ppo.gru"])
def test_resumed_on_the_host_ends_as_uninterrupted(name, tmp_path):
    def env():
        return GymnasiumAdapter("CartPole-v1", NUM_ENVS)

    whole, _ = trained(name, env=env(), devices=2, run_dir=str(tmp_path / "whole"))
    part = {"devices": 2, "run_dir": str(tmp_path / "part")}
    trained(name, env=env(), others=stopped(), **part)
    resumed, _ = trained(name, env=env(), restore_checkpoint="auto", **part)
    assert resumed == whole


@pytest.mark.full  # test_a_state_moves_to_other_devices stands for it
@pytest.mark.parametrize("name", ["ppo", "dqn", "sac", "ppo.gru"])
def test_a_run_goes_on_with_other_devices(name, tmp_path):
    run = {"run_dir": str(tmp_path / "run"), "table": {"priority_exponent": 0.6}}
    with trainer_of(name, devices=2, others=stopped(), **run) as trainer:
        trainer.run(0)
        learner, steps = tree_digest(trainer.state.learner), trainer.env_steps
    with trainer_of(name, restore_checkpoint="auto", **run) as trainer:
        assert tree_digest(trainer.init(0).learner) == learner
        trainer.run()
        assert trainer.env_steps > steps and trainer.state.local.key.shape == ()
    with trainer_of(
        name, devices=2, restore_checkpoint="auto", num_checkpoints=OUTER + 1, **run
    ) as trainer:
        trainer.run(0)
        assert trainer.state.local.key.shape == (2,) and trainer.outer_iteration == OUTER + 1
    text = told(tmp_path / "run")
    assert "2 devices (cpu): each trains 2 of the 4 environments" in text
    assert "trained on 2 devices and continues on 1" in text
    stored = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert stored["trainer"]["devices"] == 2  # those that it continued on
    assert "trained on 1 device and continues on 2" in text


@pytest.mark.full
@pytest.mark.parametrize(("batch_size", "is_told"), [(18, True), (16, False)])
def test_batches_of_more_sequences_than_on_one_device_are_told(batch_size, is_told, tmp_path):
    """18 steps are 5 sequences of 4, which two devices cannot share."""
    table, run_dir = {"batch_size": batch_size}, tmp_path / "run"
    with trainer_of("dqn.gru", devices=2, table=table, run_dir=str(run_dir)) as trainer:
        trainer.init(0)
    sentence = (
        "each gradient step learns from 6 sequences, where one device learns from 5: 5 cannot be"
        " divided among 2 devices; batch_size=16 or 24 can"
    )
    assert (sentence in told(run_dir)) == is_told


@pytest.mark.full
def test_a_deterministic_run_stays_on_its_devices(tmp_path, monkeypatch):
    monkeypatch.setenv("NPROC", "1")
    run = {"run_dir": str(tmp_path / "run"), "deterministic": True}
    trained(devices=2, others=stopped(), **run)
    with (
        trainer_of(restore_checkpoint="auto", **run) as trainer,
        pytest.raises(CheckpointError, match="trained on 2 devices, here it is on 1"),
    ):
        trainer.run(0)


@pytest.mark.full
def test_a_deterministic_run_keeps_its_shares_of_the_seeds(tmp_path, monkeypatch):
    monkeypatch.setenv("NPROC", "1")
    run = {"run_dir": str(tmp_path / "run"), "deterministic": True, "num_seeds": 2}
    trained(devices=2, shard="seeds", others=stopped(), **run)
    with (
        trainer_of(restore_checkpoint="auto", **run) as trainer,
        pytest.raises(CheckpointError, match="trained on 2 devices, here it is on 1"),
    ):
        trainer.run(0)


@pytest.mark.full
@pytest.mark.parametrize("devices", [2, 1])
def test_no_device_gets_the_whole_of_a_restored_state(devices, tmp_path):
    """It may be too large for one. From other devices, it comes by the memory of the host."""
    run = {"run_dir": str(tmp_path / "run")}
    trained("dqn", devices=devices, others=stopped(), **run)
    with trainer_of("dqn", devices=2, restore_checkpoint="auto", **run) as trainer:
        memory = jax.tree.leaves(trainer.init(0).local.memory)
        at = {shard.device for x in memory for shard in x.addressable_shards}
        assert len(at) == 2 if devices == 2 else all(d.platform == "cpu" for d in at)


@pytest.mark.full
def test_evaluation_is_that_of_one_device():
    """The same episodes, on the first device; and so for what is played by hand."""
    with trainer_of("dqn", devices=2) as trainer, trainer_of("dqn") as other:
        found = trainer.run(0)[-1]
        other.init(0)
        learner = jax.tree.map(np.asarray, trainer.state.learner)
        other.state = other.state.replace(learner=learner)
        expected = other.evaluate()
        for name in ("return", "sampled_return", "length"):
            np.testing.assert_array_equal(found[name], expected[name])
        one, two = (x.rollout(2, jax.random.key(1)) for x in (trainer, other))
        jax.tree.map(np.testing.assert_array_equal, one, two)


@pytest.mark.full
def test_a_mesh_says_which_devices():
    mesh = jax.make_mesh((2,), ("seeds",), devices=jax.devices()[:2])
    with trainer_of(others={"mesh": mesh}, num_seeds=2) as trainer:
        trainer.run(0)
        assert trainer.state.local.key.shape == (2,)
        assert len({s.device for s in trainer.state.local.obs.addressable_shards}) == 2
    alone = jax.make_mesh((1,), ("data",), devices=jax.devices()[1:2])
    with trainer_of(others={"mesh": alone}) as trainer:
        trainer.run(0)
        assert trainer.state.local.obs.devices() == {jax.devices()[1]}
    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])
    with trainer_of(others={"mesh": mesh}) as trainer:
        trainer.run(0)
        assert trainer.state.local.obs.shape[:2] == (2, NUM_ENVS // 2)


ERRORS = {
    "too many devices": (
        {"devices": 9},
        "devices=9, but JAX finds 2.*--devices 2.*JAX_NUM_CPU_DEVICES=9",
    ),
    "seeds": (
        {"devices": 2, "shard": "seeds", "num_seeds": 3},
        "3 seeds cannot be divided among 2 devices; use 1 device, 4 seeds, or shard='data'",
    ),
    "both": ({"devices": 2, "mesh": "data"}, "devices=2 and a mesh both"),
    "an axis": ({"mesh": "batch"}, "the mesh has an axis 'batch'"),
    "no mesh": ({"mesh": 2}, "mesh must be a jax.sharding.Mesh, got int"),
    "environments": (
        {"devices": 2, "env": 3},
        "num_envs=3 cannot be divided among 2 devices; use 1 device, or num_envs=2 or 4",
    ),
    "batch": (
        {"devices": 2, "name": "dqn", "table": {"batch_size": 7}},
        "batch_size=7 cannot be divided among 2 devices; use 6 or 8",
    ),
    "minibatches": (
        {"devices": 2, "name": "ppo.gru", "env": 2, "table": {"num_minibatches": 2}},
        "on each of 2 devices, with 1 environment: num_minibatches=2 does not divide",
    ),
    "half of the environments": (
        {"devices": 2, "env": "host", "overlap": "acting"},
        "even number of environments on each of 2 devices, got 6; use num_envs=8",
    ),
}


@pytest.mark.parametrize(("settings", "message"), ERRORS.values(), ids=ERRORS)
def test_what_cannot_be_divided_says_so_at_once(settings, message):
    settings = dict(settings)
    if isinstance(settings.get("env"), int):
        settings["env"] = make_env("probe/Counter", settings["env"])
    if settings.get("env") == "host":
        settings["env"] = GymnasiumAdapter("CartPole-v1", 6)
    mesh = settings.pop("mesh", None)
    if isinstance(mesh, str):
        mesh = jax.make_mesh((2,), (mesh,), devices=jax.devices()[:2])
    with pytest.raises(ConfigError, match=message):
        trainer_of(settings.pop("name", "ppo"), others={"mesh": mesh}, **settings)


def test_a_module_of_one_s_own_can_only_be_given_other_seeds():
    class Counting:
        def init_train_state(self, key):
            return {"key": key, "count": jax.numpy.int32(0)}

        def get_batch(self, ts, i):
            return ts, ()

        def training_step(self, i, ts, batch):
            return {**ts, "count": ts["count"] + 1}, {"loss": jax.numpy.float32(0)}

        def eval_callback(self, ts):
            return {"return": ts["count"].astype(float)}

    config = {"num_checkpoints": 2, "debug": False, "logger_config": None, "devices": 2}
    with pytest.raises(ConfigError, match="Counting has a state of its own"):
        Trainer.from_module(Counting(), TrainerConfig(**config))
    seeds = TrainerConfig(**config, shard="seeds", num_seeds=2)
    with Trainer.from_module(Counting(), seeds) as trainer:
        assert [list(found["return"]) for found in trainer.run(0)] == [[1, 1], [2, 2]]


@pytest.mark.full
def test_a_curriculum_on_devices_resumes_exactly(tmp_path):
    """Phases with other environments and another number of them, divided like the first."""

    def settings(name):
        phases = (
            Phase(env="probe/Counter", num_envs=4, steps=64),
            Phase(env="probe/Counter", num_envs=8, steps=128),
        )
        return {
            "table": {"capacity": 128},
            "others": {"curriculum": Curriculum(phases=phases)},
            "run_dir": str(tmp_path / name),
            "num_checkpoints": None,
            "devices": 2,
        }

    whole, _ = trained("dqn", **settings("whole"))
    first = settings("part")
    trained("dqn", **(first | {"others": first["others"] | stopped()}))
    resumed, trainer = trained("dqn", restore_checkpoint="auto", **settings("part"))
    assert resumed == whole and trainer.state.local.obs.shape[:2] == (2, 4)


@pytest.mark.full
@pytest.mark.parametrize("shard", ["seeds", "data"])
def test_a_sweep_on_devices(shard, tmp_path, capsys):
    sweep = tmp_path / "sweep"
    arguments = ["--num-envs", "2", "--num-steps", "8", "--num-minibatches", "2"]
    length = ["--num-checkpoints", "2", "--epochs-per-checkpoint", "1"]
    grid = ["--grid", "learning_rate=1e-3,1e-4,1e-5,1e-6", "--halving", "2"]
    places = ["--devices", "2", "--shard", shard, "--run-dir", str(sweep)]
    assert main(["sweep", "ppo", "probe/Counter", *arguments, *length, *grid, *places]) == 0
    capsys.readouterr()
    assert main(["resume", str(sweep / "trials" / "000"), "--total-steps", "200"]) == 0
    both = ["--devices", "2", "--shard", "both", "--run-dir", str(tmp_path / "both")]
    assert main(["sweep", "ppo", "probe/Counter", *length, *grid, *both]) == 2
    assert 'shard="both"' in capsys.readouterr().err


EIGHT = """
import json, sys
import jax, numpy as np
from rlkit.training.from_config import build
from rlkit.training.run_config import from_dict

with build(from_dict(json.loads(sys.argv[1]))) as trainer:
    trainer.run(0)
    learner, local = trainer.state.learner, trainer.state.local
    keys = jax.random.key_data(local.key)
    equal = all(
        np.array_equal(np.asarray(x.addressable_shards[0].data), np.asarray(s.data), equal_nan=True)
        for x in jax.tree.leaves(learner)
        for s in x.addressable_shards
    )
    num_keys = len(np.unique(keys, axis=0))
    print(json.dumps([equal, list(local.obs.shape), num_keys, trainer.env_steps]))
"""


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_eight_devices(name):
    hyperparameters = {
        "ppo": {"num_steps": 16, "normalize_observations": True, "normalize_rewards": True},
        "dqn": {"num_steps": 4, "batch_size": 64, "priority_exponent": 0.6, "prefill_steps": 128},
    }[name]
    config = {
        "algorithm": name,
        "env": {"id": "gymnax/CartPole-v1", "num_envs": 16},
        "hyperparameters": hyperparameters,
        "trainer": {"num_checkpoints": 2, "epochs_per_checkpoint": 2, "devices": 8, "debug": False},
    }
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8", "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", EIGHT, json.dumps(config)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    equal, shape, keys, env_steps = json.loads(done.stdout.splitlines()[-1])
    prefill = 256 if name == "ppo" else 128
    steps = prefill + 4 * 16 * hyperparameters["num_steps"]
    assert (equal, shape, keys, env_steps) == (True, [8, 2, 4], 8, steps)


@pytest.mark.full
def test_from_the_command_line(tmp_path, capsys):
    run = str(tmp_path / "run")
    small = [
        "--num-envs",
        "4",
        "--num-steps",
        "8",
        "--num-minibatches",
        "2",
        "--num-checkpoints",
        "1",
    ]
    assert main(["train", "ppo", "probe/Counter", *small, "--devices", "2", "--run-dir", run]) == 0
    assert main(["resume", run, "--total-steps", "100", "--devices", "1"]) == 0
    assert "continues on 1" in capsys.readouterr().out
    assert main(["train", "ppo", "probe/Counter", *small, "--devices", "3"]) == 2
    assert "devices=3, but JAX finds 2" in capsys.readouterr().err
    assert rlkit.load_policy(run).metrics
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["devices"] == 1
