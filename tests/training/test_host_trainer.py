"""The Trainer on environments of the host: what it makes and closes, resuming, saved policies,
errors.
"""

import contextlib
import dataclasses
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from host_twins import HostCounter, agent_for
from shared_host_functions import share_compiled

from rlkit.algorithms.collectors import Collector
from rlkit.envs.base import EnvAdapter
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.errors import ConfigError, EnvContractError, EnvFailedError, RunDirectoryError
from rlkit.training.config import TrainerConfig
from rlkit.training.core.module import fit
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.from_config import build
from rlkit.training.logs.metrics import mean_of_known
from rlkit.training.logs.records import read_records
from rlkit.training.policy import load_policy
from rlkit.training.run_config import EnvConfig, RunConfig
from rlkit.training.trainer import Trainer

NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}


def host(num_envs=2, env=HostCounter, **arguments):
    return GymnasiumAdapter(env, num_envs, **arguments)


def trainer_of(
    tiny, env=None, *, hyper=None, eval_env=None, agent=None, algorithm=None, **settings
):
    """A trainer of PPO. Those without parts of their own that are equal share what they compile."""
    env = host() if env is None else env
    own = {
        name: settings.pop(name) for name in ("callbacks", "logger", "eval_fn") if name in settings
    }
    overlap = settings.get("overlap")
    shared = share_compiled(overlap) if agent is algorithm is None else contextlib.nullcontext()
    agent = agent or agent_for(env() if isinstance(env, type) else env)
    algorithm = algorithm or tiny.algorithm(**(hyper or {}))
    with shared:
        return Trainer(env, eval_env, agent, algorithm, tiny.config(**settings), **own)


class Faulty(HostCounter):
    """Fails from its 30th step on, until it is repaired."""

    count, is_broken = 0, True

    def step(self, action):
        self.count += 1
        if self.count >= 30 and Faulty.is_broken:
            raise RuntimeError("the motor is on fire")
        return super().step(action)


# A run


def test_a_run_evaluates_logs_and_saves(tiny, tmp_path):
    with trainer_of(tiny, run_dir=str(tmp_path / "run")) as trainer:
        history = trainer.run(0)
        summary = trainer.summary()
    assert len(history) == 3 and history[-1]["return"].shape == (3,)
    assert trainer.env_steps == trainer.state.learner.env_steps.to_int() == 3 * 2 * 8 * 2
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    assert [record.env_steps for record in records if record.kind == "eval"] == [0, 32, 64, 96]
    assert {"train/avg_return", "train/loss", "train/steps_per_second"} <= [
        r for r in records if r.kind == "train"
    ][-1].metrics.keys()
    assert "eval/done_info/total" in [r for r in records if r.kind == "eval"][-1].metrics
    assert summary["env_steps"] == 96 and summary["env_steps_per_second"] > 0
    assert (tmp_path / "run" / "learning_curve.png").is_file()


def test_two_runs_of_a_seed_are_equal_and_of_another_are_not(tiny):
    digests = []
    for seed in (0, 0, 1):
        with trainer_of(
            tiny, host(env=HostCounter, floats=True), hyper=NORMALIZED, enable_evaluation=False
        ) as trainer:
            trainer.run(seed)
            digests.append(tree_digest(trainer.state.learner))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.full
@pytest.mark.parametrize("overlap", ["none", "acting", "update"])
def test_several_seeds_and_overlaps(tiny, overlap):
    with trainer_of(tiny, overlap=overlap, num_seeds=2) as trainer:
        history = trainer.run(0)
        assert history[-1]["return"].shape == history[-1]["sampled_length"].shape == (2, 3)
        assert jax.tree.leaves(trainer.state.learner.params)[0].shape[0] == 2
        played = trainer.rollout(3, jax.random.key(0))
        assert played["obs"].shape[:2] == (2, 3) and played["reward"].sum(-1).shape == (2, 3)


def test_evaluation_is_the_same_every_time_and_touches_nothing(tiny):
    with trainer_of(tiny, env := host()) as trainer:
        trainer.init(0)
        trainer.train_epoch()
        before = tree_digest(trainer.state)
        first, second, more = trainer.evaluate(), trainer.evaluate(), trainer.evaluate(episodes=5)
        assert tree_digest(trainer.state) == before
        jax.tree.map(np.testing.assert_array_equal, first, second)
        assert more["return"].shape == (5,)
        trainer.train_epoch()  # the training's environments were not reset by it
    env.close()


def test_rollout_records_whole_episodes(tiny):
    with trainer_of(tiny) as trainer:
        trainer.init(0)
        played = trainer.rollout(5, jax.random.key(3), deterministic=False)
    assert played["obs"].shape == (5, played["length"].max(), 2)
    for episode, length in enumerate(played["length"]):
        total = np.cumsum(played["action"][episode, :length])
        np.testing.assert_array_equal(
            played["reward"][episode, :length], played["action"][episode, :length]
        )
        np.testing.assert_array_equal(played["obs"][episode, 1:length, 1], total[:-1])
        assert (played["terminated"] | played["truncated"])[episode, length - 1]
        assert not played["reward"][episode, length:].any()


# Whose environments


class Spied(HostCounter):
    """Counts how many there are, open and closed."""

    open_now = 0

    def __init__(self, **arguments):
        super().__init__(**arguments)
        Spied.open_now += 1
        self.is_open = True

    def close(self):
        if self.is_open:
            Spied.open_now -= 1
        self.is_open = False


@pytest.mark.full
def test_the_trainer_closes_what_it_made_and_nothing_else(tiny):
    env = host(env=Spied)
    with trainer_of(tiny, env) as trainer:
        trainer.run(0)
        assert Spied.open_now > 2
    assert Spied.open_now == 2  # those of `env`
    env.close()
    assert Spied.open_now == 0
    with trainer_of(tiny, host(env=Spied), num_seeds=2, overlap="acting") as trainer:
        trainer.run(0)
    assert Spied.open_now == 0  # a run of several seeds makes all of its own


def test_a_class_and_an_instance_are_taken_as_they_are(tiny):
    with trainer_of(tiny, Spied) as trainer:
        assert trainer.module.env.num_envs == 4
        trainer.run(0)
    assert Spied.open_now == 1  # the instance that the test read the spaces from
    Spied.open_now = 0
    one = HostCounter()
    with trainer_of(tiny, one, eval_env=HostCounter(), agent=agent_for(one)) as trainer:
        assert trainer.module.env.num_envs == 1
        trainer.run(0)
        assert trainer.env_steps == 48
    with pytest.raises(ConfigError, match=r"eval_env|enable_evaluation"):
        trainer_of(tiny, one, agent=agent_for(one))
    trainer_of(tiny, one, agent=agent_for(one), enable_evaluation=False).close()


@pytest.mark.full
@pytest.mark.parametrize("num_seeds", [1, 2])
def test_going_on_after_close_starts_new_episodes(tiny, num_seeds):
    env = HostCounter if num_seeds == 1 else host()  # a class: the Trainer makes what it closes
    trainer = trainer_of(tiny, env, num_seeds=num_seeds, enable_evaluation=False)
    trainer.init(0)
    trainer.train_epoch()
    trainer.close()
    trainer.train_epoch()
    assert trainer.state.learner.env_steps.to_int() == trainer.env_steps > 0
    trainer.close()


# Resuming


def state_of(tiny, run_dir, **settings):
    with trainer_of(
        tiny, host(env=HostCounter, floats=True), hyper=NORMALIZED, run_dir=run_dir, **settings
    ) as trainer:
        ts = trainer.init(0)
        return (
            jax.device_get(ts.learner),
            ts.local,
            [trainer.env_steps, trainer.outer_iteration],
            trainer.history.evaluations,
        )


@pytest.mark.full
def test_resume_restores_the_learner_and_restarts_the_environments(tiny, tmp_path):
    """Learner, normalisers, counters and keys to the bit; episodes anew, from seeds that depend on
    the resumed step.
    """
    run_dir = str(tmp_path / "run")
    with trainer_of(
        tiny, host(floats=True), hyper=NORMALIZED, run_dir=run_dir, num_checkpoints=2
    ) as trainer:
        trainer.run(0)
        wanted, local = jax.device_get(trainer.state.learner), trainer.state.local
    learner, resumed, counts, _ = state_of(
        tiny, run_dir, num_checkpoints=2, restore_checkpoint="auto"
    )
    jax.tree.map(np.testing.assert_array_equal, learner, wanted)
    assert learner.obs_stats.count == learner.env_steps.to_int() == counts[0] == 16 + 2 * 32
    np.testing.assert_array_equal(*(jax.random.key_data(part.key) for part in (local, resumed)))
    assert local.episodes.length_so_far.any() and not resumed.episodes.length_so_far.any()
    assert not resumed.discounted_return.any() and not resumed.obs.any()
    texts = [
        record.text
        for record in read_records(tmp_path / "run" / "metrics.jsonl")
        if record.kind == "event"
    ]
    assert any("cannot be restored" in text for text in texts)


@pytest.mark.full
def test_resumed_runs_from_one_checkpoint_are_equal(tiny, tmp_path):
    with trainer_of(
        tiny, host(floats=True), hyper=NORMALIZED, run_dir=str(tmp_path / "one"), num_checkpoints=2
    ) as trainer:
        trainer.run(0)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    ends = []
    for name in ("one", "two"):
        longer = {
            "num_checkpoints": 4,
            "restore_checkpoint": "auto",
            "run_dir": str(tmp_path / name),
        }
        with trainer_of(tiny, host(floats=True), hyper=NORMALIZED, **longer) as trainer:
            trainer.run(0)
            ends.append(tree_digest(trainer.state.learner))
            assert trainer.env_steps == trainer.state.learner.env_steps.to_int() == 16 + 4 * 32
    assert ends[0] == ends[1]


@pytest.mark.full
def test_resuming_cuts_the_episodes_in_the_replay(tiny, tmp_path):
    """The replay comes back whole, but for the newest row of each environment, whose episode ended
    with the process.
    """
    run_dir = str(tmp_path / "run")

    def made(**settings):
        env = host(floats=True)
        return Trainer(
            env,
            None,
            agent_for(env, algorithm="dqn"),
            tiny.algorithm("dqn", n_step=3),
            tiny.config(run_dir=run_dir, **settings),
        )

    with made() as trainer:
        trainer.run(5)  # with some seeds the last step ends every episode anyway
        before = jax.device_get(trainer.state.local.memory)
    with made(restore_checkpoint="latest") as trainer:
        after = jax.device_get(trainer.init(5).local.memory)
    newest = (int(before.head) - 1) % before.num_rows
    old, new = jax.tree.map(jnp.asarray, (before.transitions, after.transitions))
    assert not old.truncated[newest].all() and new.truncated[newest].all()
    wanted = old.replace(truncated=old.truncated.at[newest].set(True))
    jax.tree.map(np.testing.assert_array_equal, new, wanted)
    assert (before.head, before.size) == (after.head, after.size)


@pytest.mark.full
def test_episodes_after_resuming_depend_on_the_step(tiny, tmp_path):
    starts = []
    for outer in (1, 2):
        run_dir = str(tmp_path / f"run-{outer}")
        env = host(env="CartPole-v1")
        with trainer_of(
            tiny, env, run_dir=run_dir, num_checkpoints=outer, enable_evaluation=False
        ) as trainer:
            starts.append(np.array(trainer.init(0).local.obs))
            trainer.run()
        with trainer_of(
            tiny,
            env,
            run_dir=run_dir,
            num_checkpoints=outer,
            enable_evaluation=False,
            restore_checkpoint="latest",
        ) as trainer:
            starts.append(np.array(trainer.init(0).local.obs))
        env.close()
    first, after_one, again, after_two = starts
    np.testing.assert_array_equal(first, again)
    assert len({after.tobytes() for after in (first, after_one, after_two)}) == 3


def test_the_saved_policy_acts_and_evaluates(tiny, tmp_path):
    run_dir = str(tmp_path / "run")
    env = host(floats=True)
    with trainer_of(tiny, env, hyper=NORMALIZED, run_dir=run_dir) as trainer:
        trainer.run(0)
        wanted = trainer.evaluate(episodes=4)
    policy = load_policy(run_dir, "latest", env=host(4, floats=True), agent=agent_for(env))
    np.testing.assert_array_equal(policy.state.obs_stats.mean, trainer.state.learner.obs_stats.mean)
    found = policy.evaluate(4)
    # Nothing in the environment is random.
    np.testing.assert_array_equal(found["return"], wanted["return"])
    actions = policy(np.zeros((2, 2), np.float32))
    assert actions.shape == (2,) and actions[0] == actions[1]
    policy.env.close()


# Faults


def test_a_failing_environment_ends_the_run_and_keeps_the_checkpoint(tiny, tmp_path, monkeypatch):
    run_dir = str(tmp_path / "run")
    env = host(1, env=Faulty)
    trainer = trainer_of(tiny, env, run_dir=run_dir, enable_evaluation=False)
    with trainer, pytest.raises(EnvFailedError, match="environment 0") as caught:
        trainer.run(0)
    assert "the motor is on fire" in str(caught.value)
    assert read_records(tmp_path / "run" / "metrics.jsonl")[-1].kind == "error"
    monkeypatch.setattr(Faulty, "is_broken", False)
    with trainer_of(
        tiny, env, run_dir=run_dir, enable_evaluation=False, restore_checkpoint="auto"
    ) as trainer:
        trainer.init(0)
        assert trainer.outer_iteration == 1 and trainer.env_steps == 16
        trainer.run()
        assert trainer.env_steps == 48
    env.close()


def test_an_interrupted_run_keeps_what_it_learned(tiny, monkeypatch):
    """Stopped in the middle of an outer iteration, the state is that of the last finished update,
    and the run can go on.
    """
    for overlap in ("none", "update"):
        env = host(1, env=Faulty)
        trainer = trainer_of(
            tiny,
            env,
            epochs_per_checkpoint=5,
            num_checkpoints=1,
            enable_evaluation=False,
            overlap=overlap,
        )
        with pytest.raises(EnvFailedError):
            trainer.run(0)
        # Of 8 steps each; the 30th fails in the fourth rollout.
        finished = {"none": 3, "update": 3}[overlap]
        assert trainer.env_steps == trainer.state.learner.env_steps.to_int() == finished * 8
        assert trainer.state.learner.updates.to_int() == finished * 2
        monkeypatch.setattr(Faulty, "is_broken", False)
        trainer.run()
        assert trainer.state.learner.env_steps.to_int() == finished * 8 + 40

        # Once more, in a single step: nothing of the first failure is left.
        monkeypatch.setattr(Faulty, "is_broken", True)
        with pytest.raises(EnvFailedError):
            trainer.train_step()
        assert trainer.env_steps == trainer.state.learner.env_steps.to_int() == finished * 8 + 40
        assert np.isfinite(jax.tree.leaves(trainer.state.learner.params)[0]).all()
        env.close()


def test_a_state_that_went_down_is_told_so(tiny, monkeypatch):
    trainer = trainer_of(tiny, enable_evaluation=False)
    trainer.init(0)
    kept = trainer.program.copy(trainer.state)

    def fail(ts):
        jax.tree.map(lambda x: x.delete() if isinstance(x, jax.Array) else None, ts.learner)
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer.program, "outer", fail)
    with pytest.raises(KeyboardInterrupt):
        trainer.train_epoch()
    with pytest.raises(ConfigError, match=r"lost when an iteration was cut short; load_checkpoint"):
        trainer.run()
    monkeypatch.undo()
    trainer.state = kept
    trainer.train_epoch()
    assert trainer.state.learner.env_steps.to_int() == trainer.env_steps


# Mistakes


class Endless(HostCounter):
    """Has no time limit."""

    def __init__(self):
        super().__init__()
        del self.max_episode_steps


class Plain:
    """A host adapter of the user's own, with the least that the contract asks for: no `remake`, no
    halves of a step.
    """

    num_envs, is_jittable, max_episode_steps, spec = 2, False, 8, None
    observation_space, action_space = HostCounter().observation_space, spaces.Discrete(3)

    def __init__(self):
        self.inner = host(2)

    def reset(self, key):
        return self.inner.reset(key)

    def step(self, key, state, action):
        return self.inner.step(key, state, action)

    def close(self):
        self.inner.close()


def test_an_adapter_with_the_least_of_the_contract_trains(tiny):
    assert isinstance(Plain(), EnvAdapter)
    with trainer_of(tiny, Plain(), eval_env=Plain()) as trainer:
        trainer.run(0)
    with trainer_of(tiny, host(2), enable_evaluation=False) as other:
        other.run(0)
    assert tree_digest(trainer.state.learner) == tree_digest(other.state.learner)
    for settings in ({"num_seeds": 2}, {"overlap": "acting"}):
        with pytest.raises(ConfigError, match=r"Plain is needed with .* but has no method remake"):
            trainer_of(tiny, Plain(), enable_evaluation=False, **settings)


def test_mistakes_are_told_before_anything_compiles(tiny):
    env = host()
    with pytest.raises(
        ConfigError, match="eval_env is env, but a host environment has a single state"
    ):
        trainer_of(tiny, env, eval_env=env)
    one = HostCounter()
    with pytest.raises(
        ConfigError, match="eval_env is env, but a host environment has a single state"
    ):
        trainer_of(tiny, one, eval_env=one, agent=agent_for(one))
    with pytest.raises(
        ConfigError, match="overlap='acting' is for stepping environments on the host"
    ):
        tiny.trainer(overlap="acting", share=False)
    with pytest.raises(ConfigError, match="needs an even number of environments, got 3"):
        trainer_of(tiny, host(3), overlap="acting")
    with pytest.raises(ConfigError, match="no time limit"):
        trainer_of(tiny, host(env=Endless))
    trainer_of(tiny, host(env=Endless), max_evaluation_steps=5).close()
    with pytest.raises(ConfigError, match=r"runs on the host .* use Trainer"):
        fit(tiny.module(env=host()), jax.random.key(0), num_outer_iterations=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own(Collector):
    """A collector with its own way to step environments."""

    def collect(self, env, explore, initial_carry, local):
        return super().collect(env, explore, initial_carry, local)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Halving(Collector):
    """A collector with its own way to count."""

    def count(self, local, rollout):
        return super().count(local, rollout.replace(reward=rollout.reward / 2))


def test_a_collector_with_its_own_collect_is_refused(tiny):
    """On the host it would be ignored; what is called there is the user's to override."""
    original = tiny.algorithm("ppo")
    num_steps = original.collector.num_steps
    algorithm = dataclasses.replace(original, collector=Own(num_steps=num_steps))
    tiny.trainer(algorithm=algorithm, share=False).close()  # on a jittable environment it counts
    with pytest.raises(
        ConfigError, match=r"Own has its own collect, which cannot step .* host; use Collector"
    ):
        trainer_of(tiny, host(), algorithm=algorithm)
    counted = dataclasses.replace(original, collector=Halving(num_steps=num_steps))
    digests = []
    for algorithm in (original, counted):
        with trainer_of(
            tiny, env := host(), algorithm=algorithm, enable_evaluation=False
        ) as trainer:
            trainer.run(0)
            digests.append(tree_digest(trainer.state.learner))
        env.close()
    assert digests[0] != digests[1]


def test_two_runs_cannot_share_an_adapter(tiny):
    env = host()
    one, other = (trainer_of(tiny, env, enable_evaluation=False) for _ in range(2))
    one.init(0)
    other.init(1)
    other.train_step()
    with pytest.raises(EnvContractError, match="create one adapter for each"):
        one.train_step()
    env.close()


def test_one_environment_cannot_serve_two_adapters(tiny):
    one = HostCounter()
    first, second = host(1, env=one), host(1, env=one)
    state, _ = first.reset(jax.random.key(0))
    second.reset(jax.random.key(1))
    with pytest.raises(EnvContractError, match="was reset through another adapter"):
        first.step(None, state, np.zeros(1, np.int32))


def test_evaluation_keeps_what_was_reported(tiny):
    """Some episodes report a number and others do not, whichever end together."""

    class Sometimes(HostCounter):
        def step(self, action):
            obs, reward, terminated, truncated, _ = super().step(action)
            return obs, reward, terminated, truncated, {"won": 100.0} if terminated else {}

    with trainer_of(tiny, host(4, env=Sometimes), evaluation_episodes=16) as trainer:
        trainer.init(0)
        policy = trainer.state.learner.policy
        player = trainer._loop.evaluations.planned._player
        sampled, info = player._play(policy, jax.random.key(0), 16, deterministic=False)
    won = sampled["return"] >= 10
    assert 0 < won.sum() < 16
    np.testing.assert_array_equal(info["won"], np.where(won, 100.0, np.nan))
    assert mean_of_known(info["won"]) == 100.0


# A real process


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_orphans_when_the_run_is_killed(tmp_path, number):
    """Workers of an asynchronous environment end with the process that trains."""
    program = """
        import multiprocessing, sys
        import rlkit
        if __name__ == "__main__":
            env = rlkit.make_env("gymnasium/CartPole-v1", num_envs=2, vectorization="async")
            agent = rlkit.actor_critic(env.observation_space, env.action_space)
            algorithm = rlkit.ppo(rlkit.PPOConfig(num_steps=8))
            config = rlkit.TrainerConfig(
                total_steps=10**9, num_checkpoints=10**6, enable_evaluation=False, debug=False
            )
            trainer = rlkit.Trainer(env, None, agent, algorithm, config)
            trainer.init(0)
            trainer.train_epoch()
            print(*(process.pid for process in multiprocessing.active_children()), flush=True)
            while True:
                trainer.train_epoch()
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(program), encoding="utf-8")
    command = [sys.executable, "script.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        try:
            assert run.stdout is not None
            pids = [int(pid) for pid in run.stdout.readline().split()]
            assert len(pids) == 2 and all(is_alive(pid) for pid in pids)
            run.send_signal(number)
            assert run.wait(timeout=20) == -number
            assert wait_for(lambda: not any(is_alive(pid) for pid in pids), seconds=10)
        finally:
            run.kill()


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def test_a_built_trainer_closes_its_environments(tmp_path, monkeypatch):
    """Also if it cannot be built."""
    closed = []
    monkeypatch.setattr(GymnasiumAdapter, "close", lambda self: closed.append(self.num_envs))
    trainer = TrainerConfig(
        num_checkpoints=1, epochs_per_checkpoint=1, evaluation_episodes=2, debug=False
    )
    config = RunConfig(
        algorithm="ppo", env=EnvConfig(id="gymnasium/CartPole-v1", num_envs=3), trainer=trainer
    )
    with build(config):
        assert closed == []
    assert 3 in closed
    closed.clear()
    broken = dataclasses.replace(trainer, run_dir="/dev/null")
    with pytest.raises(RunDirectoryError, match="is a file"):
        build(dataclasses.replace(config, trainer=broken))
    assert 3 in closed
