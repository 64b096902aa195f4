"""Every limit of every config is enforced before anything compiles, and named in the error."""

import dataclasses
import json
import math
import pathlib
import typing
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from annotated_types import Ge, Gt, Le, Lt

from rlkit.agents.configs import ActorCriticConfig
from rlkit.agents.registry import agent_entry, list_agents
from rlkit.algorithms.configs import DQNConfig, PPOConfig
from rlkit.algorithms.dqn import dqn
from rlkit.algorithms.ppo import ppo
from rlkit.algorithms.registry import algorithm_entry, list_algorithms, make_algorithm
from rlkit.errors import ConfigError
from rlkit.training.config import CheckpointerConfig, LoggerConfig, TrainerConfig
from rlkit.training.curriculum import Phase
from rlkit.training.from_config import build
from rlkit.training.run_config import EnvConfig, RunConfig, load
from rlkit.validation import field_annotations, from_dict, to_dict, validate

pytestmark = pytest.mark.fast
ROWS = [algorithm_entry(name) for name in list_algorithms()] + [
    agent_entry(name) for name in list_agents()
]
CONFIGS = list(dict.fromkeys(row.config for row in ROWS))
NAN, INF = math.nan, math.inf

POSITIVE_INT = [0, -1, 1.0, True, "8", None]
POSITIVE = [0.0, -1e-3, NAN, INF, True, "1e-3", None]
NOT_NEGATIVE = [-1e-3, NAN, INF, True, "0", None]
UNIT = [-0.01, 1.01, NAN, INF, True, "1", None]
FLAG = [1, "true", None]
CHOICE = ["adm", 1, None]
COMMON = {
    "num_steps": POSITIVE_INT,
    "learning_rate": POSITIVE,
    "learning_rate_schedule": CHOICE,
    "optimizer": CHOICE,
    "optimizer_epsilon": POSITIVE,
    "optimizer_betas": [(0.9, 1.0), (0.9, -0.1), (0.9, NAN), (0.9, "1"), 0.9, [0.9, 0.99]],
    "learning_rate_milestones": [(0.5, 1.0), (0.0,), (0.5, True), 0.5, [0.5]],
    "max_grad_norm": [x for x in POSITIVE if x is not None],
    "gamma": UNIT,
    "gae_lambda": UNIT,
    "entropy_coef": NOT_NEGATIVE,
    "value_coef": NOT_NEGATIVE,
    "normalize_advantages": FLAG,
    "normalize_observations": FLAG,
    "normalize_rewards": FLAG,
}
# What a field of this name must refuse, in whichever config it is.
BY_NAME = COMMON | {
    "num_epochs": POSITIVE_INT,
    "num_minibatches": POSITIVE_INT,
    "clip_epsilon": POSITIVE,
    "clip_value_loss": FLAG,
    "prefill_steps": [x for x in POSITIVE_INT if x != 0 or x is False],
    "capacity": POSITIVE_INT,
    "batch_size": POSITIVE_INT,
    "updates_per_step": POSITIVE,
    "n_step": POSITIVE_INT,
    "target_period": POSITIVE_INT,
    "tau": [*POSITIVE, 1.01],
    "hidden_sizes": [(), (0,), (8, -1), (8.0,), (True,), 8, [8], None],
    "activation": ["tahn", 1],
    "image_encoder": ["cn", 1, None],
    "share_torso": [1, "yes"],
    "initial_std": POSITIVE,
}


def bad_values(kind, field):
    """Values that the field must refuse, by its name or else by its annotation."""
    return BY_NAME[field] if field in BY_NAME else refused_by(field_annotations(kind)[field])


def refused_by(annotation):
    """Values close to an annotation's limits: beyond each of them, of other types, not finite."""
    parts = [annotation, *typing.get_args(annotation)]
    limits = [limit for part in parts for limit in getattr(part, "__metadata__", ())]
    kinds = {
        typing.get_origin(part) or part
        for part in [*parts, *(each for part in parts for each in typing.get_args(part))]
    }
    bad = [limit.gt for limit in limits if isinstance(limit, Gt)] + [
        limit.lt for limit in limits if isinstance(limit, Lt)
    ]
    bad += [limit.ge - 1 for limit in limits if isinstance(limit, Ge)] + [
        limit.le + 1 for limit in limits if isinstance(limit, Le)
    ]
    bad += [NAN, INF, True, "1"] if float in kinds else [1.5, True, "8"] if int in kinds else []
    bad += FLAG if bool in kinds else CHOICE if typing.Literal in kinds else []
    optional = type(None) in kinds
    return [x for x in bad if x is not None] if optional else list(dict.fromkeys([*bad, None]))


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_limit_names_field_and_value(kind):
    """One test for all fields of a config: as a test each, they would take ten seconds."""
    for field in field_annotations(kind):
        for value in bad_values(kind, field):
            with pytest.raises(ConfigError) as caught:
                validate(kind(**{field: value}))
            message = str(caught.value)
            # Of a tuple the element that is wrong.
            shown = value[-1] if isinstance(value, tuple) and value else value
            assert message.startswith(f"{kind.__name__}.{field}: "), (field, value)
            assert message.partition("; pass (")[0].endswith(f", got {shown!r}"), (field, value)


@pytest.mark.parametrize("kind", CONFIGS)
def test_no_field_is_forgotten(kind):
    """Every field has a type that refuses something, and every number a limit or a meaning for all
    finite values.
    """
    assert all(bad_values(kind, field) for field in field_annotations(kind))


@pytest.mark.parametrize("name", list_algorithms())
def test_factories_validate(name):
    kind = algorithm_entry(name).config
    for field in field_annotations(kind):
        with pytest.raises(ConfigError, match=rf"{kind.__name__}\.{field}: "):
            make_algorithm(name, kind(**{field: bad_values(kind, field)[0]}))


def test_what_annotations_refuse():
    assert refused_by(Annotated[float, Gt(0), Le(1)]) == [0, 2, NAN, INF, True, "1", None]
    assert refused_by(Annotated[int, Ge(0)] | None) == [-1, 1.5, True, "8"]
    assert refused_by(typing.Literal["a"]) == ["adm", 1, None] and refused_by(bool) == [
        1,
        "true",
        None,
    ]


@pytest.mark.parametrize(
    "value", [np.float64(-1.0), np.float32(np.nan), np.array(-1.0), np.array([1e-3, 1e-4])]
)
def test_numpy_values_are_known_and_so_checked(value):
    with pytest.raises(ConfigError, match=r"PPOConfig\.learning_rate"):
        validate(PPOConfig(learning_rate=value))


def test_a_list_for_a_tuple_is_told_the_tuple():
    with pytest.raises(ConfigError, match=r"valid tuple, got \[8, 4\]; pass \(8, 4\)$"):
        validate(ActorCriticConfig(hidden_sizes=[8, 4]))


def test_too_few_values_are_told_in_plain_words():
    with pytest.raises(ConfigError, match=r"hidden_sizes: needs at least 1 value, got \(\)$"):
        validate(ActorCriticConfig(hidden_sizes=()))


def test_good_values_pass():
    validate(
        PPOConfig(
            learning_rate=np.float64(1e-3),
            num_steps=np.int64(4),
            gamma=1,
            gae_lambda=0,
            max_grad_norm=None,
        )
    )
    validate(ActorCriticConfig(hidden_sizes=(8,), share_torso=None))


def test_numpy_numbers_become_those_of_python():
    """As a search draws them: what counts with them knows only its own, and they overflow."""
    config = PPOConfig(num_steps=np.int16(30_000), learning_rate=np.float64(1e-3))
    plain = validate(config)
    assert plain == config and type(plain.num_steps) is int and type(plain.learning_rate) is float
    assert validate(plain) is plain
    assert ppo(config).collector.num_steps * 1_000 == 30_000_000
    steps = DQNConfig(updates_per_step=np.int64(1), capacity=np.int64(5000), n_step=np.int32(2))
    assert dqn(steps).spec == dqn(validate(steps)).spec
    sizes = validate(ActorCriticConfig(hidden_sizes=tuple(np.array([8, 4])))).hidden_sizes
    assert sizes == (8, 4) and {type(size) for size in sizes} == {int}
    run = RunConfig(
        algorithm="ppo",
        env=EnvConfig(id="gymnax/CartPole-v1", num_envs=np.int64(2)),
        trainer=TrainerConfig(total_steps=np.int16(30_000), num_checkpoints=np.int8(100)),
    )
    with build(run) as trainer:
        assert {type(trainer.plan.num_checkpoints), type(trainer.config.total_steps)} == {int}


def test_single_numbers_of_jax_become_those_of_python():
    steps = validate(TrainerConfig(total_steps=jnp.int32(10), num_seeds=jnp.array(2)))
    assert (steps.total_steps, steps.num_seeds) == (10, 2)
    assert {type(steps.total_steps), type(steps.num_seeds)} == {int}
    assert type(validate(PPOConfig(learning_rate=jnp.float32(0.5))).learning_rate) is float
    assert type(validate(PPOConfig(learning_rate=np.array(0.5))).learning_rate) is float
    sizes = validate(ActorCriticConfig(hidden_sizes=(jnp.int32(8), 4))).hidden_sizes
    assert sizes == (8, 4) and type(sizes[0]) is int
    assert type(Phase(steps=jnp.int32(10)).steps) is type(Phase(steps=np.int64(10)).steps) is int
    with pytest.raises(ConfigError, match=r"TrainerConfig\.total_steps: .*, got -1$"):
        validate(TrainerConfig(total_steps=jnp.int32(-1)))
    several = validate(PPOConfig(learning_rate=jnp.array([1e-3, 1e-4])))
    assert several.learning_rate.shape == (2,)  # one for each of several seeds


def test_a_run_is_built_of_numbers_of_jax(tmp_path):
    """Its sizes are computed before anything is traced, and written to config.yaml."""
    run = RunConfig(
        algorithm="dqn",
        env=EnvConfig(id="gymnax/CartPole-v1", num_envs=jnp.int32(2)),
        hyperparameters=DQNConfig(prefill_steps=jnp.int32(200), capacity=jnp.int32(2000)),
        trainer=TrainerConfig(total_steps=jnp.int32(100_000), run_dir=tmp_path / "run"),
    )
    with build(run) as trainer:
        assert trainer.plan.total_steps >= 100_000 and type(trainer.plan.prefill_steps) is int
    written = load(tmp_path / "run" / "config.yaml")
    assert (written.env.num_envs, written.hyperparameters.capacity) == (2, 2000)
    assert written.trainer.run_dir == str(tmp_path / "run")


def test_paths_become_text():
    logs = LoggerConfig(jsonl=pathlib.Path("logs/a.jsonl"))
    saved = CheckpointerConfig(directory=pathlib.PurePosixPath("saved"))
    trainer = TrainerConfig(
        run_dir=pathlib.Path("runs/a"),
        warm_start=pathlib.Path("runs/b"),
        logger_config=logs,
        checkpointer_config=saved,
    )
    plain = validate(trainer)
    assert (plain.run_dir, plain.warm_start) == ("runs/a", "runs/b")
    assert plain.logger_config == LoggerConfig(jsonl="logs/a.jsonl")
    assert plain.checkpointer_config == CheckpointerConfig(directory="saved")
    assert from_dict(TrainerConfig, to_dict(trainer)) == plain
    assert from_dict(TrainerConfig, {"run_dir": pathlib.Path("runs/a")}).run_dir == "runs/a"
    with pytest.raises(ConfigError, match=r"TrainerConfig\.num_seeds: .* got 'runs/a'"):
        validate(TrainerConfig(num_seeds=pathlib.Path("runs/a")))


@pytest.mark.parametrize("kind", CONFIGS)
def test_round_trip(kind):
    assert from_dict(kind, to_dict(kind())) == kind()
    assert from_dict(kind, json.loads(json.dumps(to_dict(kind())))) == kind()
    assert from_dict(kind, {}) == kind()


def test_round_trip_of_changed_values():
    config = PPOConfig(
        learning_rate=0.1, max_grad_norm=None, optimizer="sgd", normalize_rewards=True
    )
    assert from_dict(PPOConfig, to_dict(config)) == config
    network = ActorCriticConfig(hidden_sizes=(3, 5, 7), share_torso=True)
    assert from_dict(ActorCriticConfig, to_dict(network)) == network
    assert hash(from_dict(ActorCriticConfig, to_dict(network))) == hash(network)


def test_arrays_are_written_as_numbers():
    assert to_dict(PPOConfig(learning_rate=jnp.float32(0.5)))["learning_rate"] == 0.5


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (
            {"learning_rat": 1e-3},
            r"PPOConfig has no field 'learning_rat'; did you mean 'learning_rate'",
        ),
        ({"zzz": 1}, r"PPOConfig has no field 'zzz'; choose one of clip_epsilon"),
        ({"num_steps": 8.5}, r"PPOConfig\.num_steps: .* got 8\.5"),
        ({"num_steps": True}, r"PPOConfig\.num_steps: .* got True"),
        ({"learning_rate": NAN}, r"PPOConfig\.learning_rate: "),
        ({"learning_rate": INF}, r"PPOConfig\.learning_rate: "),
        ({"optimizer": "adm"}, r"PPOConfig\.optimizer: .*'adam'.* got 'adm'"),
        ({"gamma": {1, 2}}, r"PPOConfig\.gamma must be plain data"),
        ([1, 2], r"PPOConfig needs a mapping"),
        (None, r"PPOConfig needs a mapping"),
    ],
)
def test_from_dict_explains(values, wanted):
    with pytest.raises(ConfigError, match=wanted):
        from_dict(PPOConfig, values)


@pytest.mark.parametrize(
    ("kind", "name", "written", "value"),
    [
        (TrainerConfig, "total_steps", 1e6, 1_000_000),
        (TrainerConfig, "total_steps", "100k", 100_000),
        (TrainerConfig, "total_steps", "1.5M", 1_500_000),
        (TrainerConfig, "total_steps", "1,500,000", 1_500_000),
        (TrainerConfig, "restore_checkpoint", 2.0, 2),
        (TrainerConfig, "restore_checkpoint", "best", "best"),
        (TrainerConfig, "run_dir", "1M", "1M"),
        (Phase, "steps", 2e3, 2000),
        (Phase, "steps", "2k", 2000),
        (ActorCriticConfig, "hidden_sizes", ["1k", 64.0], (1000, 64)),
        (PPOConfig, "learning_rate", 1.0, 1.0),
    ],
)
def test_whole_numbers_may_be_written_as_flags_take_them(kind, name, written, value):
    found = getattr(from_dict(kind, {name: written}), name)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("written", [1.5, True, 1e300, INF, NAN, "1.5", "64", "1.00001k", "many"])
def test_other_values_are_no_whole_numbers(written):
    with pytest.raises(ConfigError, match=r"TrainerConfig\.total_steps: "):
        from_dict(TrainerConfig, {"total_steps": written})


@pytest.mark.parametrize("written", ["64,128", ["64,128"]])
def test_two_sizes_with_a_comma_are_not_one_large_one(written):
    with pytest.raises(ConfigError, match=r"hidden_sizes: input should be .*, got '64,128'"):
        from_dict(ActorCriticConfig, {"hidden_sizes": written})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    inner: PPOConfig
    maybe: ActorCriticConfig | None = None


def test_nested_configs():
    outer = Outer(inner=PPOConfig(num_steps=3), maybe=ActorCriticConfig(hidden_sizes=(2,)))
    assert from_dict(Outer, to_dict(outer)) == outer
    assert from_dict(Outer, {"inner": {}}) == Outer(inner=PPOConfig())
    with pytest.raises(ConfigError, match=r"PPOConfig\.gamma"):
        validate(Outer(inner=PPOConfig(gamma=3.0)))
    with pytest.raises(ConfigError, match=r"PPOConfig has no field 'gama'; did you mean 'gamma'"):
        from_dict(Outer, {"inner": {"gama": 0.5}})
    with pytest.raises(
        ConfigError, match=r"Outer is incomplete: .*inner.*; add the missing fields"
    ):
        from_dict(Outer, {})


def test_traced_values_pass():
    """A sweep builds the algorithm inside `jax.vmap`."""

    def build(learning_rate, gamma):
        algorithm = ppo(PPOConfig(learning_rate=learning_rate, gamma=gamma))
        state = algorithm.updater.init({"w": jnp.zeros(2)})
        return algorithm.batch_builder.gamma * 1.0, jax.tree.leaves(state)[-1]

    gammas, rates = jax.vmap(build)(jnp.array([1e-3, 1e-4]), jnp.array([0.9, 0.99]))
    np.testing.assert_allclose(gammas, [0.9, 0.99], rtol=1e-6)
    np.testing.assert_allclose(rates, [1e-3, 1e-4], rtol=1e-6)


@pytest.mark.parametrize("value", [jax.random.key(0), jnp.array([1, 2])], ids=["key", "array"])
def test_arrays_are_no_whole_numbers(value):
    """Their numbers are known: nothing is said of jax.vmap."""
    with pytest.raises(ConfigError, match=r"num_seeds: input should be a valid integer, got Array"):
        validate(TrainerConfig(num_seeds=value))


@pytest.mark.parametrize(
    ("make", "config", "name"),
    [
        (ppo, PPOConfig, "num_epochs"),
        (ppo, PPOConfig, "normalize_rewards"),
        (dqn, DQNConfig, "target_period"),
        (dqn, DQNConfig, "updates_per_step"),  # a float, but of a loop
    ],
)
def test_traced_values_that_decide_what_is_compiled_are_refused(make, config, name):
    def build(value):
        return make(config(**{name: value})) and value

    told = rf"{name}.* decides what is compiled, so jax\.vmap .* cannot vary it; loop over"
    with pytest.raises(ConfigError, match=told):
        jax.vmap(build)(jnp.array([1, 2]))
