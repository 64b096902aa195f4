"""The folder of an exported policy: what is in it, who can use it, and what is refused."""

import importlib.resources
import importlib.util
import json
import shutil
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from untrained_policies import ACTIONS, OBSERVATIONS, policy_of, policy_with

import rlkit
from rlkit.errors import ExportError
from rlkit.training.export import folder as folder_module
from rlkit.training.export import loaders
from rlkit.training.export.parity import act_in_fresh_process, compared

LOADERS = ("load_onnx.py", "load_stablehlo.py")


@pytest.fixture(scope="module")
def policy():
    return policy_of("soft_actor_critic", OBSERVATIONS["dict"], ACTIONS["box"])


@pytest.fixture(scope="module")
def exported(policy, tmp_path_factory):
    return policy.export(tmp_path_factory.mktemp("export") / "policy")


def batch(policy, number=3):
    """Observations of a policy as a user has them, and its actions."""
    space = policy.env.observation_space
    space.seed(1)
    rows = [space.sample() for _ in range(number)]
    obs = stacked(rows)
    return obs, policy(obs)


def stacked(rows):
    if isinstance(rows[0], dict):
        return {name: stacked([row[name] for row in rows]) for name in rows[0]}
    if isinstance(rows[0], tuple):
        return tuple(stacked(list(parts)) for parts in zip(*rows, strict=True))
    return np.stack(rows)


@pytest.mark.process
def test_the_process_that_acts_imports_what_this_one_does(tmp_path, monkeypatch):
    """Packages may come from PYTHONPATH; those of the working directory are not ours."""
    for place, module in (("packages", "packaged"), ("here", "numpy"), ("exported", "load_onnx")):
        (tmp_path / place).mkdir()
        (tmp_path / place / f"{module}.py").write_text("")
    (tmp_path / "exported" / "load_onnx.py").write_text(
        "import packaged\n"
        "class Policy:\n"
        "    manifest = {'inputs': [{'name': 'x', 'path': []}], 'memory': False}\n"
        "    def __call__(self, obs):\n"
        "        return obs + 1\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    monkeypatch.chdir(tmp_path / "here")
    found = act_in_fresh_process(tmp_path / "exported", ["x"], [np.zeros(2)], ["onnx"])
    np.testing.assert_array_equal(found["onnx"], [[1.0, 1.0]])


@pytest.mark.full
def test_what_is_in_it(exported):
    assert {path.name for path in exported.path.iterdir()} == {
        "policy.onnx",
        "policy.stablehlo",
        "policy_sampled.stablehlo",
        "manifest.json",
        *LOADERS,
    }
    about = json.loads((exported.path / "manifest.json").read_text())
    assert about["checkpoint"] == 7 and about["outputs"][0]["shape"] == ["batch", 2]
    names = [each["name"] for each in about["inputs"]]
    assert "obs.inner.a" in names and "obs.all.0" in names
    assert about["action_space"] == {
        "type": "Box",
        "shape": [2],
        "dtype": "float32",
        "low": [-1.0, -2.0],
        "high": [1.0, 4.0],
    }
    assert [each["kind"] for each in about["parity"]] == ["onnx", "stablehlo", "sampled"]


@pytest.mark.full
@pytest.mark.parametrize("loader", ["onnx", "stablehlo"])
@pytest.mark.process
def test_the_folder_acts_wherever_it_lies(loader, policy, exported, tmp_path):
    """Moved, in a process without rlkit (nor JAX, for ONNX), for one observation or three."""
    moved = shutil.copytree(exported.path, tmp_path / "moved")
    obs, wanted = batch(policy)
    flat = {name: value for name, value in leaves(obs)}
    np.savez(tmp_path / "obs.npz", **flat)
    hidden = ["rlkit", "flax"] + (["jax"] if loader == "onnx" else [])
    program = f"""
import sys
for name in {hidden}:
    sys.modules[name] = None
import numpy as np
from load_{loader} import Policy
given = np.load("../obs.npz")
def nested(rows):
    read = lambda name: given[name][rows]
    inner = {{"a": read("inner.a"), "b": read("inner.b")}}
    count = len([name for name in given if name.startswith("all.")])
    return {{"all": tuple(read(f"all.{{i}}") for i in range(count)), "inner": inner}}
policy = Policy()
one, three = policy(nested(slice(1))), policy(nested(slice(None)))
np.testing.assert_allclose(one, three[:1], atol=1e-5)
np.save("../actions.npy", three)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=moved, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_allclose(np.load(tmp_path / "actions.npy"), wanted, atol=1e-5)


def leaves(obs):
    yield from (("inner." + name, value) for name, value in obs["inner"].items())
    yield from ((f"all.{index}", value) for index, value in enumerate(obs["all"]))


def test_loaders_are_short_and_know_nothing_of_rlkit():
    for name in LOADERS:
        for path, lines in ((name, 42), (name.replace(".py", "_with_memory.py"), 58)):
            text = (importlib.resources.files(loaders) / path).read_text()
            assert len(text.splitlines()) <= lines and "import rlkit" not in text


def test_an_existing_folder_is_left_alone(policy, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("kept")
    with pytest.raises(ExportError, match="already exists; choose another folder"):
        policy.export(tmp_path / "mine")
    assert (tmp_path / "mine" / "notes").read_text() == "kept"


def test_unknown_formats(policy, tmp_path):
    with pytest.raises(ExportError, match=r"format must be one of both, onnx, stablehlo, got 'pt'"):
        policy.export(tmp_path / "a", format="pt")


@pytest.mark.full
def test_without_the_packages_of_onnx(tmp_path, monkeypatch):
    """The other format needs none of them."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name.startswith("onnx") else find(name)
    )
    policy = policy_of("q_network", OBSERVATIONS["floats"], ACTIONS["discrete"])
    with pytest.raises(ExportError, match=r"needs onnx and onnxruntime.*pip install onnx onnxrunt"):
        policy.export(tmp_path / "a")
    found = policy.export(tmp_path / "b", format="stablehlo")
    assert not (found.path / "policy.onnx").exists()
    assert not (found.path / "load_onnx.py").exists()


def test_a_folder_that_acts_otherwise_is_not_left(policy, tmp_path, monkeypatch):
    """Whatever the reason: here the policy's own actions are off by a hundredth."""
    real = folder_module.compared
    monkeypatch.setattr(
        folder_module,
        "compared",
        lambda kind, found, wanted: real(kind, found, [x + 0.01 for x in wanted]),
    )
    with pytest.raises(ExportError, match="exported onnx acts otherwise than the policy on 256 of"):
        policy.export(tmp_path / "a", format="onnx")
    assert list(tmp_path.iterdir()) == []


def test_what_counts_as_equal():
    """Rounding of continuous actions, and ties of a few discrete ones."""
    near = compared("onnx", [np.float32([[1.0], [2.0]])], [np.float32([[1.0], [2.00001]])])
    assert near.differing == 1 and near.largest_difference == pytest.approx(1e-5, rel=0.1)
    with pytest.raises(ExportError, match=r"by up to 0.001"):
        compared("onnx", [np.float32([[0.001]])], [np.float32([[0.0]])])
    choices = np.zeros(200, np.int32)
    other = choices.copy()
    other[:2] = 1
    assert compared("onnx", [other], [choices]).differing == 2
    both = compared("onnx", [other, choices], [choices, np.roll(other, 5)])
    assert both.differing == 4  # in one part or the other
    other[2] = 1
    with pytest.raises(ExportError, match="on 3 of 200"):
        compared("onnx", [choices, other], [choices, choices])
    with pytest.raises(ExportError, match=r"returns int32 \[200\], the policy float32 \[200\]"):
        compared("onnx", [choices], [np.zeros(200, np.float32)])


def test_a_folder_that_cannot_be_written(policy, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match=r"cannot write .*; choose another folder"):
        policy.export(tmp_path / "file" / "policy", format="stablehlo")


class SortingTorso(nnx.Module):
    """One layer, sorted."""

    def __init__(self, rngs):
        self.layer = nnx.Linear(1, 4, rngs=rngs)

    def __call__(self, obs):
        return jnp.sort(self.layer(obs), axis=-1)


@pytest.mark.full
def test_agents_with_a_primitive_that_has_no_rule(tmp_path):
    """ONNX says so; StableHLO takes every program."""
    env = rlkit.make_env("probe/ContinuousAction", 1)
    agent = rlkit.actor_critic(env.observation_space, env.action_space, torso=SortingTorso)
    policy = policy_with(agent, env.observation_space, env.action_space)
    with pytest.raises(ExportError, match=r"no rule for the primitive sort.*--format stablehlo"):
        policy.export(tmp_path / "a", format="onnx")
    assert policy.export(tmp_path / "b", format="stablehlo").parity


def test_bfloat16_is_for_stablehlo(tmp_path):
    policy = policy_of(
        "q_network", OBSERVATIONS["floats"], ACTIONS["discrete"], precision="bfloat16"
    )
    with pytest.raises(ExportError, match=r"computes in bfloat16.*--format stablehlo"):
        policy.export(tmp_path / "a", format="onnx")
