"""Checkpoints with and without the replay memory; what is not saved is filled anew, and counted,
before anything is learned.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_twins import HostCounter
from stopping import StopAt
from tiers import by_default

from rlkit.agents.configs import QNetworkConfig
from rlkit.agents.q_network import q_network
from rlkit.cli.main import main
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.errors import CheckpointError, ConfigError
from rlkit.training import run_config
from rlkit.training.callbacks import ProgressBar
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.config import CheckpointerConfig, TrainerConfig
from rlkit.training.files import checkpoint_items
from rlkit.training.files.checkpoint_items import without_replay
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.from_config import build, reopen
from rlkit.training.logs.records import read_records
from rlkit.training.programs.jittable_program import DeviceProgram
from rlkit.training.run_config import EnvConfig, RunConfig

ITERATION, PREFILL, OUTER = 16, 32, 32  # environment steps; a refill takes as many as the prefill
TOTAL = PREFILL + 3 * OUTER
REFILLED = (
    f"the replay buffer was not saved: {PREFILL} steps of the restored policy refill it, on top"
    " of total_steps"
)


@pytest.fixture
def make(tiny, tmp_path):  # which outlives the trainers in it
    """`make(run_dir, save_replay, kind="device", stop=…, **settings)`: a trainer of DQN whose
    memory is watched.

    It has three outer iterations, goes on where there is something to go on with, and stops after
    outer iteration `stop`.
    """
    made = []

    def make(run_dir, save_replay=False, kind="device", *, stop=3, **settings):
        config = CheckpointerConfig(save_replay=save_replay, max_to_keep=9)
        env = GymnasiumAdapter(HostCounter, 2, floats=True) if kind == "host" else None
        if run_dir is not None:
            settings |= {"run_dir": str(run_dir), "restore_checkpoint": "auto"}
        settings = {
            "enable_evaluation": False,
            "max_queued": 1,
            "callbacks": [StopAt(stop)],
            **settings,
        }
        trainer = tiny.trainer("dqn", env=env, checkpointer_config=config, **settings)
        made.append(trainer)
        watch(trainer)
        return trainer

    yield make
    for trainer in made:
        trainer.close()


def watch(trainer):
    """Notes for each call that learns whether the memories of all seeds hold a batch, for each copy
    whether it has any.
    """
    algorithm, program = trainer.module.algorithm, trainer.program
    least = algorithm.replay_buffer.batch_size / trainer.module.env.num_envs  # rows
    trainer.could_sample, trainer.copied = [], []

    def watched(step):
        def call(ts):
            trainer.could_sample.append(bool(np.all(ts.local.memory.size >= least)))
            return step(ts)

        return call

    def copy(ts):
        trainer.copied.append(bool(jax.tree.leaves(ts.local.memory)))
        return program.copy(ts)

    shown = type("Watched", (), {"__getattr__": lambda _, name: getattr(program, name)})()
    shown.outer, shown.single, shown.copy = watched(program.outer), watched(program.single), copy
    trainer._run.program = shown


def texts(run_dir):
    return [
        record.text for record in read_records(run_dir / "metrics.jsonl") if record.kind == "event"
    ]


def holds_memory(step_dir):
    """Whether the leaves that the checkpoint lists are also those of a replay memory."""
    return "memory" in (step_dir / "signature" / "metadata").read_text()


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "num_seeds"),
    [("device", 1), ("device", 2), ("host", 1), ("host", 2)],
)
def test_a_memory_that_is_not_saved_is_filled_anew(make, tmp_path, kind, num_seeds):
    run = tmp_path / "run"
    with make(run, kind=kind, num_seeds=num_seeds, stop=2) as trainer:
        trainer.run(0)
        before = tree_digest(trainer.state.learner)
        assert trainer.copied == [False] * 3  # what is not saved is not copied either
    assert (
        sum(
            "checkpoints leave out the replay buffer, because save_replay=False" in text
            for text in texts(run)
        )
        == 1
    )
    with make(run, kind=kind, num_seeds=num_seeds) as resumed:
        state = resumed.init(0)
        assert tree_digest(state.learner) == before and state.local.memory == ()
        assert resumed.env_steps == TOTAL - OUTER
        assert len(resumed.run()) == 1 and resumed.could_sample == [True]
        counted = resumed.state.learner.env_steps
        assert resumed.env_steps == counted.to_int() == TOTAL + PREFILL
        assert np.shape(counted.low) == (() if num_seeds == 1 else (2,)) and set(
            np.ravel(counted.low)
        ) == {TOTAL + PREFILL}
    assert [
        record.env_steps for record in read_records(run / "metrics.jsonl") if record.kind == "train"
    ][-1] == TOTAL + PREFILL
    said = [text for text in texts(run) if "was not saved" in text]
    assert said == [f"{REFILLED}; the run will not match an uninterrupted one bit for bit"]
    assert any(
        text.startswith(f"training from step {TOTAL} to {TOTAL + OUTER} environment steps")
        for text in texts(run)
    )
    with make(run, kind=kind, num_seeds=num_seeds) as again:
        assert (
            again.run(0) == [] and again.env_steps == TOTAL + PREFILL and again.could_sample == []
        )
        assert again.state.local.memory == ()  # nothing is left to learn, hence nothing to fill
    assert sum("was not saved" in text for text in texts(run)) == 1


@pytest.mark.full
def test_schedules_and_the_progress_bar_end_where_the_run_does(make, tmp_path, terminal):
    run, bars = tmp_path / "run", []
    terminal()

    class Watched(ProgressBar):
        def on_run_end(self, trainer):
            bars.append((self._bar.initial, self._bar.n, self._bar.total))
            super().on_run_end(trainer)

    for stop in (1, 2, 3):
        with make(run, stop=stop, callbacks=[StopAt(stop), Watched()]) as trainer:
            trainer.run(0)
            progress = float(trainer.state.learner.progress)
    assert bars == [
        (PREFILL, PREFILL + OUTER, TOTAL),
        (2 * PREFILL + OUTER, 2 * PREFILL + 2 * OUTER, TOTAL + PREFILL),
        (3 * PREFILL + 2 * OUTER, TOTAL + 2 * PREFILL, TOTAL + 2 * PREFILL),
    ]
    assert progress == 1.0


@pytest.mark.parametrize(
    ("kind", "save_replay"),
    by_default([("host", None)], [("device", None), ("device", True), ("host", None)]),
)
def test_a_memory_that_is_saved_comes_back(make, tmp_path, kind, save_replay):
    run = tmp_path / "run"
    with make(run, save_replay, kind, stop=2) as trainer:
        trainer.run(0)
        memory = tree_digest(trainer.state.local.memory)
        trainer.save_checkpoint(tmp_path / "whole")
    with make(run, save_replay, kind) as resumed:
        state = resumed.init(0)
        assert jax.tree.leaves(state.local.memory)
        # On the host, cut where the episodes were.
        assert kind == "host" or tree_digest(state.local.memory) == memory
        resumed.run()
        assert (
            resumed.could_sample == [True]
            and resumed.env_steps == resumed.state.learner.env_steps.to_int() == TOTAL
        )
    assert not any("leave out" in text or "was not saved" in text for text in texts(run))


def test_old_checkpoints_have_a_memory(make, tmp_path, monkeypatch):
    """Those that were written before there was a choice, whose metadata say nothing of it."""
    save = Checkpointer.save

    def as_before(self, step, items, *, score, metadata, **bests):
        save(
            self,
            step,
            items,
            score=score,
            metadata={name: value for name, value in metadata.items() if name != "replay"},
            **bests,
        )

    monkeypatch.setattr(Checkpointer, "save", as_before)
    with make(tmp_path / "run", None) as trainer:
        trainer.run(0)
        whole = tree_digest(trainer.state)
    assert tree_digest(make(None, None).load_checkpoint(tmp_path / "run")) == whole


@pytest.mark.full
def test_the_option_may_change_on_the_way(make, tmp_path):
    """Saved, then not, then saved again; a checkpoint that holds the memory is used whatever is
    saved from then on.
    """
    run, steps = tmp_path / "run", tmp_path / "run" / "checkpoints"
    with make(tmp_path / "whole", True) as trainer:
        trainer.run(0)
        whole = tree_digest(trainer.state)
    with make(run, True, stop=1) as trainer:
        trainer.run(0)
    with make(run, False, stop=2) as trainer:
        trainer.run(0)
        # To the bit
        assert tree_digest(trainer.state) == tree_digest(
            make(None).load_checkpoint(tmp_path / "whole", 2)
        )
    assert not any("was not saved" in text for text in texts(run))
    assert holds_memory(steps / "1") and not holds_memory(steps / "2")
    with make(run, True) as trainer:
        trainer.run(0)
        assert tree_digest(trainer.state) != whole and trainer.env_steps == TOTAL + PREFILL
    assert sum("was not saved" in text for text in texts(run)) == 1 and holds_memory(steps / "3")
    assert jax.tree.leaves(make(run, False).init(0).local.memory)


@pytest.mark.filterwarnings("ignore:.*is damaged:RuntimeWarning")
def test_the_step_before_a_damaged_one_may_hold_something_else(make, tmp_path):
    run = tmp_path / "run"
    with make(run, True, stop=2) as trainer:
        trainer.run(0)
        before = tree_digest(trainer.state)
    with make(run, False) as trainer:
        trainer.run(0)
    newest = run / "checkpoints" / "3" / "learner"
    data = max(
        (path for path in newest.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    data.write_bytes(b"\0" * data.stat().st_size)
    assert tree_digest(make(run, False).init(0)) == before


def test_a_large_memory_is_not_saved_unasked(make, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_items, "REPLAY_LIMIT", 100)
    for name, save_replay in (("unasked", None), ("asked", True)):
        with make(tmp_path / name, save_replay, stop=1, eval_fn=lambda state: None) as trainer:
            trainer.run(0)
    reason = [text for text in texts(tmp_path / "unasked") if "leave out" in text]
    assert len(reason) == 1 and "exceed 2.15 GB; save_replay=True saves it" in reason[0]
    assert not any("leave out" in text for text in texts(tmp_path / "asked"))
    loader = make(None, None)
    assert jax.tree.leaves(loader.load_checkpoint(tmp_path / "asked").local.memory)
    assert loader.load_checkpoint(tmp_path / "unasked").local.memory == ()


@pytest.mark.full
def test_another_run_takes_any_step_over(make, tmp_path):
    settings = {"enable_evaluation": True, "evaluation_episodes": 2}
    with make(tmp_path / "run", **settings) as trainer:
        trainer.run(0)
    for which in (0, "best", "latest"):
        branch = make(tmp_path / f"branch-{which}", **settings)
        branch.load_checkpoint(tmp_path / "run", which)
        left = 3 - branch.outer_iteration
        assert branch.state.local.memory == () and branch.evaluate()["return"].shape == (2,)
        branch.run()
        assert branch.could_sample == [True] * left
        assert (
            branch.env_steps
            == branch.state.learner.env_steps.to_int()
            == TOTAL + (PREFILL if left else 0)
        )


@pytest.mark.full
def test_single_steps_and_epochs_fill_it_first(make, tmp_path):
    with make(tmp_path / "run", stop=1) as trainer:
        trainer.run(0)
    for step, taken in (("train_step", ITERATION), ("train_epoch", OUTER)):
        other = make(None)
        other.load_checkpoint(tmp_path / "run", 1)
        # Nothing was filled yet, and nothing is saved.
        assert other.save_checkpoint(tmp_path / f"{step}-before") == 1
        getattr(other, step)()
        assert other.could_sample == [True]
        assert (
            other.env_steps == other.state.learner.env_steps.to_int() == 2 * PREFILL + OUTER + taken
        )
        third = make(None, True)
        third.load_checkpoint(tmp_path / f"{step}-before")
        third.train_step()
        assert third.could_sample == [True]


@pytest.mark.full
def test_saving_by_hand_asks_the_same(make, tmp_path):
    trainer = make(None, False)
    trainer.init(0)
    trainer.save_checkpoint(tmp_path / "mine")
    assert make(None, True).load_checkpoint(tmp_path / "mine").local.memory == ()


@pytest.mark.full
def test_a_function_of_the_users_sees_the_memory(make, tmp_path):
    seen = []
    settings = {"enable_evaluation": True, "evaluation_episodes": 2, "stop": 1}
    trainer = make(
        tmp_path / "run",
        eval_fn=lambda state: seen.append(bool(jax.tree.leaves(state.local.memory))),
        **settings,
    )
    trainer.run(0)
    assert seen == [True] * 2
    assert make(None).load_checkpoint(tmp_path / "run").local.memory == ()


@pytest.mark.full
def test_another_capacity_matters_only_where_the_memory_was_saved(make, tmp_path):
    for name, save_replay in (("with", True), ("without", False)):
        with make(None, save_replay) as trainer:
            trainer.init(0)
            trainer.save_checkpoint(tmp_path / name)
    other = make(None, hyper={"capacity": 40})
    with pytest.raises(CheckpointError, match=r"does not match: local\.memory"):
        other.load_checkpoint(tmp_path / "with")
    assert other.load_checkpoint(tmp_path / "without").local.memory == ()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("prefill_steps", "batch_size", "rollouts"), [(20, 8, 2), (0, ITERATION, 1), (ITERATION, 20, 2)]
)
def test_it_takes_the_prefill_and_a_batch_at_least(tiny, prefill_steps, batch_size, rollouts):
    algorithm = tiny.algorithm("dqn", prefill_steps=prefill_steps, batch_size=batch_size)
    assert algorithm.refill_collects(tiny.env()) == rollouts


@pytest.mark.full
def test_a_refill_that_fails_leaves_nothing_to_learn_from(make, tmp_path, monkeypatch):
    with make(tmp_path / "run", kind="host", stop=1) as trainer:
        trainer.run(0)
    resumed = make(tmp_path / "run", kind="host", stop=2)
    resumed.init(0)
    collect, count = type(resumed.module.env).step_wait, iter(range(100))

    def fail(self):
        if next(count) == 12:
            raise RuntimeError("the motor is on fire")
        return collect(self)

    monkeypatch.setattr(type(resumed.module.env), "step_wait", fail)
    with pytest.raises(RuntimeError, match="on fire"):
        resumed.run()
    assert resumed.could_sample == []
    with pytest.raises(ConfigError, match="the state was lost"):
        resumed.run()
    resumed.init(0)
    resumed.run()
    assert resumed.could_sample == [True]


@pytest.mark.full
def test_reopened_as_it_was_configured(tiny, tmp_path):
    small = {
        "num_steps": 8,
        "prefill_steps": 20,
        "capacity": 60,
        "batch_size": 8,
        "updates_per_step": 0.25,
    }
    run = tmp_path / "run"
    config = RunConfig(algorithm="dqn", env=EnvConfig(id="probe/Counter", num_envs=2))
    config = dataclasses.replace(
        config,
        hyperparameters=dataclasses.replace(config.hyperparameters, **small),
        network=QNetworkConfig(hidden_sizes=(8,)),
        trainer=TrainerConfig(
            total_steps=96,
            num_checkpoints=2,
            enable_evaluation=False,
            debug=False,
            run_dir=str(run),
            checkpointer_config=CheckpointerConfig(save_replay=False),
        ),
    )
    with build(config) as trainer:
        tiny.share(trainer, ("dqn", "reopened"))
        trainer.run(0)
    with reopen(run, total_steps=128) as longer:
        tiny.share(longer, ("dqn", "reopened"))
        watch(longer)
        longer.run()
        assert longer.could_sample == [True] and longer.env_steps == 96 + PREFILL + OUTER
    with reopen(run, total_steps=160) as longer:
        assert longer.state.local.memory == () and longer.env_steps == 96 + PREFILL + OUTER
    assert main(["resume", str(run), "--total-steps", "160", "--save-replay", "True"]) == 0
    with reopen(run) as saved:
        assert (
            jax.tree.leaves(saved.state.local.memory)
            and saved.env_steps == 96 + PREFILL + OUTER + PREFILL + OUTER
        )
    assert run_config.load(run / "config.yaml").trainer.checkpointer_config.save_replay is False


# What it is filled with


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_it_is_filled_by_the_policy_as_it_explores(tiny, key, epsilon):
    """Greedy actions where it explores no more, which random ones would not all be; others where it
    still does.
    """
    env = tiny.env()
    network = QNetworkConfig(hidden_sizes=(8,), epsilon_start=epsilon, epsilon_end=epsilon)
    agent = q_network(env.observation_space, env.action_space, network)
    module = dataclasses.replace(
        tiny.module(), env=env, agent=agent, algorithm=tiny.algorithm("dqn", batch_size=32)
    )
    program = DeviceProgram(module, compiler=Compiler(1), num_iterations=1)
    state = program.init(key)
    params = state.learner.params
    filled = program.refill(jax.tree.map(lambda x: x.copy(), without_replay(state)))
    batch = module.algorithm.replay_buffer.sample(filled.local.memory, key, jnp.float32(0))
    greedy = agent.exploit(params, batch.obs, (), key)[0]
    assert bool((batch.action == greedy).all()) == (epsilon == 0.0)


def test_targets_are_renewed_while_it_is_filled(tiny, key):
    """Of those that follow the environment steps, and a refill is as many as from one renewal to
    the next.
    """
    env = tiny.env()
    algorithm = tiny.algorithm("dqn", target_period=PREFILL)
    module = dataclasses.replace(
        tiny.module(), env=env, agent=tiny.agent(env, "dqn"), algorithm=algorithm
    )
    program = DeviceProgram(module, compiler=Compiler(1), num_iterations=1)
    state = without_replay(program.init(key))
    moved = jax.tree.map(lambda x: x + 1.0, state.learner.params)
    filled = program.refill(state.replace(learner=state.learner.replace(params=moved)))
    assert tree_digest(filled.learner.target_params) == tree_digest(filled.learner.params)
