"""What people type is understood, or answered with what they meant."""

import dataclasses

import pytest

from rlkit.agents.configs import ActorCriticConfig
from rlkit.agents.registry import agent_entry, list_agents
from rlkit.algorithms.configs import PPOConfig
from rlkit.algorithms.registry import algorithm_entry, list_algorithms
from rlkit.cli.evaluate import EvaluateFlags
from rlkit.cli.flags import flags, parse
from rlkit.cli.main import COMMANDS, main
from rlkit.cli.plot import PlotFlags
from rlkit.cli.resume import ResumeFlags
from rlkit.cli.spelling import OTHER_COMMANDS, OTHER_NAMES, advice, usual_form
from rlkit.cli.train_flags import RunFlags
from rlkit.errors import ConfigError
from rlkit.training.config import TrainerConfig

pytestmark = pytest.mark.fast


@dataclasses.dataclass(frozen=True, kw_only=True)
class Everything:
    """All flags of a run of PPO."""

    trainer: TrainerConfig = dataclasses.field(default_factory=TrainerConfig)
    hyperparameters: PPOConfig = dataclasses.field(default_factory=PPOConfig)
    network: ActorCriticConfig = dataclasses.field(default_factory=ActorCriticConfig)


def parsed(*arguments):
    return parse(Everything, arguments, command="rlkit train", default=Everything())


@pytest.mark.parametrize(
    ("typed", "part", "field", "value"),
    [
        ("--total-steps 1e5", "trainer", "total_steps", 100_000),
        ("--total-steps=2.5e4", "trainer", "total_steps", 25_000),
        ("--total-steps 1M", "trainer", "total_steps", 1_000_000),
        ("--total-steps=1.1m", "trainer", "total_steps", 1_100_000),
        ("--total-steps 500k", "trainer", "total_steps", 500_000),
        ("--total-steps 2B", "trainer", "total_steps", 2_000_000_000),
        ("--total-steps 1,000,000", "trainer", "total_steps", 1_000_000),
        ("--total-steps=1,000", "trainer", "total_steps", 1000),
        ("--max-grad-norm none", "hyperparameters", "max_grad_norm", None),
        ("--total-steps=null", "trainer", "total_steps", None),
        ("--run-dir none", "trainer", "run_dir", "none"),
        ("--hidden-sizes 128,128", "network", "hidden_sizes", (128, 128)),
        ("--hidden-sizes 1k 16", "network", "hidden_sizes", (1000, 16)),
        ("--run-dir 1M", "trainer", "run_dir", "1M"),
        ("--total_steps 7", "trainer", "total_steps", 7),
        ("--learning-rate 1e-3", "hyperparameters", "learning_rate", 1e-3),
        ("--learning_rate=0.001", "hyperparameters", "learning_rate", 1e-3),
        ("--max-grad-norm 1e1", "hyperparameters", "max_grad_norm", 10.0),
        ("--normalize-observations True", "hyperparameters", "normalize_observations", True),
        ("--normalize_observations=true", "hyperparameters", "normalize_observations", True),
        ("--normalize-observations", "hyperparameters", "normalize_observations", True),
        ("--clip-value-loss no", "hyperparameters", "clip_value_loss", False),
        ("--debug=False", "trainer", "debug", False),
        ("--no-debug", "trainer", "debug", False),
        ("--save-replay yes", "trainer", "checkpointer_config.save_replay", True),
        ("--save-replay=False", "trainer", "checkpointer_config.save_replay", False),
        ("--save-replay none", "trainer", "checkpointer_config.save_replay", None),
        ("--save-replay", "trainer", "checkpointer_config.save_replay", True),
        ("--no-save-replay", "trainer", "checkpointer_config.save_replay", False),
        ("--no_save_replay --csv", "trainer", "checkpointer_config.save_replay", False),
        ("--no-share-torso", "network", "share_torso", False),
        ("--wandb", "trainer", "logger_config.wandb", "online"),
        ("--wandb --eval-every 3", "trainer", "logger_config.wandb", "online"),
        ("--wandb offline", "trainer", "logger_config.wandb", "offline"),
        ("--wandb --wandb-runs per_seed", "trainer", "logger_config.wandb", "online"),
        ("--wandb --wandb-runs per_seed", "trainer", "logger_config.wandb_runs", "per_seed"),
        ("--tensorboard --csv=True", "trainer", "logger_config.tensorboard", True),
        ("--tensorboard --csv=True", "trainer", "logger_config.csv", True),
        ("--wandb-tags a b", "trainer", "logger_config.wandb_tags", ("a", "b")),
        ("--wandb-tags=['a','b']", "trainer", "logger_config.wandb_tags", ("a", "b")),
        ("--wandb-tags [a, b]", "trainer", "logger_config.wandb_tags", ("a", "b")),
        ("--wandb-tags a,b (base)", "trainer", "logger_config.wandb_tags", ("a,b", "(base)")),
        ("--wandb-tags [a] [b]", "trainer", "logger_config.wandb_tags", ("[a]", "[b]")),
        ("--wandb-tags=-a", "trainer", "logger_config.wandb_tags", ("-a",)),
        ("--run-dir=--a", "trainer", "run_dir", "--a"),
        ("--hidden-sizes 8 9", "network", "hidden_sizes", (8, 9)),
        ("--hidden-sizes 8,9", "network", "hidden_sizes", (8, 9)),
        ("--hidden_sizes=[8,9]", "network", "hidden_sizes", (8, 9)),
        ("--hidden-sizes [ 8, 9 ]", "network", "hidden_sizes", (8, 9)),
        ("--hidden-sizes=(8,9,)", "network", "hidden_sizes", (8, 9)),
        ("--restore-checkpoint latest", "trainer", "restore_checkpoint", "latest"),
        ("--run-dir 1e5", "trainer", "run_dir", "1e5"),
    ],
)
def test_values_in_other_forms(typed, part, field, value):
    found = getattr(parsed(*typed.split()), part)
    for name in field.split("."):
        found = getattr(found, name)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("label", ["(a) PPO", "[a] PPO [b]", "[a", ""])
def test_a_word_with_brackets_is_no_list(label):
    typed = ["--labels", label]
    assert usual_form(PlotFlags, typed) == typed


def test_a_sentence_is_no_flag():
    typed = ["run", "--title", "-h is not meant"]
    assert parse(PlotFlags, typed, command="rlkit plot").title == typed[-1]


def test_flags_and_positions_keep_their_order():
    typed = ["a", "--overwrite", "b", "--output", "x.png", "c", "-h"]
    assert usual_form(PlotFlags, typed) == typed
    typed = ["--episodes", "10", "1e3", "--json", "1"]
    assert usual_form(EvaluateFlags, typed) == typed
    typed = ["--save-replay", "yes", "runs/mine"]
    assert usual_form(ResumeFlags, typed) == ["--save-replay", "True", "runs/mine"]
    typed = ["--no-save-replay", "s/no-debug", "--no-debug"]
    usual = ["--save-replay", "False", "s/no-debug", "--debug", "False"]
    assert usual_form(ResumeFlags, typed) == usual


@pytest.mark.parametrize(
    "typed",
    [
        "--hidden_sizes=[64,",
        "--hidden-sizes [64, 64",
        "--hidden-sizes=64,64]",
        "--hidden-sizes=(64]",
    ],
)
def test_a_list_without_its_end_or_beginning_is_refused(typed):
    said = "only a part of a list; write --hidden-sizes 64"
    with pytest.raises(ConfigError, match=said) as error:
        parsed(*typed.split())
    assert typed.partition("sizes")[2][1:] in str(error.value)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--lr", "did you mean '--learning-rate'?"),
        ("--track", "did you mean '--wandb'?"),
        ("--tb", "did you mean '--tensorboard'?"),
        ("--device=cuda", "JAX trains on a GPU if it finds one"),
        ("--device", "stays on the CPU; --devices N takes several"),
        ("--n_envs=3", "did you mean '--num-envs'?"),
        ("--learing-rate", "did you mean '--learning-rate'"),
        ("--zzz", "see `rlkit train --help`"),
    ],
)
def test_unknown_flags(typed, said):
    known = [*flags(Everything), *flags(RunFlags)]
    assert said in advice(typed, known, otherwise="see `rlkit train --help`")


def test_other_names_lead_to_flags_that_exist():
    kinds = [TrainerConfig, RunFlags, PlotFlags]
    kinds += [algorithm_entry(name).config for name in list_algorithms()]
    kinds += [agent_entry(name).config for name in list_agents()]
    known = {flag[2:] for kind in kinds for flag in flags(kind)}
    assert set(OTHER_NAMES.values()) <= known and not set(OTHER_NAMES) & known
    assert set(OTHER_COMMANDS.values()) <= set(COMMANDS) and not set(OTHER_COMMANDS) & set(COMMANDS)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("eval", "did you mean 'evaluate'?"),
        ("plt", "did you mean 'plot'?"),
        ("convert", "did you mean 'export'?"),
        ("xyzzy", f"choose one of {', '.join(sorted(COMMANDS))}"),
    ],
)
def test_unknown_commands(command, said, capsys):
    assert main([command]) == 2
    assert f"unknown command '{command}'; {said}" in capsys.readouterr().err
