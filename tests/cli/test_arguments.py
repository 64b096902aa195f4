"""Command-line errors: exit code 2 and one line with a fix, before JAX is imported."""

import json
import subprocess
import sys

import numpy as np
import pytest
import yaml

from rlkit.cli import flags, resume, train
from rlkit.cli.main import main
from rlkit.training import from_config
from rlkit.training.logs import schedule_plot

TRAIN = ["train", "ppo", "gymnax/CartPole-v1"]
MISTAKES = {
    "unknown command": (["trian"], "unknown command 'trian'; did you mean 'train'?"),
    "nothing to train": (["train"], "needs an algorithm and an environment"),
    "only an algorithm": (["train", "ppo"], "an environment before the flags, got ppo"),
    "flags before names": (
        ["train", "--seed", "1", "ppo", "gymnax/CartPole-v1"],
        "an environment before the flags, got none",
    ),
    "unknown algorithm": (
        ["train", "pppo", "gymnax/CartPole-v1"],
        "unknown algorithm 'pppo'; did you mean 'ppo'?",
    ),
    "wrong version": (["train", "ppo", "gymnax/CartPole-v9"], "did you mean 'gymnax/CartPole-v1'"),
    "wrong case": (["train", "ppo", "gymnax/cartpole-v1"], "did you mean 'gymnax/CartPole-v1'"),
    "no suite": (["train", "ppo", "CartPole-v1"], "did you mean 'gymnax/CartPole-v1'"),
    "unknown suite": (["train", "ppo", "gymnaxx/CartPole-v1"], "did you mean 'gymnax/CartPole-v1'"),
    "gymnasium, wrong version": (
        ["train", "ppo", "gymnasium/Hopper-v9"],
        "did you mean 'gymnasium/Hopper-v5'",
    ),
    "gymnasium, no game": (
        ["train", "ppo", "gymnasium/Pong-v5"],
        "did you mean 'gymnasium/ALE/Pong-v5'",
    ),
    "gymnasium, import": (
        ["train", "ppo", "gymnasium/antigravity:Foo-v0"],
        "would import the module 'antigravity'",
    ),
    "gymnasium, own directory": (
        ["train", "ppo", "gymnasium/CartPole-v1", "--run-dir", "/dev/null"],
        "/dev/null is a file",
    ),
    "atari, own directory": (
        ["train", "ppo", "gymnasium/ALE/Pong-v5", "--run-dir", "/dev/null"],
        "/dev/null is a file",
    ),
    "envpool, own directory": (
        ["train", "ppo", "envpool/Hopper-v5", "--run-dir", "/dev/null"],
        "/dev/null is a file",
    ),
    "no such module": (
        ["train", "ppo", "no_such_package.envs:Env", "--total-steps", "1000"],
        "there is no module 'no_such_package' in ",
    ),
    "environment of no run": (
        ["resume", "runs/absent", "--env", "os:system"],
        "runs/absent does not contain a run",
    ),
    "empty environment": (["train", "ppo", ""], "environment id is empty"),
    "path as environment": (["train", "ppo", "../../etc/passwd"], "environment"),
    "module as environment": (["train", "ppo", "antigravity:Foo-v0"], "environment"),
    "unknown flag": (
        [*TRAIN, "--learning-rat", "1"],
        "unknown argument '--learning-rat'; did you mean '--learning-rate'",
    ),
    "another algorithm's flag": (
        ["train", "sac", "gymnax/Pendulum-v1", "--clip_epsilon=0.1"],
        "--clip-epsilon is a setting of ppo; see `rlkit train sac",
    ),
    "memory where there is none": (
        ["train", "td3", "gymnax/Pendulum-v1", "--memory", "gru"],
        "--memory is a setting of ppo, a2c, pqn, dqn",
    ),
    "one name too many": ([*TRAIN, "now"], "got ppo gymnax/CartPole-v1 now"),
    "word behind the flags": (
        [*TRAIN, "--seed", "1", "now"],
        "unknown argument 'now' after --seed 1; see `rlkit train ppo",
    ),
    "no value": ([*TRAIN, "--seed"], "--seed needs a value: a whole number; see `rlkit"),
    "text for a number": (
        [*TRAIN, "--learning-rate", "fast"],
        "--learning-rate must be a number, got 'fast'; see `rlkit",
    ),
    "fraction for a count": (
        [*TRAIN, "--num-envs", "1.5"],
        "--num-envs must be a whole number, got '1.5'; see `rlkit",
    ),
    "not a choice": (
        [*TRAIN, "--activation", "tan"],
        ", got 'tan'; see `rlkit train ppo gymnax/CartPole-v1 --help-all`",
    ),
    "gamma above 1": (
        [*TRAIN, "--gamma", "1.5"],
        "--gamma: input should be less than or equal to 1, got 1.5",
    ),
    "negative learning rate": ([*TRAIN, "--learning-rate", "-1e-3"], "--learning-rate: "),
    "learning rate nan": (
        [*TRAIN, "--learning-rate", "nan"],
        "--learning-rate: input should be a finite number",
    ),
    "no layers": ([*TRAIN, "--hidden-sizes"], "--hidden-sizes: "),
    "negative width": ([*TRAIN, "--hidden-sizes", "64", "-64"], "--hidden-sizes: "),
    "negative length": ([*TRAIN, "--total-steps", "-5"], "--total-steps: "),
    "negative seed": ([*TRAIN, "--seed", "-1"], "--seed: "),
    "huge seed": ([*TRAIN, "--seed", "4294967296"], "--seed: "),
    "wandb mode": (
        [*TRAIN, "--wandb", "on"],
        "--wandb must be online, offline, disabled or None, got 'on'",
    ),
    "wandb alone": (
        [*TRAIN, "--wandb-name", "first"],
        "--wandb-name has no effect without Weights & Biases; add --wandb, or --wandb offline",
    ),
    "yes or no": (
        ["resume", "runs/a", "--save-replay", "maybe"],
        "--save-replay must be True, False or None, got 'maybe'",
    ),
    "two numbers": (
        [*TRAIN, "--optimizer-betas", "0.9"],
        "--optimizer-betas must be 2 numbers or None, got '0.9'",
    ),
    "wandb runs": ([*TRAIN, "--wandb-runs", "2"], "--wandb-runs must be one or per_seed, got '2'"),
    "arguments not JSON": ([*TRAIN, "--env-arguments", "{a: 1"], "--env-arguments is not JSON"),
    "arguments of make_env": (
        [*TRAIN, "--env-arguments", '{"num_envs": 3}'],
        "'num_envs' is no argument of an environment, but of make_env; leave it out (--num-e",
    ),
    "arguments no object": (
        [*TRAIN, "--env-arguments", "[1]"],
        "--env-arguments must be a JSON object",
    ),
    "minibatches that do not divide": (
        [*TRAIN, "--num-minibatches", "3"],
        "num_minibatches=3 does not divide the 512 samples",
    ),
    "a setting that the optimiser ignores": (
        [*TRAIN, "--momentum", "0.9"],
        "momentum has no effect with optimizer=adam; leave it out, or set optimizer to sgd",
    ),
    "environment that downloads": (
        ["train", "ppo", "gymnax/MNISTBandit-bsuite"],
        "MNISTBandit-bsuite cannot run offline",
    ),
    "a file as directory": (
        [*TRAIN, "--run-dir", "/dev/null"],
        "/dev/null is a file; name a directory",
    ),
    "a directory of somebody else": (
        [*TRAIN, "--run-dir", "/usr"],
        "/usr is not a run directory: it holds other files",
    ),
    "nothing to restore": (
        [*TRAIN, "--run-dir", "runs/absent", "--restore-checkpoint", "best"],
        "absent does not contain a run; set --run-dir",
    ),
    "unknown agent": ([*TRAIN, "--agent", "actorcritic"], "did you mean 'actor_critic' or"),
    "no length": (
        ["train", "ppo", "gymnasium/Acrobot-v1"],
        "the length of training is not set; add for example --total-steps",
    ),
    "odd number": ([*TRAIN, "--overlap", "acting", "--num-envs", "3"], "use --num-envs 4"),
    "settings that contradict each other": (
        [*TRAIN, "--sde-sample-freq", "8"],
        "rlkit: error: sde_sample_freq",
    ),
    "no environments": ([*TRAIN, "--num-envs", "0"], "--num-envs must be positive, got 0"),
    "absent config": ([*TRAIN, "--config", "absent.yaml"], "cannot read absent.yaml"),
    "config without value": ([*TRAIN, "--config"], "--config needs a value: text or None"),
    "config without value or names": (
        ["train", "--config"],
        "--config needs a value; name a file: --config runs/mine/config.yaml",
    ),
    "a suite with a colon": (
        ["train", "ppo", "gymnasium:CartPole-v1"],
        "not a valid environment class; use gymnasium/CartPole-v1",
    ),
    "names in the other order": (
        ["train", "gymnax/CartPole-v1", "ppo"],
        "use `rlkit train ppo gymnax/CartPole-v1`",
    ),
    "text for an optional number": (
        [*TRAIN, "--total-steps", "1Mio"],
        "--total-steps must be a whole number or None, got '1Mio'; see `rlkit",
    ),
    "text for whole numbers": (
        [*TRAIN, "--hidden-sizes", "64x64"],
        "--hidden-sizes must be whole numbers, got '64x64'; see `rlkit",
    ),
    "a large size with a comma": (
        [*TRAIN, "--dry-run", "--hidden-sizes", "1,024", "64"],
        "--hidden-sizes=1,024 64: commas separate values, so 1,024 is 2 of them; write 1024",
    ),
    "two seeds in one": (
        [*TRAIN, "--seed", "64,128"],
        "--seed must be a whole number, got '64,128'; see `rlkit",
    ),
    "seeds behind a seed": ([*TRAIN, "--seed", "1", "2"], "argument '2' after --seed 1; see"),
    "a seed twice": ([*TRAIN, "--seed", "1", "1"], "argument '1' after --seed 1; see"),
    "a seed that is a number elsewhere": (
        [*TRAIN, "--num-seeds", "2", "--seed", "1", "2"],
        "argument '2' after --seed 1; see",
    ),
    "a seed that is a size elsewhere": (
        [*TRAIN, "--seed", "1", "8", "--hidden-sizes", "4", "8"],
        "unknown argument '8'; see",
    ),
    "a value for an opposite": ([*TRAIN, "--no-debug=True"], "unknown argument 'True'; see"),
    "number or word": (
        [*TRAIN, "--restore-checkpoint", "newest"],
        "--restore-checkpoint must be a whole number, latest, best, auto or None, got 'newest'",
    ),
    "no directory": ([*TRAIN, "--run-dir", ""], "the run directory has no name; name one"),
    "shorter than the prefill": (
        ["train", "dqn", TRAIN[2], "--total-steps", "10k", "--prefill-steps", "20k"],
        "total_steps=10000 does not exceed the 20000 random steps before learning",
    ),
    "length set three times": (
        [*TRAIN, "--num-checkpoints", "2", "--epochs-per-checkpoint", "2"],
        "leave out one of the three",
    ),
    "resume nothing": (["resume"], "rlkit resume needs RUN_DIR; see `rlkit resume --help`"),
    "resume an absent run": (["resume", "runs/absent"], "runs/absent does not contain a run"),
    "a run behind a switch that may be None": (
        ["resume", "--save-replay", "runs/absent"],
        "runs/absent does not contain a run",
    ),
    "resume towards less than nothing": (
        ["resume", "runs/absent", "--total-steps", "0"],
        "--total-steps: input should be greater than 0, got 0",
    ),
    "warm start from nothing": (
        [*TRAIN, "--warm-start", "runs/absent"],
        "runs/absent does not contain a run",
    ),
    "warm start from nothing, dry": (
        [*TRAIN, "--warm-start", "runs/absent", "--dry-run"],
        "runs/absent does not contain a run",
    ),
    "check too little": (
        ["check-env", "gymnax/CartPole-v1", "--num-steps", "0"],
        "--num-steps: input should be greater than 0, got 0",
    ),
    "evaluate nothing": (["evaluate"], "rlkit evaluate needs RUN_DIR"),
    "evaluate an absent run": (["evaluate", "runs/absent"], "runs/absent does not contain a run"),
    "a copy to nowhere": (["copy", "runs/absent"], "rlkit copy needs DIRECTORY; see"),
    "no betas": (
        [*TRAIN, "--optimizer-betas"],
        "--optimizer-betas needs a value: 2 numbers or None; see",
    ),
    "a flag for the run": (
        ["resume", "--run_dir=runs/absent"],
        "--run-dir is no flag; write `rlkit resume runs/absent`",
    ),
    "a flag for runs": (
        ["plot", "--run-dirs", "runs/absent"],
        "--run-dirs is no flag; write `rlkit plot RUN_DIRS`",
    ),
    "a flag for the second word": (
        ["sweep-group", "--trial=3", "runs/absent"],
        "--trial is no flag; write `rlkit sweep-group RUN_DIR 3`",
    ),
    "an unknown flag before the run": (
        ["evaluate", "--episode", "3", "runs/absent"],
        "unknown argument '--episode'; did you mean '--episodes'?",
    ),
    "evaluate no episodes": (
        ["evaluate", "runs/absent", "--episodes", "0"],
        "--episodes: input should be greater than 0, got 0",
    ),
    "video of nothing": (["video"], "rlkit video needs RUN_DIR"),
    "video of an absent run": (["video", "runs/absent"], "runs/absent does not contain a run"),
    "video without episodes": (
        ["video", "runs/absent", "--episodes", "0"],
        "--episodes: input should be greater than 0, got 0",
    ),
    "export of nothing": (["export"], "rlkit export needs RUN_DIR"),
    "export of an absent run": (["export", "runs/absent"], "runs/absent does not contain a run"),
    "export as what nobody reads": (
        ["export", "runs/absent", "--format", "torch"],
        "--format must be both, onnx or stablehlo, got 'torch'",
    ),
    "plot nothing": (["plot"], "no run to plot"),
    "plot an absent run": (["plot", "runs/absent"], "runs/absent does not contain a run"),
    "plot over a file": (
        ["plot", "runs/absent", "--output", "/dev/null"],
        "/dev/null already exists; add --overwrite",
    ),
    "plot over a directory": (
        ["plot", "runs/absent", "--output", "/dev"],
        "/dev is a directory; name a file in it, such as /dev/curve.png",
    ),
    "plot over what": (
        ["plot", "runs/absent", "--x", "time"],
        "--x must be env_steps, updates, wall_seconds or training_seconds, got 'time'",
    ),
    "plot runs and a schedule": (["plot", "runs/a", "--schedule", "a.yaml"], "leave out the run"),
    "plot the schedule of nothing": (
        ["plot", "--schedule", "absent.yaml"],
        "cannot read absent.yaml",
    ),
    "list nothing": (["list"], "use one of envs, agents"),
    "list a suite": (["list", "envs", "--suite", "bravo"], "no suite 'bravo'; use one of brax"),
    "list a suite without the flag": (
        ["list", "envs", "gymnax"],
        "envs does not take gymnax; use `rlkit list envs --suite gymnax`",
    ),
    "list too much": (["list", "agents", "--suite", "brax"], "agents does not take --suite brax"),
    "list what": (["list", "env"], "cannot list 'env'; did you mean 'envs'?"),
}


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.fast
@pytest.mark.parametrize("mistake", MISTAKES)
def test_errors_are_reported_in_one_line(mistake, capsys, tmp_path):
    arguments, said = MISTAKES[mistake]
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rlkit: error: ")
    assert said in err
    assert err.count("\n") == 1
    assert not any(tmp_path.iterdir())


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hyperparameters: {gama: 1}", "PPOConfig has no field 'gama'; did you mean 'gamma'"),
        ("trainer: {num_seeds: 0}", "TrainerConfig.num_seeds: "),
        ("trainer: [", "cannot read mine.yaml"),
        ("algorithm: a2c", "mine.yaml is for a2c, not for ppo"),
    ],
)
def test_a_mistake_in_a_file_too(text, said, capsys, tmp_path):
    lines = {"algorithm": "algorithm: ppo", "env": "env: {id: gymnax/CartPole-v1}"} | {
        text.partition(":")[0]: text
    }
    (tmp_path / "mine.yaml").write_text("\n".join(lines.values()))
    assert main([*TRAIN, "--config", "mine.yaml"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.fast
@pytest.mark.parametrize("command", ["train", "sweep"])
@pytest.mark.parametrize("flags", [["--config", "mine.yaml"], ["--num-seeds", "4"]])
def test_names_come_before_the_flags(command, flags, capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text("algorithm: ppo\nenv: {id: gymnax/CartPole-v1}")
    assert main([command, *flags, "ppo", "gymnax/CartPole-v1"]) == 2
    said = f"rlkit {command} needs an algorithm and an environment before the flags, got none; use"
    assert said in capsys.readouterr().err


@pytest.mark.fast
def test_the_environment_of_a_file_is_checked_too(capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text("algorithm: ppo\nenv: {id: gymnax/CartPole}")
    assert main(["train", "--config", "mine.yaml"]) == 2
    assert "did you mean 'gymnax/CartPole-v1'" in capsys.readouterr().err


@pytest.mark.fast
@pytest.mark.parametrize("also", [[], ["--dry-run"]])
def test_loggers_that_cannot_be_made_are_refused_first(also, capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert main([*TRAIN, "--tensorboard", *also]) == 2
    assert capsys.readouterr().err.endswith("; pip install tensorboardX\n")
    monkeypatch.setenv("WANDB_SWEEP_ID", "abc")
    assert main([*TRAIN, "--wandb", "offline", "--wandb-runs", "per_seed", *also]) == 2
    assert "leave it out, or set wandb_runs=" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


@pytest.mark.process
def test_mistakes_and_help_import_no_jax():
    """In a separate process, where nothing else has imported JAX."""
    calls = [arguments for arguments, _ in MISTAKES.values()]
    calls += [
        [],
        ["--help"],
        ["--version"],
        ["train", "--help"],
        [*TRAIN, "--help"],
        [*TRAIN, "--help-all"],
    ]
    calls += [
        [command, "--help"] for command in ("resume", "evaluate", "plot", "video", "export", "list")
    ]
    calls += [["list", kind] for kind in ("envs", "agents", "algorithms", "presets")]
    program = f"""
import sys
from rlkit.cli.main import main
for arguments in {calls!r}:
    code = main(arguments)
    slow = {{"jax", "flax", "gymnax", "distrax", "orbax", "wandb"}} & sys.modules.keys()
    assert code in (0, 2) and not slow, (arguments, code, slow)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr


@pytest.mark.process
def test_the_installed_command_answers(tmp_path):
    command = [sys.executable, "-m", "rlkit.cli.main", "train", "ppo", "gymnax/CartPole"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--warmup-steps", "100"], "on-policy"),
        (["--replay-buffer-capacity", "100"], "on-policy"),
        (["--env-arguments", '{"parms": {}}'], "parms"),
        (["--env-arguments", '{"params": {"max_stps": 3}}'], "max_stps"),
    ],
)
def test_misfits_are_refused_before_anything_compiles(arguments, said, capsys, tmp_path):
    assert main([*TRAIN, "--run-dir", "run", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.fixture
def started(monkeypatch):
    """In a directory where `rlkit train` would have started a run; it starts none."""
    found = []
    monkeypatch.setattr(
        train, "train_to_end", lambda make, **arguments: found.append(arguments["run_dir"]) or 0
    )
    return found


@pytest.mark.fast
@pytest.mark.parametrize("there", ["config.yaml", "thesis.tex"])
def test_existing_files_are_not_overwritten(there, started, capsys, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / there).write_text("mine")
    assert main([*TRAIN, "--run-dir", "run"]) == 2
    said = "already holds a run; continue it with `rlkit resume run`, or choose another --run-dir"
    assert (said if there == "config.yaml" else "is not a run directory") in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "run").iterdir()] == [there]
    assert (tmp_path / "run" / there).read_text() == "mine"
    assert not started


@pytest.mark.fast
def test_the_check_of_a_directory_leaves_it_alone(started, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("mine")
    assert main([*TRAIN, "--run-dir", "absent"]) == main([*TRAIN, "--run-dir", "empty"]) == 0
    assert main([*TRAIN, "--run-dir", "absent", "--restore-checkpoint", "auto"]) == 0
    assert main([*TRAIN, "--run-dir", "run", "--restore-checkpoint", "latest"]) == 0
    assert started == ["absent", "empty", "absent", "run"]
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == [
        "empty",
        "run",
        "run/config.yaml",
    ]


@pytest.mark.fast
def test_switches_of_a_resumed_run_have_both_forms(monkeypatch):
    asked = []
    monkeypatch.setattr(from_config, "reopen", lambda run_dir, **changes: asked.append(changes))
    monkeypatch.setattr(resume, "read_settings", lambda run_dir: {"env": {}, "trainer": {}})
    monkeypatch.setattr(resume, "train_to_end", lambda make_trainer, **_: make_trainer() or 0)
    for typed in (["--no-debug", "--no-save-replay"], ["--debug", "--save-replay"], []):
        assert main(["resume", "run", *typed]) == 0
    assert [each["debug"] for each in asked] == [False, True, None]
    assert [each["save_replay"] for each in asked] == [False, True, None]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *(
            (["resume", "run", *typed], f"error: {typed[0]} is a setting of a run that begins (`rl")
            for typed in (
                ["--num-seeds", "4"],
                ["--num-envs", "8"],
                ["--num-checkpoints", "10"],
                ["--wandb", "offline"],
                ["--csv"],
                ["--no-console"],
                ["--seed", "3"],
                ["--hidden-sizes", "8"],
            )
        ),
        (
            ["resume", "run", "--learning-rate", "1e-4"],
            "--learning-rate is a setting of a run that begins (`rlkit train ... --warm-start"
            " RUN_DIR` begins with a policy); to change it here, edit config.yaml and add"
            " --accept-differences; see `rlkit resume --help`",
        ),
        (["resume", "run", "--total-steps", "10"], "total_steps=10 is less than the 100 of the"),
        (
            ["evaluate", "run/config.yaml"],
            "not contain a run; name the run that it is a part of: run",
        ),
        (["evaluate", "run/checkpoints/3"], "name the run that it is a part of: run"),
        (["evaluate", "run", "--seed-index", "2"], "seed_index=2, but the run has 2 seeds; choose"),
        (["evaluate", "run", "--checkpoint", "9"], "has no step 9; its steps are: 3, 20"),
        (["video", "run", "--seed-index", "2"], "seed_index=2, but the run has 2 seeds; choose"),
        (["video", "run", "--checkpoint", "9"], "has no step 9; its steps are: 3, 20"),
        (["video", "run", "--output", "a.avi"], "a video is an .mp4 or a .gif, got 'a.avi'; write"),
        (["video", "run", "--output", "run/config.yaml"], "a video is an .mp4 or a .gif"),
        (["export", "run", "--seed-index", "2"], "seed_index=2, but the run has 2 seeds; choose"),
        (["export", "run", "--checkpoint", "9"], "has no step 9; its steps are: 3, 20"),
        (["export", "run", "--output", "run"], "run already exists; choose another folder"),
    ],
)
def test_what_a_run_does_not_have(arguments, said, capsys, tmp_path, monkeypatch):
    """The run is a dummy, which nothing can load."""
    for step in ("3", "20", "damaged-8"):
        (tmp_path / "run" / "checkpoints" / step).mkdir(parents=True)
    settings = "trainer: {total_steps: 100, num_seeds: 2}\nenv: {id: gymnax/CartPole-v1}\n"
    (tmp_path / "run" / "config.yaml").write_text(settings)
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


@pytest.mark.fast
@pytest.mark.parametrize("inside", ["checkpoints", "checkpoints/4"])
def test_from_within_a_run_its_directory_is_named(inside, capsys, tmp_path, monkeypatch):
    (tmp_path / "run" / inside).mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text("env: {id: gymnax/CartPole-v1}\n")
    monkeypatch.chdir(tmp_path / "run" / inside)
    assert main(["evaluate", "."]) == 2
    assert f"name the run that it is a part of: {tmp_path / 'run'}\n" in capsys.readouterr().err


@pytest.mark.fast
def test_settings_of_ones_own_are_not_taken_for_a_run(tmp_path, capsys):
    """Here, where `--config config.yaml` is."""
    (tmp_path / "config.yaml").write_text("algorithm: ppo\n")
    (tmp_path / "runs").mkdir()
    assert main(["evaluate", "runs"]) == 2
    assert "runs does not contain a run; pass the run_dir of" in capsys.readouterr().err


@pytest.mark.fast
def test_flags_of_what_a_file_switches_off_are_refused(tmp_path, capsys):
    """By name, instead of advising the flag that was typed."""
    values = yaml.safe_dump({"trainer": {"logger_config": None}, "algorithm": "ppo"})
    (tmp_path / "mine.yaml").write_text(values)
    for typed in ("--csv", "--wandb=offline", "--wandb_name=x"):
        assert main([*TRAIN, "--config", "mine.yaml", typed, "--dry-run"]) == 2
        flag = typed.partition("=")[0].replace("_", "-")
        said = f"{flag} has no effect, because logger_config is null in the settings; remove"
        assert said in capsys.readouterr().err


@pytest.mark.fast
def test_what_a_shell_finds_beside_runs_is_left_out(tmp_path, capsys):
    (tmp_path / "notes.txt").touch()
    assert main(["plot", "notes.txt", "notes.txt"]) == 2
    err = capsys.readouterr().err
    assert "rlkit: left out, since they hold no run: notes.txt" in err and "no run to plot" in err
    assert main(["plot", "notes.txt"]) == 2
    assert "notes.txt does not contain a run" in capsys.readouterr().err


@pytest.mark.fast
def test_a_run_without_metrics_does_not_spoil_the_picture_of_others(tmp_path, capsys):
    row = {"kind": "eval", "env_steps": 1, "updates": 1, "wall_seconds": 1.0, "seed": None}
    for name in ("trained", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("algorithm: ppo\n")
        (tmp_path / name / "metrics.jsonl").touch()
    trained = row | {"metrics": {"eval/avg_return": 3.0}, "text": None}
    (tmp_path / "trained" / "metrics.jsonl").write_text(json.dumps(trained) + "\n")
    assert main(["plot", "trained", "new", "--output", "both.svg"]) == 0
    err = capsys.readouterr().err
    assert err == "rlkit: left out, since they have not logged eval/avg_return yet: new\n"
    assert main(["plot", "new", "new", "--output", "none.svg"]) == 2
    assert "new has no metrics yet" in capsys.readouterr().err


@pytest.mark.fast
def test_the_schedule_of_an_algorithm_of_ones_own_is_unknown(tmp_path, capsys):
    settings = {"trainer": {}, "custom": ["algorithm.optimizer"], "algorithm": "ppo"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(settings))
    assert main(["plot", "--schedule", "mine.yaml"]) == 2
    assert "parts built in Python (algorithm.optimizer), which its" in capsys.readouterr().err


@pytest.mark.fast
def test_the_schedule_of_a_curriculum_is_that_of_its_phases(tmp_path, monkeypatch):
    figures, new_figure = [], schedule_plot.new_figure
    monkeypatch.setattr(
        schedule_plot, "new_figure", lambda size: figures.append(new_figure(size)) or figures[-1]
    )
    phases = [{"steps": 300}, {"hyperparameters": {"learning_rate_schedule": "constant"}}]
    settings = {
        "algorithm": "ppo",
        "env": {"id": "gymnax/CartPole-v1"},
        "hyperparameters": {"learning_rate": 1e-3, "learning_rate_schedule": "linear"},
        "trainer": {"total_steps": 1000},
        "curriculum": phases,
    }
    (tmp_path / "phases.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.chdir(tmp_path)
    assert main(["plot", "--schedule", "phases.yaml", "--output", "rate.svg"]) == 0
    x, y = figures[0].axes[0].lines[0].get_data()
    assert x[-1] == 1000
    np.testing.assert_allclose(y[[0, 200, 299, 301, 1000]], [1e-3, 8e-4, 7.01e-4, 1e-3, 1e-3])


@pytest.mark.fast
def test_a_free_name_in_the_home_directory_is_looked_for_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "policy.gif").touch()
    assert flags.free_name("~/policy.gif") == str(tmp_path / "policy-2.gif")
