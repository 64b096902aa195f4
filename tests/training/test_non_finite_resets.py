"""Runs in environments that are reset where they return NaN or infinity: nothing of it is learned
from or logged, all of it is counted, and training goes on.
"""

import dataclasses
import json

import algorithm_rows as rows
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from fragile_envs import (
    Bursts,
    Fragile,
    FragileAtTimes,
    HostFragile,
    HostFragileAtTimes,
    registered,
)
from host_twins import agent_for
from stopping import StopAt
from tiers import by_default, in_full

from rlkit.algorithms.configs import PPOConfig
from rlkit.algorithms.metrics import NON_FINITE
from rlkit.algorithms.ppo import ppo
from rlkit.cli.main import main
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.envs.probes.value_probes import ObservationDependentAction
from rlkit.errors import EnvFailedError
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.core.module import RLModule, fit
from rlkit.training.curriculum import Curriculum, Phase
from rlkit.training.from_config import build, reopen
from rlkit.training.logs.records import read_records
from rlkit.training.programs.host_program import HostProgram
from rlkit.training.programs.jittable_program import DeviceProgram
from rlkit.training.programs.players import make_player
from rlkit.training.run_config import from_dict

# Every episode has four steps, and ends with NaN in the last: a rollout has one of each environment
SHORT = PPOConfig(num_steps=4, num_minibatches=1, num_epochs=1, normalize_observations=True)
ENDLESSLY = {"always": True}


def env_of(on_host, num_envs=2, **settings):
    if on_host:
        return GymnasiumAdapter(HostFragile, num_envs, non_finite="reset", **settings)
    return vectorize(Fragile(**settings), num_envs, non_finite="reset")


def texts_of(run, kind="warning"):
    return [r.text for r in read_records(run / "metrics.jsonl") if r.kind == kind]


@pytest.mark.parametrize("on_host", [False, in_full(True)])
def test_it_is_counted_and_told_once(tiny, tmp_path, on_host):
    """Once in the rollout for the statistics of observations, then in each iteration; and at the
    end of all six episodes of each evaluation, which count with the return until then.
    """
    env, run = env_of(on_host, **ENDLESSLY), tmp_path / "run"
    settings = {"num_checkpoints": 3, "epochs_per_checkpoint": 2, "log_iterations": True}
    with tiny.trainer(ppo(SHORT), env=env, run_dir=str(run), **settings) as trainer:
        evaluations = trainer.run(0)
        assert [row["non_finite_steps"] for row in trainer.history.training] == [2] * 6
        assert trainer.summary()["non_finite_steps"] == 2 + 6 * 2
    env.close()
    assert [each["non_finite_episodes"] for each in evaluations] == [6, 6, 6]
    assert (evaluations[0]["return"] == 3.0).all() and (evaluations[0]["length"] == 4).all()
    in_evaluation, in_training, in_all = texts_of(run)
    assert in_training.startswith("HostFragile" if on_host else "Fragile")
    assert "returned NaN or infinity in 6 steps: the episode ended there" in in_training
    assert in_evaluation.startswith("in evaluation, ") and "in 6 episodes: they" in in_evaluation
    assert "and was reset, in 14 of 56 steps" in in_all
    for record in read_records(run / "metrics.jsonl"):
        assert np.isfinite(list(record.metrics.values())).all()
        if record.kind == "eval":
            assert record.metrics["eval/non_finite_episodes"] == 6
        if record.kind == "train":
            assert record.metrics["train/avg_return"] == 3.0


@pytest.mark.full
def test_a_run_without_any_says_nothing(tiny, tmp_path):
    env, run = env_of(False, at=100), tmp_path / "run"
    settings = {"num_checkpoints": 1, "epochs_per_checkpoint": 1}
    with tiny.trainer(ppo(SHORT), env=env, run_dir=str(run), **settings) as trainer:
        evaluation = trainer.run(0)[-1]
        assert evaluation["non_finite_episodes"] == 0
        assert trainer.history.training[-1]["non_finite_steps"] == 0
    assert not texts_of(run)


@pytest.mark.full
@pytest.mark.parametrize("on_host", [False, True])
def test_an_evaluation_counts_its_own_episodes(tiny, key, on_host):
    """Not those that environments play while others are still in theirs."""
    kinds = {
        True: lambda: GymnasiumAdapter(HostFragileAtTimes, 4, non_finite="reset", at=100),
        False: lambda: vectorize(FragileAtTimes(at=100), 4, non_finite="reset"),
    }
    env, eval_env = (kinds[on_host]() for _ in range(2))
    module = tiny.module(ppo(SHORT), env=env, eval_env=eval_env, evaluation_episodes=10)
    policy = module.algorithm.init(module.agent, kinds[False](), key, total_steps=10.0)
    found = make_player(module.evaluator(), Compiler(1)).evaluate(policy.learner.policy)
    broken = [(found[f"{kind}length"] == 2).sum() for kind in ("", "sampled_")]
    assert 0 < found["non_finite_episodes"] == sum(broken) < 20
    for made in (env, eval_env):
        made.close()


@pytest.mark.full
@pytest.mark.parametrize("on_host", [False, True])
def test_each_seed_counts_its_own(tiny, tmp_path, on_host):
    env, run = env_of(on_host, **ENDLESSLY), tmp_path / "run"
    settings = {"num_checkpoints": 2, "epochs_per_checkpoint": 1, "num_seeds": 2}
    with tiny.trainer(ppo(SHORT), env=env, run_dir=str(run), **settings) as trainer:
        evaluation = trainer.run(0)[-1]
        assert trainer.summary()["non_finite_steps"] == 2 * 3 * 2
    env.close()
    assert evaluation["non_finite_episodes"].tolist() == [6, 6]
    found = [r for r in read_records(run / "metrics.jsonl") if r.kind == "train"]
    assert [r.metrics["train/non_finite_steps"] for r in found] == [2.0] * 6  # seeds and their mean
    assert "in 8 steps" in texts_of(run)[1] and "in 12 of 48 steps" in texts_of(run)[2]


# What is learned from


def modules(tiny, name="ppo", agent=agent_for, **settings):
    """The same run on both kinds."""
    found = []
    for on_host in (False, True):
        env = env_of(on_host, 3)
        own = agent(env, algorithm=name)
        algorithm = tiny.algorithm(name, **settings)
        found.append(RLModule(env=env, agent=own, algorithm=algorithm, total_steps=1000.0))
    return found


def assert_finite(tree):
    for x in jax.tree.leaves(tree):
        if jnp.issubdtype(x.dtype, jnp.inexact):
            assert np.isfinite(x).all()


@pytest.mark.parametrize("name", by_default(["dqn"], ["ppo", "dqn", "sac", "ppo.gru", "dqn.gru"]))
def test_no_batch_holds_any(tiny, key, name):
    """Neither rollouts nor what they leave: statistics, replay memory, parameters, metrics."""
    if not rows.acts_in(name, Fragile.action_space):
        name = "discrete_sac"
    settings = rows.NORMALIZED | {"num_minibatches": 1}
    module = modules(tiny, name, **rows.known(rows.entry(name).config, settings))[0]
    ts, counts = jax.jit(module.begin)(key)
    total, seen = float(counts[NON_FINITE]), 0
    for _ in range(4):
        ts, (rollout, episodes) = jax.jit(module.get_batch)(ts, jnp.int32(0))
        assert_finite((rollout, episodes))
        assert (rollout.terminated | ~rollout.non_finite).all()
        seen += int(rollout.non_finite.sum())
        ts, metrics = jax.jit(module.training_step)(jnp.int32(0), ts, (rollout, episodes))
        total += float(metrics[NON_FINITE])
        for name_, value in metrics.items():
            assert np.isfinite(value) or np.isnan(value), name_  # NaN: not due
    assert seen > 0 and total == seen + float(counts[NON_FINITE])
    assert_finite((ts.learner, ts.local.episodes, ts.local.carry))
    if module.algorithm.replay_buffer is not None:
        ring = getattr(ts.local.memory, "ring", ts.local.memory)
        assert_finite(ring.transitions)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "settings"),
    [("ppo", {}), ("dqn", {"num_steps": 1}), ("dqn", {})],
)
@pytest.mark.parametrize("overlap", ["none", "update", "acting"])
def test_both_kinds_train_on_the_same(tiny, key, name, settings, overlap):
    """The same transitions and counts; with single steps in the compiled loop of the host."""
    device, host = modules(tiny, name, **settings)
    if overlap == "acting":
        device, host = (
            dataclasses.replace(m, env=env_of(not m.env.is_jittable, 4)) for m in (device, host)
        )
    programs = (
        DeviceProgram(device, compiler=Compiler(1), num_iterations=3),
        HostProgram(host, compiler=Compiler(1), num_iterations=3, overlap=overlap),
    )
    states = [program.init(key) for program in programs]
    warm_up = [program.warm_up_metrics.get(NON_FINITE, 0) for program in programs]
    if overlap != "acting":  # whose halves draw other actions
        assert warm_up[0] == warm_up[1]
    results = [program.outer(ts)[1][0] for program, ts in zip(programs, states, strict=True)]
    programs[1].close()
    counts = [result[NON_FINITE] for result in results]
    assert counts[1] > 0 and all(float(x).is_integer() for x in counts)
    if overlap == "none":
        assert counts[0] == counts[1]
        assert results[0]["sum/episodes"] == results[1]["sum/episodes"]


def test_memory_begins_anew(tiny, key):
    def counting(env, algorithm):
        return agent_for(env, counting=True, algorithm=algorithm)

    module = modules(tiny, "ppo", agent=counting, num_minibatches=1)[0]
    algorithm = dataclasses.replace(module.algorithm, learns_through_carry=True)
    module = dataclasses.replace(module, algorithm=algorithm)
    ts = jax.jit(module.init_train_state)(key)
    _, (rollout, _) = jax.jit(module.get_batch)(ts, jnp.int32(0))
    after = np.roll(rollout.non_finite, 1, axis=0)
    after[0] = False
    assert after.any() and (rollout.extras["age"][after] == 0).all()
    assert (rollout.obs[after] == 0).all()


@pytest.mark.parametrize("name", ["ppo", in_full("dqn")])
def test_it_learns_all_the_same(key, name):
    """A probe that spoils a quarter of its steps."""
    single = Bursts(ObservationDependentAction())
    env = vectorize(single, 8, non_finite="reset")
    algorithm = rows.algorithm_of(name, rows.LEARNING | rows.PLAIN_VALUES, gamma=0.9)
    module = RLModule(env=env, agent=rows.agent_of(name, env), algorithm=algorithm, total_steps=1e5)
    train = jax.jit(
        lambda k: fit(module, k, num_outer_iterations=400),
        compiler_options={"xla_backend_optimization_level": 0},
    )
    ts, results = train(key)
    best, _ = module.agent.exploit(ts.learner.params, single.observations(), (), key)
    assert (best == single.best_action()).all()
    share = results["train"][NON_FINITE].mean() / (8 * algorithm.collector.num_steps)
    assert 0.2 < share < 0.25  # 1 - (1 - 1/8)², both at once count once


# Settings, and going on


def config_of(run, env_id, arguments, **trainer):
    hyper = {"num_steps": 4, "num_minibatches": 1, "num_epochs": 1, "normalize_observations": True}
    return from_dict(
        {
            "algorithm": "ppo",
            "env": {"id": env_id, "num_envs": 2, "arguments": arguments},
            "hyperparameters": hyper,
            "network": {"hidden_sizes": [8]},
            "trainer": {
                "num_checkpoints": 4,
                "epochs_per_checkpoint": 1,
                "evaluation_episodes": 3,
                "debug": False,
                "logger_config": {"console": False},
                "run_dir": str(run),
            }
            | trainer,
        }
    )


@pytest.mark.full
@pytest.mark.parametrize("kind", ["Fragile", in_full("HostFragile")])
def test_a_resumed_run_counts_on_and_does_not_tell_again(tmp_path, kind):
    with registered():
        arguments = {"non_finite": "reset"}
        for name, stop in (("whole", None), ("parts", 2)):
            config = config_of(tmp_path / name, f"mine/{kind}", arguments)
            with build(config, callbacks=[] if stop is None else [StopAt(stop)]) as trainer:
                trainer.run(trainer.seed)
        with reopen(tmp_path / "parts") as trainer:
            assert trainer.module.env.non_finite == "reset"
            trainer.run()
    whole, parts = (json.loads((tmp_path / n / "summary.json").read_text()) for n in NAMES)
    assert whole["non_finite_steps"] == parts["non_finite_steps"] > 0
    assert whole["params_sha256"] == parts["params_sha256"]
    for name in NAMES:
        told = [text for text in texts_of(tmp_path / name) if "this warning appears once" in text]
        assert sum("in evaluation" in text for text in told) == 1 and len(told) == 2


NAMES = ("whole", "parts")


@pytest.mark.full
@pytest.mark.parametrize("kind", ["Fragile", "HostFragile"])
def test_a_run_that_ended_with_the_error_can_go_on(tmp_path, kind):
    """From its last checkpoint, with config.yaml changed: the states are the same."""
    run = tmp_path / "run"
    with registered():
        with build(config_of(run, f"mine/{kind}", {}, enable_evaluation=False)) as trainer:
            with pytest.raises(EnvFailedError, match="returned"):
                trainer.run(trainer.seed)
            saved = trainer.outer_iteration
        settings = yaml.safe_load((run / "config.yaml").read_text())
        settings["env"]["arguments"] = {"non_finite": "reset"}
        (run / "config.yaml").write_text(yaml.safe_dump(settings))
        with reopen(run, accept_differences=True) as trainer:
            trainer.run()
            assert trainer.outer_iteration == 4 > saved - 1
            assert trainer.summary()["non_finite_steps"] > 0


@pytest.mark.full
def test_phases_tell_for_themselves(tmp_path):
    """Of the environments of each, in the same program or another."""
    breaks = {"non_finite": "reset", "always": True}
    phases = (Phase(steps=24), Phase(steps=16, env_params={"at": 100}), Phase(steps=16))
    own = {"enable_evaluation": False, "num_checkpoints": None}
    with registered():
        config = config_of(tmp_path / "run", "mine/Fragile", breaks, **own)
        config = dataclasses.replace(config, curriculum=Curriculum(phases=phases))
        with build(config) as trainer:
            trainer.run(trainer.seed)
            counts = [row["non_finite_steps"] for row in trainer.history.training]
    assert counts == [2, 2, 0, 0, 2, 2]
    told = [text for text in texts_of(tmp_path / "run") if "this warning appears once" in text]
    assert len(told) == 2


@pytest.mark.full
@pytest.mark.parametrize("kind", ["Fragile", in_full("HostFragile")])
def test_on_the_command_line(tmp_path, capsys, kind):
    run = tmp_path / "run"
    arguments = json.dumps({"non_finite": "reset", "always": True})
    small = ["--total-steps", "64", "--num-steps", "4", "--num-minibatches", "1", "--num-envs", "2"]
    with registered():
        train = ["train", "ppo", f"mine/{kind}", "--env-arguments", arguments, *small]
        assert main([*train, "--run-dir", str(run), "--num-checkpoints", "2"]) == 0
        assert "returned NaN or infinity in" in capsys.readouterr().out
        assert main(["evaluate", str(run), "--episodes", "2"]) == 0
        assert "4 of these episodes ended because the environment" in capsys.readouterr().out
        assert main(["evaluate", str(run), "--episodes", "2", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
    assert found["non_finite_episodes"] == 4 and found["return_mean"] == 3.0
