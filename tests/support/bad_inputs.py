"""Sixty bad inputs, and those found since: each is refused in one line, or works.

Rows 1 to 60 are numbered as in the list that rlkit promises to handle; the others have no number.
A row that works by now names the test that shows it.
"""

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import rlkit
from rlkit.algorithms.compatibility import check_compatible
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.envs.registry import make_env
from rlkit.spaces import check_action_space, check_observation_space


@dataclasses.dataclass(frozen=True, kw_only=True)
class BadInput:
    """One input: a command line, or a function that a script would call.

    `said` are parts of the error: what was given, and the cure. `files` are written first, by name.
    `hidden` are modules that are not installed. `shown_by` is the test that shows that it works.
    """

    what: str
    number: int | None = None
    command: Sequence[str] = ()
    call: Callable[[], object] | None = None
    said: tuple[str, ...] = ()
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    shown_by: str = ""


class Box2(gymnasium.Env):
    """Returns the same results again and again; `change` replaces some of them."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space: Any = spaces.Discrete(2)

    def __init__(self, **change: Any):
        self.change = change

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.change.get("reset", (np.zeros(2, np.float32), {}))

    def step(self, action):
        step = {
            "obs": np.zeros(2, np.float32),
            "reward": 0.0,
            "terminated": False,
            "truncated": False,
            "info": {},
        } | self.change
        step.pop("reset", None)
        return tuple(value for value in step.values() if value is not LEFT_OUT)


LEFT_OUT = object()


@dataclasses.dataclass(frozen=True)
class Jittable:
    """A `JaxEnv` that returns zeros; `change` replaces some of its results."""

    change: dict[str, Any] = dataclasses.field(default_factory=dict)
    observation_space: ClassVar = spaces.Box(-1, 1, (2,))
    action_space: ClassVar = spaces.Discrete(2)
    max_episode_steps: int | None = 5

    def reset(self, key):
        return jnp.int32(0), jnp.zeros(2)

    def step(self, key, state, action):
        step = {
            "state": state + 1,
            "obs": jnp.zeros(2),
            "reward": jnp.float32(0),
            "terminated": jnp.bool_(False),
            "truncated": state >= 4,
            "info": {},
        } | {name: value(state) for name, value in self.change.items()}
        return tuple(value for value in step.values() if value is not LEFT_OUT)


@dataclasses.dataclass(frozen=True)
class Drawing(Jittable):
    """Draws from a generator of its own, in one of its methods."""

    generator: Any = None
    method: str = "step"

    def reset(self, key):
        state, obs = super().reset(key)
        return state, obs + self._drawn("reset")

    def step(self, key, state, action):
        state, obs, *rest = super().step(key, state, action)
        return state, obs + self._drawn("step"), *rest

    def _drawn(self, method):
        return jnp.float32(self.generator.random()) if method == self.method else 0


def own_generator(what: str, method: str, generator: Any) -> BadInput:
    """A row: an environment that draws from a generator of its own."""
    env: Any = Drawing(generator=generator, method=method)
    said = f"Drawing.{method} draws from self.generator:"
    return py(None, f"{what} of its own", lambda: vectorize(env, 2), said, "jax.random")


def simulate(**change: Any) -> None:
    """Resets and steps a simulator in Python."""
    env = make_env(Box2, 2, **change)
    try:
        import jax

        state, _ = env.reset(jax.random.key(0))
        env.step(jax.random.key(0), state, np.zeros(2, np.int32))
    finally:
        env.close()


def jittable(**change: Callable[[Any], Any]) -> object:
    """Vectorises a `JaxEnv` with these results of `step`, functions of the state."""
    return vectorize(Jittable(change), 2)  # pyright: ignore[reportArgumentType]


def fits(name: str, env: Any = "gymnax/CartPole-v1", num_envs: int = 2, **settings: Any) -> None:
    """Checks an algorithm with its agent and an environment, as every run does first."""
    entry = rlkit.algorithms.registry.algorithm_entry(name)
    made = make_env(env, num_envs) if isinstance(env, str) else vectorize(env, num_envs)
    agent = rlkit.make_agent(entry.agent, made.observation_space, made.action_space)
    check_compatible(rlkit.make_algorithm(name, entry.config(**settings)), agent, made)


def trainer(config: Any = None, **parts: Any) -> object:
    """A tiny Trainer, some parts of which are replaced."""
    env = make_env("gymnax/CartPole-v1", 2)
    agent = rlkit.actor_critic(env.observation_space, env.action_space)
    ready: dict[str, Any] = {"env": env, "eval_env": None, "agent": agent, "algorithm": rlkit.ppo()}
    config = rlkit.TrainerConfig(total_steps=256) if config is None else config
    return rlkit.Trainer(**ready | {"config": config} | parts)


TRAIN = ("train", "ppo", "gymnax/CartPole-v1", "--run-dir", "run")
DQN = ("train", "dqn", "gymnax/CartPole-v1", "--run-dir", "run", "--total-steps", "50k")
SAC = ("train", "sac", "gymnax/Pendulum-v1", "--run-dir", "run")
HEAD = "algorithm: ppo\nenv: {id: gymnax/CartPole-v1}\n"
FILE = ("train", "--config", "mine.yaml", "--run-dir", "run")


def cli(number: int | None, what: str, command: Sequence[str], *said: str, **more: Any) -> BadInput:
    """A row that is typed."""
    return BadInput(number=number, what=what, command=command, said=said, **more)


def py(number: int | None, what: str, call: Callable[[], object], *said: str) -> BadInput:
    """A row that is called."""
    return BadInput(number=number, what=what, call=call, said=said)


def works(number: int, what: str, test: str) -> BadInput:
    """A row that works: `file::test`."""
    return BadInput(number=number, what=what, shown_by=test)


def recurrent() -> None:
    """Checks an agent with memory with TD3."""
    from host_twins import CountingAgent

    env = make_env("gymnax/Pendulum-v1", 2)
    agent = rlkit.deterministic_actor_critic(env.observation_space, env.action_space)
    check_compatible(rlkit.td3(), CountingAgent(agent), env)


def other_copies() -> None:
    """Builds environments of one class that differ in their spaces."""
    widths = iter([2, 2, 3])

    def build() -> gymnasium.Env:
        env = Box2()
        env.observation_space = spaces.Box(-1, 1, (next(widths),))
        return env

    env = make_env(build, 2)
    try:
        import jax

        env.reset(jax.random.key(0))
    finally:
        env.close()


def draws(generator: Callable[[], float]) -> Callable[[Any], object]:
    """An observation that a generator of the host draws."""
    return lambda state: jnp.full(2, generator(), jnp.float32)


def box(shape: tuple[int, ...], low: float = -1.0, high: float = 1.0) -> spaces.Box:
    """A Box of floats."""
    return spaces.Box(low, high, shape)


REPLAY = ("--batch-size", "128")
MANY = str(10**9)
ROWS = [
    cli(1, "unknown algorithm", ("train", "pppo", "gymnax/CartPole-v1"), "'pppo'", "mean 'ppo'"),
    cli(2, "unknown environment", ("train", "ppo", "gymnax/CartPol-v1"), "CartPol-v1'", "mean 'g"),
    cli(3, "wrong version", ("train", "ppo", "gymnax/CartPole-v9"), "-v9'", "'gymnax/CartPole-v1'"),
    cli(4, "wrong case", ("train", "ppo", "gymnax/cartpole-v1"), "/cart", "'gymnax/CartPole-v1'"),
    cli(5, "empty id", ("train", "ppo", ""), "environment id is empty", "gymnax/CartPole-v1"),
    py(5, "None as id", lambda: make_env(None, 4), "got None", "'gymnax/CartPole-v1'"),
    py(5, "a number as id", lambda: make_env(5, 4), "got 5", "'gymnax/CartPole-v1'"),
    BadInput(
        number=6,
        what="a simulator that is not installed",
        call=lambda: make_env("gymnasium/LunarLander-v3", 2),
        said=("LunarLander-v3", "pip install"),
        hidden=("Box2D", "gymnasium.envs.box2d"),
    ),
    cli(7, "unknown flag", (*TRAIN, "--gama", "1"), "'--gama'", "mean '--gamma'"),
    cli(
        7,
        "unknown key",
        FILE,
        "'gama'",
        "'gamma'",
        files={"mine.yaml": HEAD + "hyperparameters: {gama: 1}"},
    ),
    cli(8, "unknown logger", (*TRAIN, "--wandb", "on"), "'on'", "online, offline"),
    cli(8, "unknown activation", (*TRAIN, "--activation", "tan"), "'tan'", "tanh"),
    cli(8, "unknown optimiser", (*TRAIN, "--optimizer", "adamm"), "'adamm'", "adamw"),
    cli(8, "unknown schedule", (*TRAIN, "--learning-rate-schedule", "linar"), "'linar'", "linear"),
    cli(9, "unknown argument", (*TRAIN, "--env-arguments", '{"parms": {}}'), "parms", "leave"),
    cli(
        10,
        "an id that imports",
        ("train", "ppo", "gymnasium/antigravity:Foo-v0"),
        "antigravity",
        "import",
    ),
    cli(10, "a path as id", ("train", "ppo", "../../etc/passwd"), "suite '..'", "rlkit list envs"),
    cli(11, "text for a number", (*TRAIN, "--learning-rate", "fast"), "'fast'", "must be a number"),
    cli(12, "negative step size", (*TRAIN, "--learning-rate", "-1e-3"), "-0.001", "greater than 0"),
    cli(12, "NaN as step size", (*TRAIN, "--learning-rate", "nan"), "nan", "a finite number"),
    cli(13, "gamma above 1", (*TRAIN, "--gamma", "1.5"), "1.5", "less than or equal to 1"),
    cli(13, "lambda below 0", (*TRAIN, "--gae-lambda", "-1"), "-1", "greater than or equal to 0"),
    cli(14, "no clipping range", (*TRAIN, "--clip-epsilon", "0"), "got 0", "greater than 0"),
    cli(
        15,
        "exploration grows",
        (*DQN, "--epsilon-start", "0.1", "--epsilon-end", "0.5"),
        "0.5",
        "exchange",
    ),
    cli(15, "epsilon above 1", (*DQN, "--epsilon-start", "2"), "got 2", "less than or equal to 1"),
    cli(16, "tau of 0", (*SAC, "--tau", "0"), "got 0", "greater than 0"),
    works(17, "less than an iteration", "tests/training/test_plan.py::test_rounding"),
    cli(18, "no environments", (*TRAIN, "--num-envs", "0"), "got 0", "--num-envs 8"),
    cli(19, "no steps", (*TRAIN, "--num-steps", "0"), "got 0", "greater than 0"),
    cli(20, "negative seed", (*TRAIN, "--seed", "-1"), "got -1", "greater than or equal to 0"),
    cli(20, "seed of 33 bits", (*TRAIN, "--seed", "4294967296"), "got 4294967296", "less than"),
    cli(20, "seed of 1.5", (*TRAIN, "--seed", "1.5"), "'1.5'", "a whole number"),
    py(20, "True as seed", lambda: trainer().run(True), "got True", "or 0"),
    cli(21, "no layers", (*TRAIN, "--hidden-sizes"), "--hidden-sizes", "at least 1"),
    cli(22, "norm of 0", (*TRAIN, "--max-grad-norm", "0"), "got 0", "greater than 0"),
    cli(23, "no episodes", (*TRAIN, "--evaluation-episodes", "0"), "got 0", "greater than 0"),
    cli(24, "interval of 0", (*TRAIN, "--checkpoint-every", "0"), "got 0", "greater than 0"),
    cli(
        25,
        "indivisible",
        (*TRAIN, "--num-minibatches", "3"),
        "=3 does not",
        "num_minibatches=1 or 2 or 4",
    ),
    py(26, "memory in TD3", recurrent, "CountingAgent has memory", "use sac, ppo or another"),
    works(
        27,
        "environments and devices",
        "tests/algorithms/test_devices.py::test_replay_belongs_to_its_device",
    ),
    cli(
        28,
        "batch above capacity",
        (*DQN, "--capacity", "100", "--prefill-steps", "50"),
        "of 100,",
        "raise it",
    ),
    cli(
        29,
        "prefill above the run",
        (*DQN, "--prefill-steps", "60k"),
        "60000 random",
        "lower prefill_steps",
    ),
    cli(
        29, "prefill above capacity", (*DQN, "--capacity", "5000"), "of 5000,", "raise it to 10000"
    ),
    py(
        30,
        "rollout above capacity",
        lambda: fits("dqn", num_envs=64, num_steps=8, capacity=256, prefill_steps=0),
        "of 256",
        "a rollout (512)",
        "raise it",
    ),
    py(
        None,
        "capacity that int32 cannot count",
        lambda: fits("dqn", num_envs=64, capacity=2**31 - 10, prefill_steps=256),
        "capacity of 2147483638",
        "2147483648 transitions of 64 environments",
        "lower it",
    ),
    cli(
        None,
        "policy delay",
        ("train", "td3", "gymnax/Pendulum-v1", "--policy-delay", "1M"),
        "65536",
    ),
    py(
        31,
        "n_step above capacity",
        lambda: fits("dqn", capacity=256, prefill_steps=256, n_step=200),
        "n_step=200",
        "lower n_step",
    ),
    cli(
        32,
        "priority exponent",
        (*DQN, "--priority-exponent", "2"),
        "got 2",
        "less than or equal to 1",
    ),
    cli(32, "importance exponent", (*DQN, "--importance-exponent", "-1"), "got -1", "greater than"),
    works(33, "no whole iterations", "tests/training/test_plan.py::test_rounding"),
    cli(
        34,
        "target period",
        (*DQN, "--target-period", "60k"),
        "target_period=60000",
        "lower it (--target-period 500)",
    ),
    cli(
        35,
        "batch before data",
        (*DQN, "--prefill-steps", "0"),
        "first gradient step",
        "raise prefill_steps (in the TrainerConfig: warmup_steps) to 128",
    ),
    py(
        36,
        "one sample",
        lambda: fits("ppo", num_envs=1, num_steps=1, num_minibatches=1),
        "got one",
        "normalize_advantages=False",
    ),
    cli(
        37,
        "sac on Discrete",
        ("train", "sac", "gymnax/CartPole-v1", "--total-steps", "20k", "--run-dir", "run"),
        "sac cannot be trained on gymnax/CartPole-v1",
        "use ppo or a2c or pqn or dqn or qr_dqn or discrete_sac",
    ),
    cli(
        38,
        "dqn on Box",
        ("train", "dqn", "gymnax/Pendulum-v1", "--total-steps", "20k", "--run-dir", "run"),
        "dqn cannot be trained on gymnax/Pendulum-v1",
        "use ppo or a2c or sac or td3",
    ),
    py(
        39,
        "unbounded Box",
        lambda: rlkit.soft_actor_critic(box((2,)), box((1,), -np.inf, np.inf)),
        "inf",
        "bound",
    ),
    py(
        40,
        "equal bounds",
        lambda: check_action_space(box((1,), 1.0, 1.0)),
        "low < high",
        "fix its bounds",
    ),
    works(
        41,
        "Dict observations",
        "tests/agents/test_actor_critic.py::test_reads_every_observation_space",
    ),
    works(
        42,
        "nested Dict",
        "tests/algorithms/test_spaces.py::test_every_kind_of_space_trains_one_iteration",
    ),
    py(
        43,
        "MultiBinary actions",
        lambda: check_action_space(spaces.MultiBinary(3)),
        "MultiBinary(3)",
        "use MultiDiscrete([2] * 3)",
    ),
    works(44, "Discrete from another start", "tests/agents/test_heads.py::test_discrete"),
    py(45, "Text", lambda: check_observation_space(spaces.Text(5)), "Text", "use Box, Discrete"),
    works(46, "small images", "tests/agents/test_actor_critic.py::test_frames_are_scaled_to_one"),
    py(
        47,
        "another evaluation environment",
        lambda: trainer(eval_env=make_env("gymnax/Acrobot-v1", 2)),
        "different spaces",
        "same environment",
    ),
    py(48, "copies that differ", other_copies, "(3,)", "same spaces"),
    py(
        49,
        "observation of another shape",
        lambda: jittable(obs=lambda s: jnp.zeros(3)),
        "(3,)",
        "make them agree",
    ),
    py(
        49,
        "on the host too",
        lambda: simulate(obs=np.zeros(3, np.float32)),
        "(3,)",
        "correct one of them",
    ),
    works(
        50,
        "observations of 64 bits",
        "tests/envs/jittable/test_gymnax.py::test_observations_and_rewards_come_in_the_types_of_the_space",
    ),
    works(
        51, "images of bytes", "tests/agents/test_actor_critic.py::test_frames_are_scaled_to_one"
    ),
    py(
        52,
        "reward of None",
        lambda: simulate(reward=None),
        "reward is None",
        "return a single float",
    ),
    py(52, "reward of NaN", lambda: simulate(reward=np.nan), "reward nan", "look for"),
    py(
        53,
        "four values",
        lambda: jittable(terminated=lambda s: LEFT_OUT, truncated=lambda s: LEFT_OUT),
        "4 values",
        "terminated, truncated",
    ),
    py(53, "reset without info", lambda: simulate(reset=np.zeros(2, np.float32)), "reset", "fix"),
    py(
        54,
        "state of another dtype",
        lambda: jittable(state=lambda s: jnp.float32(s)),
        "float32[]",
        "keep shape and dtype",
    ),
    py(
        55,
        "not jittable",
        lambda: jittable(reward=lambda s: 1.0 if s > 3 else 0.0),
        "while tracing",
        "use jnp.where",
    ),
    works(
        56,
        "action out of range",
        "tests/envs/jittable/test_vectorized.py::test_box_actions_are_clipped_to_their_bounds",
    ),
    works(
        57,
        "checkpoint of another network",
        "tests/training/test_differences.py::test_other_shapes_are_refused_by_the_setting_too",
    ),
    works(
        58,
        "damaged step",
        "tests/training/test_resume.py::test_a_damaged_newest_checkpoint_is_set_aside",
    ),
    cli(
        59,
        "a file as directory",
        (*TRAIN[:3], "--run-dir", "/dev/null"),
        "/dev/null is a file",
        "name a directory",
    ),
    cli(59, "long name", (*TRAIN[:3], "--run-dir", "x" * 129), "x" * 129, "at most 128"),
    cli(59, "NUL in a name", (*TRAIN[:3], "--run-dir", "a\0b"), "a\\x00b", "another name"),
    cli(59, "no name", (*TRAIN[:3], "--run-dir", ""), "has no name", "runs/mine"),
    works(
        60,
        "changed settings",
        "tests/training/test_differences.py::test_an_edited_setting_is_refused_by_name",
    ),
    # Found since
    cli(
        None,
        "endless run",
        (*TRAIN, "--total-steps", "1" + 30 * "0"),
        "1" + 30 * "0",
        "less than or equal to",
    ),
    cli(
        None,
        "a date as seed",
        FILE,
        "'2024-01-01'",
        "valid integer",
        files={"mine.yaml": HEAD + "seed: 2024-01-01"},
    ),
    cli(
        None,
        "20,000 brackets",
        FILE,
        "mine.yaml",
        "nested too deeply",
        files={"mine.yaml": HEAD + "seed: " + 20_000 * "[" + 20_000 * "]"},
    ),
    cli(
        None,
        "5,000 digits",
        FILE,
        "5000 digits",
        "pass a YAML file",
        files={"mine.yaml": HEAD + "seed: " + 5000 * "9"},
    ),
    cli(
        None, "5,000 digits, typed", (*TRAIN, "--seed", 5000 * "9"), "5000 digits", "a whole number"
    ),
    cli(
        None,
        "brackets, typed",
        (*TRAIN, "--env-arguments", 20_000 * "["),
        "nested too deeply",
        "write '",
    ),
    cli(
        None, "as many environments", (*TRAIN, "--num-envs", MANY), "TB of memory", "lower num_envs"
    ),
    cli(
        None,
        "as wide layers",
        (*TRAIN, "--hidden-sizes", "10000000", "10000000"),
        "networks of 200,000",
        "lower hidden_sizes",
    ),
    cli(
        None,
        "as many seeds",
        (*TRAIN, "--num-seeds", "10000000"),
        "10,000,000 seeds",
        "lower num_seeds (--num-seeds",
    ),
    cli(None, "as long rollouts", (*TRAIN, "--num-steps", MANY), "TB of memory", "num_steps"),
    cli(
        None,
        "as long outer iterations",
        (*TRAIN, "--total-steps", "1e15"),
        "TB of memory",
        "raise num_checkpoints",
    ),
    py(None, "Box of nothing", lambda: check_observation_space(box((0,))), "(0,)", "at least one"),
    py(None, "actions of nothing", lambda: check_action_space(box((0,))), "(0,)", "at least one"),
    py(
        None,
        "a dict as config",
        lambda: rlkit.ppo({"gamma": 0.9}),
        "got a dict",
        "PPOConfig(gamma=0.9)",
    ),
    py(None, "an empty dict", lambda: rlkit.dqn({}), "got a dict", "DQNConfig()"),
    py(
        None,
        "a dict for the trainer",
        lambda: trainer({"total_steps": 5}),
        "dict",
        "TrainerConfig(total_steps=5)",
    ),
    py(None, "another config", lambda: rlkit.dqn(rlkit.PPOConfig()), "PPOConfig", "DQNConfig"),
    py(
        None,
        "a config as algorithm",
        lambda: trainer(algorithm=rlkit.PPOConfig()),
        "PPOConfig",
        "rlkit.ppo(PPOConfig(...))",
    ),
    cli(
        None,
        "negative time limit",
        (*TRAIN, "--env-arguments", '{"params": {"max_steps_in_episode": -5}}'),
        "=-5",
        "leave it out for 500",
    ),
    py(
        None,
        "negative limit of one's own",
        lambda: vectorize(Jittable(max_episode_steps=-5), 2),
        "-5",
        "max_episode_steps=500",
    ),
    *(
        py(
            None,
            f"terminated is {flag!r}",
            lambda flag=flag: simulate(terminated=flag),
            f"terminated is {flag!r}",
            "return True or False",
        )
        for flag in (None, 2, "no", 0.5)
    ),
    py(
        None,
        "jittable, None",
        lambda: jittable(terminated=lambda s: None),
        "NoneType",
        "return a scalar",
    ),
    py(
        None,
        "jittable, 2",
        lambda: jittable(terminated=lambda s: 2),
        "int32, not bool",
        "boolean flags",
    ),
    py(
        None,
        "jittable, no",
        lambda: jittable(terminated=lambda s: "no"),
        "class 'str'",
        "arrays and numbers",
    ),
    py(
        None,
        "negative step sizes",
        lambda: rlkit.ppo(rlkit.PPOConfig(learning_rate=jnp.array([1e-3, -1.0]))),
        "got -1.0",
        "greater than 0",
    ),
    py(None, "np.random", lambda: jittable(obs=draws(np.random.random)), "np.random", "jax.random"),
    py(
        None,
        "random",
        lambda: jittable(obs=draws(random.random)),
        "draws from random",
        "jax.random",
    ),
    own_generator("a NumPy generator", "step", np.random.default_rng(0)),
    own_generator("a NumPy RandomState", "step", np.random.RandomState(0)),
    own_generator("a random.Random", "reset", random.Random(0)),
    py(
        None,
        "a captured generator",
        lambda: jittable(obs=draws(np.random.default_rng(0).random)),
        "draws from self.change['obs'].generator",
        "jax.random",
    ),
    py(
        None,
        "far outside",
        lambda: simulate(reset=(np.full(2, 1e6, np.float32), {})),
        "1.e+06",
        "correct the bounds",
    ),
    cli(
        None,
        "endless evaluation",
        (*TRAIN, "--evaluation-episodes", "1" + 9 * "0"),
        "1000000000",
        "1000000",
    ),
    py(
        None,
        "endless evaluation from a script",
        lambda: trainer(rlkit.TrainerConfig(total_steps=256, evaluation_episodes=10**9)),
        "1000000000",
        "1000000",
    ),
    cli(
        None,
        "a run by another name",
        ("evaluate", "runs/frist"),
        "runs/frist does not contain a run",
        "did you mean 'runs/first'?",
        files={"runs/first/config.yaml": HEAD},
    ),
    cli(
        None,
        "a plot of another name",
        ("plot", "runs/frist"),
        "runs/frist does not contain a run",
        "did you mean 'runs/first'?",
        files={"runs/first/config.yaml": HEAD},
    ),
    cli(
        None,
        "a picture of no kind",
        ("plot", "runs/mine", "--output", "x.docx"),
        ".docx",
        ".png, .pdf or .svg",
    ),
    cli(
        None,
        "an epsilon without use",
        (*TRAIN, "--optimizer", "sgd", "--optimizer-epsilon", "1e-3"),
        "=0.001",
        "leave it at 1e-05",
    ),
    cli(
        None,
        "a floor without use",
        (*TRAIN, "--learning-rate-schedule", "constant", "--learning-rate-floor", "0.5"),
        "=0.5",
        "leave it at 0.0",
    ),
]
