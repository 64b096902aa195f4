"""A run on environments with state hooks that was stopped or killed ends as the one that was not:
the same state, environments included, and the same rows.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from host_twins import HostCounter, agent_for
from shared_host_functions import share_compiled
from stopping import StopAt
from tiers import by_default, in_full

from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.host.plain_bytes import pack, unpack
from rlkit.errors import CheckpointError, EnvStateError
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.logs.records import read_records
from rlkit.training.programs.host_collector import _in_groups
from rlkit.training.programs.host_program import HostProgram
from rlkit.training.trainer import Trainer

OUTER = 4
SPEED = "train/steps_per_second"  # a row's only value that is a time
ENVS = {"ppo": "CartPole-v1", "dqn": "Acrobot-v1", "sac": "Pendulum-v1"}
SETTINGS = {
    "ppo": {"normalize_observations": True, "normalize_rewards": True},
    "dqn": {"n_step": 3},
    "sac": {"n_step": 2},
}
CASES = [
    (name, overlap, vectorization, num_seeds)
    for name in ENVS
    for overlap in ("none", "acting", "update")
    for vectorization in ("sync", "async")
    for num_seeds in (1, 2)
]
DEFAULTS = [("dqn", "update", "async", 1)]
OPENED: list[GymnasiumAdapter] = []


@pytest.fixture(autouse=True)
def closed():
    """Trainers leave open what they are given."""
    yield
    while OPENED:
        OPENED.pop().close()


class Hooked(HostCounter):
    """`HostCounter` with drifting observations and with the hooks of a user."""

    def __init__(self):
        super().__init__(floats=True)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,))

    def _observe(self):
        return super()._observe() + self.np_random.normal(size=2).astype(np.float32)

    def get_state(self):
        return {"time": self.time, "total": self.total}

    def set_state(self, state):
        self.time, self.total = int(state["time"]), int(state["total"])


class Forgetful(Hooked):
    """It refuses what it saved."""

    def set_state(self, state):
        raise ValueError("never seen before")


class Unplain(Hooked):
    def get_state(self):
        return {"self": self}


class Labelled(gymnasium.Wrapper):
    """A wrapper without hooks."""


def trainer_of(tiny, run_dir, algorithm="ppo", env=None, *, stop=None, hyper=None, **settings):
    vectorization = settings.pop("vectorization", "sync")
    num_envs = settings.pop("num_envs", 2)
    env = env or ENVS[algorithm]
    adapter = GymnasiumAdapter(env, num_envs, vectorization=vectorization, max_episode_steps=13)
    OPENED.append(adapter)
    learns = tiny.algorithm(algorithm, **(SETTINGS[algorithm] if hyper is None else hyper))
    config = tiny.config(
        run_dir=str(run_dir),
        **{"num_checkpoints": OUTER, "evaluation_episodes": 2} | settings,
    )
    agent, callbacks = agent_for(adapter, algorithm=algorithm), [StopAt(stop)] if stop else []
    is_here = vectorization == "sync"  # what is shared keeps its environments, and their processes
    shared = share_compiled((env, settings.get("overlap"))) if is_here else contextlib.nullcontext()
    with shared:
        return Trainer(adapter, None, agent, learns, config, callbacks=callbacks)


def finished(trainer):
    """The digest of every leaf after training, and the bytes of its environments."""
    with trainer:
        trainer.run(3)
        leaves = jax.tree_util.tree_flatten_with_path(trainer.state)[0]
        digests = {jax.tree_util.keystr(path): tree_digest(leaf) for path, leaf in leaves}
        return digests, trainer.program.environments(trainer.state).tobytes()


def rows(run_dir):
    return [
        (r.kind, r.env_steps, r.updates, r.seed, {n: x for n, x in r.metrics.items() if n != SPEED})
        for r in read_records(run_dir / "metrics.jsonl")
        if r.kind in ("train", "eval")
    ]


def events(run_dir):
    return [r.text for r in read_records(run_dir / "metrics.jsonl") if r.kind == "event"]


@pytest.mark.parametrize(
    ("algorithm", "overlap", "vectorization", "num_seeds"), by_default(DEFAULTS, CASES)
)
def test_a_resumed_run_is_the_run_that_was_not_stopped(
    tiny, tmp_path, algorithm, overlap, vectorization, num_seeds
):
    settings = {"overlap": overlap, "vectorization": vectorization, "num_seeds": num_seeds}
    whole = finished(trainer_of(tiny, tmp_path / "whole", algorithm, **settings))
    with trainer_of(tiny, tmp_path / "parts", algorithm, stop=2, **settings) as trainer:
        trainer.run(3)
        assert trainer.outer_iteration == 2
        episodes = jax.device_get(trainer.state.local.episodes)
        assert episodes.length_so_far.any()  # the stop was amid episodes
    resumed = finished(
        trainer_of(tiny, tmp_path / "parts", algorithm, restore_checkpoint="auto", **settings)
    )
    assert resumed == whole
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    assert not any("new episodes" in text for text in events(tmp_path / "parts"))


@pytest.mark.full
@pytest.mark.parametrize("num_seeds", [1, 2])
def test_environments_go_on_in_other_groups(tiny, tmp_path, num_seeds):
    """`overlap` may change when a run is resumed; each environment stays in its place."""
    settings = {"num_envs": 4, "num_seeds": num_seeds, "hyper": {}}
    with trainer_of(tiny, tmp_path / "run", overlap="none", stop=2, **settings) as trainer:
        trainer.run(3)
        (wanted,) = unpack(trainer.program.environments(trainer.state))
        obs = jax.device_get(trainer.state.local.obs)
    settings["restore_checkpoint"] = "auto"
    with trainer_of(tiny, tmp_path / "run", overlap="acting", **settings) as trainer:
        trainer.init(3)
        first, second = unpack(trainer.program.environments(trainer.state))
        found = []  # each group has two environments of each seed
        for seed in range(num_seeds):
            found += [*first[2 * seed : 2 * seed + 2], *second[2 * seed : 2 * seed + 2]]
        jax.tree.map(np.testing.assert_array_equal, found, wanted)
        np.testing.assert_array_equal(jax.device_get(trainer.state.local.obs), obs)
        trainer.request_stop("half of the rest")
        trainer.run()
    with trainer_of(tiny, tmp_path / "run", overlap="none", **settings) as trainer:
        trainer.run(3)
        assert trainer.outer_iteration == OUTER
    assert not any("new episodes" in text for text in events(tmp_path / "run"))


def test_a_batch_of_ones_own_is_not_divided():
    for states in ([{"positions": [1, 2]}], [[[1, 2, 3, 4], [5, 6, 7, 8]]]):
        with pytest.raises(EnvStateError, match="saved in 1 groups cannot be divided into 2"):
            _in_groups(states, [2, 2], 1)
    assert _in_groups([[1, 2, 3, 4]], [2, 2], 1) == [[1, 2], [3, 4]]
    assert _in_groups([[1, 2, 3, 4]], [2, 2], 2) == [[1, 3], [2, 4]]
    assert _in_groups([[1, 3], [2, 4]], [4], 2) == [[1, 2, 3, 4]]


@pytest.mark.full
@pytest.mark.parametrize(
    "env", [Hooked, lambda: gymnasium.wrappers.FrameStackObservation(Hooked(), 2)]
)
def test_environments_of_users_and_wrapped_ones_go_on(tiny, tmp_path, env):
    whole = finished(trainer_of(tiny, tmp_path / "whole", env=env))
    with trainer_of(tiny, tmp_path / "parts", env=env, stop=1) as trainer:
        trainer.run(3)
    resumed = finished(trainer_of(tiny, tmp_path / "parts", env=env, restore_checkpoint="auto"))
    assert resumed == whole


@pytest.mark.parametrize(
    ("env", "told"),
    [
        (HostCounter, "environment 0: HostCounter has no methods get_state() and set_state(state)"),
        in_full((lambda: Labelled(Hooked()), "environment 0: Labelled has no methods get_state()")),
        in_full((Unplain, "environment 0: Unplain state['self'] is a Unplain; use numbers")),
    ],
)
def test_what_cannot_be_saved_is_said_once_and_starts_new_episodes(tiny, tmp_path, env, told):
    with trainer_of(tiny, tmp_path / "run", env=env, hyper={}, stop=2) as trainer:
        trainer.run(3)
    (said,) = [text for text in events(tmp_path / "run") if "not saved" in text]
    assert said.startswith(f"environments are not saved: {told}")
    with trainer_of(
        tiny, tmp_path / "run", env=env, hyper={}, restore_checkpoint="auto"
    ) as trainer:
        trainer.init(3)
        assert not jax.device_get(trainer.state.local.episodes).length_so_far.any()
    assert (
        "start new episodes (the checkpoint does not hold their states)"
        in events(tmp_path / "run")[-1]
    )


@pytest.mark.full
def test_an_environment_that_refuses_its_state_is_an_error_unless_accepted(tiny, tmp_path):
    run_dir = tmp_path / "run"
    with trainer_of(tiny, run_dir, env=Forgetful, hyper={}, stop=2) as trainer:
        trainer.run(3)
    before = (run_dir / "metrics.jsonl").read_bytes()
    again = {"env": Forgetful, "hyper": {}, "restore_checkpoint": "auto"}
    with (
        trainer_of(tiny, run_dir, **again) as trainer,
        pytest.raises(CheckpointError) as caught,
    ):
        trainer.run(3)
    assert str(caught.value) == (
        "checkpoint 2 holds environments that cannot be restored here: environment 0:"
        " Forgetful.set_state raised ValueError: never seen before; use the environment that it was"
        " saved with, or accept it with accept_differences=True (--accept-differences): they start"
        " new episodes"
    )
    assert (run_dir / "metrics.jsonl").read_bytes() == before
    with trainer_of(tiny, run_dir, **again) as trainer:
        trainer._accepts = True
        trainer.run(3)
        assert trainer.outer_iteration == OUTER
    assert any("never seen before" in text for text in events(run_dir))


def test_a_state_of_other_environments_is_refused(tiny, tmp_path):
    """The bytes are those of a checkpoint, as whoever can write one could change them."""
    with trainer_of(tiny, tmp_path / "run", hyper={}, stop=1) as trainer:
        trainer.run(3)
        state, program = trainer.state, trainer.program
        (envs,) = unpack(program.environments(state))
        with pytest.raises(EnvStateError, match="not the states of 2 environments"):
            program.resume(state, pack([envs[:1]]))
        with pytest.raises(EnvStateError, match="saved in 2 groups cannot be divided into 1"):
            program.resume(state, pack([envs, "no list"]))
        # what failed leaves nothing half set: the next call starts new episodes
        assert not program.restart(state).local.episodes.length_so_far.any()


def crafted(states, change):
    """The bytes of two CartPoles, of which the last layer was changed in the first one."""
    (envs,) = unpack(states)
    state = unpack(envs[0])
    state["layers"][-1][1] = pack(change(unpack(state["layers"][-1][1])))
    return pack([[pack(state), envs[1]]])


@pytest.mark.parametrize(
    ("forge", "told"),
    [
        (lambda states: np.zeros(50, np.uint8), "the saved state of an environment cannot be read"),
        (lambda states: states[:-1], "cannot be read"),
        (
            lambda states: crafted(states, lambda fields: fields | {"step": np.zeros(4)}),
            "environment 0: the saved state of CartPoleEnv does not fit: it needs the fields",
        ),
        (
            lambda states: crafted(states, lambda fields: fields | {"state": np.zeros(3)}),
            "environment 0: the saved state of CartPoleEnv does not fit: state cannot be",
        ),
    ],
)
def test_a_forged_checkpoint_is_refused_in_one_line(tiny, tmp_path, monkeypatch, forge, told):
    """Whoever forges one can write its checksums, too, so it is saved as any other."""
    run_dir, program = tmp_path / "run", "rlkit.training.programs.host_program.HostProgram"
    with monkeypatch.context() as patch:
        honest = HostProgram.environments
        patch.setattr(f"{program}.environments", lambda self, ts: forge(honest(self, ts)))
        with trainer_of(tiny, run_dir, hyper={}, stop=1) as trainer:
            trainer.run(3)
    before = (run_dir / "metrics.jsonl").read_bytes()
    again = trainer_of(tiny, run_dir, hyper={}, restore_checkpoint="auto")
    with again, pytest.raises(CheckpointError) as caught:
        again.run(3)
    assert told in str(caught.value) and "\n" not in str(caught.value)
    assert (run_dir / "metrics.jsonl").read_bytes() == before


class OwnBatch:
    """An `EnvAdapter` of a reader's own with hooks."""

    is_jittable = False

    def __init__(self):
        self.inner = GymnasiumAdapter("CartPole-v1", 2)
        for name in ("num_envs", "observation_space", "action_space", "max_episode_steps", "spec"):
            setattr(self, name, getattr(self.inner, name))
        self.reset, self.step, self.close = self.inner.reset, self.inner.step, self.inner.close

    def get_state(self):
        return {"parts": self.inner.get_state()}

    def set_state(self, state):
        self.inner.set_state(state["parts"])


@pytest.mark.full
def test_a_batch_of_ones_own_goes_on_too(tiny, tmp_path):
    def made(name, **settings):
        env, agent = OwnBatch(), agent_for(OwnBatch())
        config = tiny.config(run_dir=str(tmp_path / name), num_checkpoints=OUTER, **settings)
        callbacks = [StopAt(2)] if name == "parts" and not settings else []
        with share_compiled():
            return Trainer(env, OwnBatch(), agent, tiny.algorithm(), config, callbacks=callbacks)

    whole = finished(made("whole"))
    finished(made("parts"))
    assert finished(made("parts", restore_checkpoint="auto")) == whole


def test_other_states_than_the_last_cannot_be_saved(tiny, tmp_path):
    """The environments have gone on, or were interrupted: the log says so."""
    with trainer_of(tiny, tmp_path / "run", hyper={}) as trainer:
        before = trainer.init(3)
        copy = trainer.program.copy(before)
        assert len(trainer.program.environments(copy)) == len(trainer.program.environments(before))
        trainer.train_step()
        with pytest.raises(EnvStateError, match="not where this state left them"):
            trainer.program.environments(copy)
        trainer.program.environments(trainer.state)
        trainer.program.collector.forget()
        trainer.save_checkpoint(tmp_path / "copy")
    assert "not where this state left them (a resumed run" in events(tmp_path / "run")[-1]


COMMANDS = {
    "ppo": (
        "gymnasium/Taxi-v4",
        "--num-steps",
        "16",
        "--num-minibatches",
        "2",
        "--num-epochs",
        "1",
    ),
    "sac": ("gymnasium/Pendulum-v1", "--warmup-steps", "64", "--batch-size", "16"),
    "dqn": ("gymnasium/CartPole-v1", "--warmup-steps", "64", "--batch-size", "16"),
}


def command(*arguments):
    program = "import sys; from rlkit.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=os.environ | {"NPROC": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize(
    ("algorithm", "overlap", "vectorization"),
    [  # each pair of two of them
        ("ppo", "none", "sync"),
        ("ppo", "update", "async"),
        ("sac", "none", "async"),
        ("sac", "update", "sync"),
        ("dqn", "none", "sync"),
        ("dqn", "update", "async"),
    ],
)
def test_a_killed_command_ends_as_the_one_that_was_not(tmp_path, algorithm, overlap, vectorization):
    env, *hyper = COMMANDS[algorithm]
    train = ["train", algorithm, env, *hyper, "--num-envs", "2", "--hidden-sizes", "8"]
    train += ["--env-arguments", json.dumps({"vectorization": vectorization})]
    train += ["--overlap", overlap, "--deterministic", "--total-steps", "2304"]
    train += ["--num-checkpoints", "12", "--evaluation-episodes", "2", "--run-dir"]
    run_dir, whole_dir = tmp_path / "killed", tmp_path / "whole"
    whole, killed = command(*train, whole_dir), command(*train, run_dir)
    wanted = 3
    try:
        for _ in range(3):
            while _newest(run_dir) < wanted and killed.poll() is None:
                time.sleep(0.005)
            killed.send_signal(signal.SIGKILL)
            _, told = killed.communicate()
            assert killed.returncode == -signal.SIGKILL, told[-2000:]
            wanted = _newest(run_dir) + 3
            killed = command("resume", run_dir)
        for process in (killed, whole):
            _, told = process.communicate(timeout=200)
            assert process.returncode == 0, told[-2000:]
    finally:
        whole.kill()
        killed.kill()
    ends = [json.loads((path / "summary.json").read_text()) for path in (run_dir, whole_dir)]
    assert ends[0]["params_sha256"] == ends[1]["params_sha256"]
    assert rows(run_dir) == rows(whole_dir)
    assert not any("new episodes" in text for text in events(run_dir))


def _newest(run_dir):
    names = (path.name for path in (run_dir / "checkpoints").glob("*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)
