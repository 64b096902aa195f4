"""Outer iterations of one-step rollouts on the host as one program: against the iterations one by
one, and faults.
"""

import dataclasses
import importlib.util
import re
import signal
import sys
import threading
import time

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algorithm_rows import NAMES, NORMALIZED, VARIANTS, acts_in, entry, known
from composite_twins import HostLevers
from gymnasium import spaces
from host_twins import HostCounter, HostStairs, agent_for, keys_as_data
from jax.experimental import io_callback
from tiers import by_default, in_full

from rlkit.algorithms.replay_storage import Ring
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.errors import ConfigError, EnvContractError, EnvFailedError
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.config import LoggerConfig
from rlkit.training.core.module import RLModule
from rlkit.training.programs.host_program import HostProgram
from rlkit.training.programs.schedules import step_callbacks
from rlkit.training.programs.schedules.compiled_host_loop import CompiledLoop, program_arguments
from rlkit.training.programs.schedules.overlapped import Overlapped, first_rollout
from rlkit.training.programs.schedules.sequential import Sequential
from rlkit.training.programs.schedules.step_exchange import StepFormat, step_result
from rlkit.training.trainer import Trainer
from rlkit.types import Rollout

EPOCHS = 4
OVERLAPS = ("none", "update")


def program_of(
    tiny,
    name="dqn",
    *,
    env=None,
    counting=False,
    num_seeds=1,
    overlap="none",
    compile_host_loop=True,
    **settings,
):
    env = env or GymnasiumAdapter(
        HostCounter if acts_in(name, HostCounter().action_space) else HostStairs, 4
    )
    agent = agent_for(env, counting=counting, algorithm=name)
    algorithm = tiny.algorithm(name, num_steps=1, **settings)
    if counting:
        algorithm = dataclasses.replace(algorithm, learns_through_carry=True)
    module = RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1000.0)
    return HostProgram(
        module,
        compiler=Compiler(num_seeds),
        num_iterations=EPOCHS,
        overlap=overlap,
        compile_host_loop=compile_host_loop,
    )


def assert_close(one, other):
    """Floats to rounding, for XLA fuses a loop's sums in another way; all else in every bit."""

    def compare(a, b):
        if np.issubdtype(a.dtype, np.floating):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        else:
            np.testing.assert_array_equal(a, b)

    jax.tree.map(compare, keys_as_data(one), keys_as_data(other))


def with_transitions(ts, num_seeds):
    """The state with what is in its replay memory, which is stored as words."""

    def read(x):
        transitions = (
            (lambda ring: ring.transitions)
            if num_seeds == 1
            else jax.vmap(lambda ring: ring.transitions)
        )
        return transitions(x) if isinstance(x, Ring) else x

    return jax.tree.map(read, ts, is_leaf=lambda x: isinstance(x, Ring))


CASES = [
    *((name, "none", 1) for name in (*NAMES, *VARIANTS)),
    ("sac.pink", "update", 2),
    *(("ppo", overlap, 2) for overlap in OVERLAPS),
    *((name, "update", 1) for name in ("a2c", "dqn")),  # a2c's update draws no random numbers
    ("sac", "none", 2),
    *(("a2c in parts", overlap, 2) for overlap in OVERLAPS),  # its actions are a dict
]
DEFAULT_CASES = [("ppo", "update", 2)]


@pytest.mark.parametrize(("name", "overlap", "num_seeds"), by_default(DEFAULT_CASES, CASES))
def test_the_loop_is_its_iterations_one_by_one(tiny, name, overlap, num_seeds):
    """Parameters, memory, counts, keys, observations and metrics, normalisers included."""
    name, in_parts, _ = name.partition(" in parts")
    env = HostLevers if in_parts else None
    settings = known(
        entry(name).config, NORMALIZED | {"updates_per_step": 0.5, "learning_rate": 0.05}
    )
    seeds = Compiler(num_seeds).keys(1)
    ends = []
    for in_loop in (True, False):
        program = program_of(
            tiny,
            name,
            env=env and GymnasiumAdapter(env, 4),
            num_seeds=num_seeds,
            overlap=overlap,
            compile_host_loop=in_loop,
            **settings,
        )
        assert isinstance(program.outer_schedule, CompiledLoop) == in_loop
        ts, found = program.init(seeds), []
        for _ in range(2):
            ts, results = within_a_minute(lambda ts=ts, outer=program.outer: outer(ts))
            found.append(results)
        ends.append((with_transitions(ts, num_seeds), found))
        program.close()
    assert_close(*ends)


def within_a_minute(function):
    """What it returns; two parts that wait for each other would do so for ever."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(60)
    assert results, "it hangs, or has failed"
    return results[0]


@pytest.mark.full
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_the_carry_restarts_with_the_episode(tiny, key, overlap):
    """The carry of an agent that counts steps equals the time that the environment counts, after
    each outer iteration.
    """
    env = GymnasiumAdapter(HostCounter, 4, floats=True)
    program = program_of(tiny, "ppo", env=env, counting=True, overlap=overlap)
    ts, times = program.init(key), []
    for _ in range(5):
        ts, _ = program.outer(ts)
        np.testing.assert_array_equal(ts.local.carry, ts.local.obs[..., 0])
        times.append(ts.local.obs[..., 0])
    assert len(np.unique(times)) > 2  # episodes are of different ages


class Watched(HostCounter):
    """Notes the thread of each step, and does what `misbehave` says in one of them."""

    threads, steps, misbehave, at = set(), 0, None, 0

    def step(self, action):
        Watched.threads.add(threading.current_thread())
        Watched.steps += 1
        if Watched.steps == Watched.at:
            Watched.misbehave()
        return super().step(action)


@pytest.fixture
def watched(monkeypatch):
    for name, value in {"threads": set(), "steps": 0, "misbehave": None, "at": 0}.items():
        monkeypatch.setattr(Watched, name, value)
    yield Watched
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rlkit-loop")]


def trainer_of(tiny, env, **settings):
    algorithm = tiny.algorithm("dqn", num_steps=1, updates_per_step=1.0, prefill_steps=8)
    settings = {
        "num_checkpoints": 2,
        "epochs_per_checkpoint": 6,
        "enable_evaluation": False,
    } | settings
    return Trainer(env, None, agent_for(env, algorithm="dqn"), algorithm, tiny.config(**settings))


@pytest.mark.full
@pytest.mark.parametrize("num_seeds", [1, 2])
def test_one_setting_chooses_calls_instead_of_the_loop(tiny, num_seeds):
    """They learn the same to rounding, so that a run may go on with the other."""
    learners = []
    for compile_host_loop in (True, False):
        env = GymnasiumAdapter(HostCounter, 1)
        settings = {"compile_host_loop": compile_host_loop, "num_seeds": num_seeds}
        with trainer_of(tiny, env, **settings) as trainer:
            schedule = trainer.program.outer_schedule
            assert isinstance(schedule, CompiledLoop if compile_host_loop else Sequential)
            trainer.run(0)
            learners.append(trainer.state.learner)
        env.close()
    assert_close(*learners)


@pytest.mark.full
def test_a_run_goes_on_with_the_other_setting(tiny, tmp_path):
    settings = {"run_dir": str(tmp_path / "run"), "logger_config": LoggerConfig(console=False)}
    with trainer_of(tiny, env := GymnasiumAdapter(HostCounter, 1), **settings) as trainer:
        trainer.run(0)
    env.close()
    settings |= {"restore_checkpoint": "auto", "num_checkpoints": 3, "compile_host_loop": False}
    with trainer_of(tiny, env := GymnasiumAdapter(HostCounter, 1), **settings) as trainer:
        trainer.run(0)
        assert trainer.env_steps == 8 + 3 * 6
    env.close()


def test_without_the_experimental_callback_calls_take_over(tiny, monkeypatch):
    """A JAX that lacks it: the module imports, and training goes on without an error."""
    monkeypatch.setitem(sys.modules, "jax.experimental.buffer_callback", None)
    spec = importlib.util.spec_from_file_location("without_callback", step_callbacks.__file__)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where its dataclass looks for it
    spec.loader.exec_module(module)
    assert not module.is_supported() and step_callbacks.is_supported()

    monkeypatch.setattr(step_callbacks, "buffer_callback", module.buffer_callback)
    with trainer_of(tiny, env := GymnasiumAdapter(HostCounter, 1), overlap="update") as trainer:
        assert isinstance(trainer.program.outer_schedule, Overlapped)
        trainer.run(0)
        assert trainer.state.learner.updates.to_int() == 2 * 6
    env.close()


@pytest.mark.parametrize("overlap", [in_full("none"), "update"])
def test_the_thread_that_calls_takes_the_steps(tiny, watched, overlap):
    with trainer_of(tiny, GymnasiumAdapter(Watched, 1), overlap=overlap) as trainer:
        trainer.run(0)
    assert watched.threads == {threading.current_thread()}
    assert watched.steps == 8 + 2 * 6  # none too many


def burn():
    raise RuntimeError("the motor is on fire")


def interrupt():
    raise KeyboardInterrupt


# failing: which step of the second outer iteration
FAILURES = [
    (burn, EnvFailedError, 1, 1),
    (burn, EnvFailedError, 4, 2),
    (interrupt, KeyboardInterrupt, 4, 1),
]


FAILING = [
    *((True, overlap, *failure) for overlap in OVERLAPS for failure in FAILURES),
    (False, "none", *FAILURES[2]),
    (False, "update", *FAILURES[1]),
    (False, "update", *FAILURES[2]),
]
DEFAULT_FAILING = [
    (True, "update", *FAILURES[1]),
    (False, "update", *FAILURES[2]),
]


@pytest.mark.parametrize(
    ("compile_host_loop", "overlap", "misbehave", "error", "failing", "num_seeds"),
    by_default(DEFAULT_FAILING, FAILING),
)
def test_a_failing_step_leaves_the_last_finished_update(
    tiny, watched, compile_host_loop, overlap, misbehave, error, failing, num_seeds
):
    """The state, its counts and its updates; and the run can go on from there."""
    watched.misbehave = misbehave
    watched.at = (8 + 6 + failing - 1) * num_seeds + 1
    with trainer_of(
        tiny,
        GymnasiumAdapter(Watched, 1),
        overlap=overlap,
        num_seeds=num_seeds,
        compile_host_loop=compile_host_loop,
    ) as trainer:
        trainer.init(0)
        trainer.train_epoch()
        with pytest.raises(error, match="on fire" if error is EnvFailedError else None):
            trainer.train_epoch()
        # Overlapped too: the update during a failing step is finished, of the rollout before it.
        finished = failing - 1
        counts = jax.tree.map(
            np.unique, (trainer.state.learner.env_steps.low, trainer.state.learner.updates.low)
        )
        assert [int(x) for (x,) in counts] == [8 + 6 + finished, 6 + finished]
        assert trainer.env_steps == 8 + 6 + finished
        trainer.train_epoch()
        assert (np.asarray(trainer.state.learner.env_steps.low) == 8 + 6 + finished + 6).all()
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(trainer.state.learner.params))


@pytest.mark.full
def test_an_interrupt_while_the_program_computes(tiny, watched):
    """As by Ctrl-C: it reaches the thread that waits, at once, and nothing is lost."""
    with trainer_of(tiny, GymnasiumAdapter(Watched, 1), epochs_per_checkpoint=1_000_000) as trainer:
        trainer.init(0)
        timer = threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,))
        watched.misbehave, watched.at = timer.start, 8 + 20
        with pytest.raises(KeyboardInterrupt):
            trainer.train_epoch()
        timer.join()
        finished = trainer.state.learner.updates.to_int()
        assert 18 < finished < 1_000_000
        assert trainer.state.learner.env_steps.to_int() == 8 + finished == trainer.env_steps
        # The step of an update that was not finished may have been taken.
        assert watched.steps - trainer.env_steps in (0, 1)


@pytest.mark.full
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_interrupts_while_the_last_update_is_waited_for(tiny, watched, monkeypatch, overlap):
    """Several: the update is waited for all the same, and nothing is lost."""
    with trainer_of(tiny, GymnasiumAdapter(Watched, 1), overlap=overlap) as trainer:
        trainer.init(0)
        loop, main = trainer.program.outer_schedule, threading.main_thread().ident

        def receive(*arguments, receive=loop.exchange.receive):
            if watched.steps == 8 + 6:  # all that there are: no more is asked for
                for _ in range(3):
                    time.sleep(0.1)
                    signal.pthread_kill(main, signal.SIGINT)
                time.sleep(0.1)
            receive(*arguments)

        loop.exchange.receive = receive
        with pytest.raises(KeyboardInterrupt):
            trainer.train_epoch()
        assert trainer.state.learner.updates.to_int() == 6
        assert trainer.env_steps == trainer.state.learner.env_steps.to_int() == 8 + 6
        trainer.train_step()  # the state can be gone on with


@pytest.mark.full
def test_an_interrupt_before_the_program_began(tiny, watched, monkeypatch):
    """The state is the one from before it."""
    with trainer_of(tiny, GymnasiumAdapter(Watched, 1)) as trainer:
        trainer.init(0)
        monkeypatch.setattr(threading.Thread, "start", lambda self: interrupt())
        with pytest.raises(KeyboardInterrupt):
            trainer.train_epoch()
        monkeypatch.undo()
        assert trainer.state.learner.updates.to_int() == 0
        trainer.train_epoch()
        assert trainer.state.learner.updates.to_int() == 6


@pytest.mark.full
def test_a_failing_program_does_not_keep_its_caller_waiting(tiny, watched, monkeypatch):
    with trainer_of(tiny, GymnasiumAdapter(Watched, 1)) as trainer:
        trainer.init(0)
        trainer.train_epoch()

        def fail(*_):
            raise RuntimeError("out of memory")

        monkeypatch.setattr(trainer.program.outer_schedule.program, "executable", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            trainer.train_epoch()


@dataclasses.dataclass
class Own:
    """An adapter of the user's own, of which a step in the middle of the loop returns something
    else.
    """

    inner: GymnasiumAdapter
    change: dict
    num_envs, is_jittable, max_episode_steps, spec = 1, False, 8, None
    observation_space, action_space = HostCounter().observation_space, HostCounter().action_space

    def reset(self, key):
        self.steps = 0
        return self.inner.reset(key)

    def step(self, key, state, action):
        self.steps += 1
        state, timestep = self.inner.step(key, state, action)
        return state, timestep.replace(**self.change) if self.steps == 8 + 3 else timestep

    def close(self):
        self.inner.close()


def test_a_step_unlike_those_before_is_refused(tiny):
    """And the state is that of the last finished update."""
    env = Own(GymnasiumAdapter(HostCounter, 1), {"obs": np.zeros((1, 3))})
    with trainer_of(tiny, env) as trainer:
        message = r"a step returned obs of shape \(1, 3\); return \(1, 2\)"
        with pytest.raises(EnvContractError, match=message):
            trainer.run(0)
        assert trainer.state.learner.updates.to_int() == 2
    env.close()


MISTAKES = {
    "column": (
        {"reward": np.zeros((1, 1))},
        r"a step returned reward of shape \(1, 1\); return \(1,\)",
    ),
    "text": ({"reward": np.array(["a"])}, r"could not convert string.*return arrays of numbers"),
    "nothing": ({"next_obs": None}, r"return arrays of numbers"),
}


@pytest.fixture(scope="module")
def counter_step():
    """A step of one `HostCounter`, as an adapter returns it."""
    env = GymnasiumAdapter(HostCounter, 1)
    state, _ = env.reset(jax.random.key(0))
    _, timestep = env.step(jax.random.key(1), state, np.zeros(1, np.int32))
    env.close()
    return timestep


@pytest.mark.parametrize(("change", "message"), MISTAKES.values(), ids=MISTAKES)
def test_what_is_no_array_like_those_before_is_refused(counter_step, change, message):
    rollout = Rollout(
        **{name: x[None] for name, x in step_result(counter_step).items()}, action=(), extras={}
    )
    step_format = StepFormat(rollout)
    assert len(step_format.leaves(counter_step)) == 5
    with pytest.raises(EnvContractError, match=message):
        step_format.leaves(counter_step.replace(**change))


@pytest.mark.full
def test_one_reward_and_one_flag_for_all_environments_will_do(tiny):
    env = Own(
        GymnasiumAdapter(HostCounter, 1),
        {"reward": 1, "truncated": np.bool_(False), "terminated": [False]},
    )
    with trainer_of(tiny, env) as trainer:
        trainer.run(0)
        assert trainer.state.learner.updates.to_int() == 2 * 6
    env.close()


class Computing(gymnasium.Env):
    """A simulator in JAX: each step multiplies matrices, large enough for several threads."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)
    max_episode_steps = 4

    def __init__(self):
        self.matrix = jnp.full((600, 600), 1 / 600)
        self.step_function = jax.jit(
            lambda matrix, action: jnp.tanh(matrix @ matrix).sum() * 0 + action
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        reward = float(self.step_function(self.matrix, float(action)))
        return np.float32([self.time / 4]), reward, False, self.time >= 4, {}


@pytest.mark.full
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_a_simulator_may_use_jax(tiny, overlap):
    env = GymnasiumAdapter(Computing, 2)
    with trainer_of(tiny, env, overlap=overlap, epochs_per_checkpoint=10) as trainer:
        trainer.run(0)
        assert trainer.state.learner.updates.to_int() == 2 * 10 * 2
    env.close()


@pytest.mark.parametrize(
    ("overlap", "order"),
    [in_full(("none", "learning learned asked")), ("update", "sent learning learned asked")],
)
def test_what_overlaps(tiny, key, overlap, order):
    """Alone, a step is asked for when the update is over; overlapped, its actions are handed over
    before the update begins.
    """
    program = program_of(tiny, overlap=overlap)
    loop, calls = program.outer_schedule, []

    def noting(name, function):
        return lambda *arguments: calls.append(name) or function(*arguments)

    def note(name, x):
        words = jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        words = io_callback(
            noting(name, np.asarray), jax.ShapeDtypeStruct(words.shape, words.dtype), words
        )
        return words if words.dtype == x.dtype else jax.random.wrap_key_data(words)

    def learn(learner, local, rollout, behaviour, learn=loop.learn):
        learner, local, metrics, counters = learn(
            learner, local.replace(key=note("learning", local.key)), rollout, behaviour
        )
        return (
            learner,
            local,
            metrics.replace(vectors=[note("learned", metrics.vectors[0]), *metrics.vectors[1:]]),
            counters,
        )

    loop.learn = learn
    loop.exchange.send = noting("sent", loop.exchange.send)
    loop.exchange.receive = noting("asked", loop.exchange.receive)
    program.outer(program.init(key))
    program.close()
    assert calls == order.split() * EPOCHS


@pytest.mark.parametrize(("overlap", "num_seeds"), [("none", 1), in_full(("update", 2))])
def test_the_replay_memory_is_never_copied(tiny, overlap, num_seeds):
    """As XLA compiles it when it optimises, see
    `test_writing_and_reading_in_one_program_copies_nothing`.
    """
    program = program_of(tiny, overlap=overlap, num_seeds=num_seeds, capacity=4 * 123_457)
    state = first_rollout(program.parts, program.init(Compiler(num_seeds).keys(0)))
    if overlap == "none":
        state = state.replace(behaviour=None)
    program.close()
    lowered = jax.jit(program.outer_schedule.compute, donate_argnums=(0, 1)).lower(
        *program_arguments(state)
    )
    text = lowered.compile(compiler_options={"xla_backend_optimization_level": 3}).as_text()
    assert "123457" in text
    assert [line for line in text.splitlines() if re.search(r"123457\S* copy\(", line)] == []


def test_an_update_that_changes_types_is_refused(tiny, key):
    program = program_of(tiny)

    def learn(*arguments, learn=program.outer_schedule.learn):
        learner, local, *found = learn(*arguments)
        return (
            learner,
            local.replace(discounted_return=local.discounted_return.astype(jnp.float16)),
            *found,
        )

    program.outer_schedule.learn = learn
    with pytest.raises(
        ConfigError,
        match=r"a training step changed .*discounted_return from float32\[4\] to float16\[4\]",
    ):
        program.outer(program.init(key))
    program.close()
