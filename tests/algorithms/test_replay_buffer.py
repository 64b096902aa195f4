"""The replay ring, against a plain list that does the same."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.algorithms import replayed
from rlkit.algorithms.replay_buffer import UniformReplay, rows_for
from rlkit.errors import ConfigError
from rlkit.types import Transition

GAMMA = 0.5
PROGRESS = jnp.float32(0.5)

add = jax.jit(UniformReplay.add, static_argnums=0, donate_argnums=1)
read = jax.jit(replayed.window, static_argnames=("gamma", "n_step"))


def row(number, num_envs, *, terminated=(), truncated=()):
    """Step `number` of every environment: its reward is 10 · number + environment, its observation
    the same in uint8.
    """
    values = np.arange(num_envs, dtype=np.int32) + 10 * number
    flags = [
        np.array([env in which for env in range(num_envs)]) for which in (terminated, truncated)
    ]
    obs = {"frame": values[:, None].astype(np.uint8), "time": values.astype(np.float32)}
    after = jax.tree.map(lambda x: x + np.asarray(1, x.dtype), obs)
    return Transition(
        obs=obs,
        action=values,
        reward=values.astype(np.float32),
        terminated=flags[0],
        truncated=flags[1],
        next_obs=after,
        extras={},
    )


def rollout_of(rows):
    return jax.tree.map(lambda *x: np.stack(x), *rows)


def filled(buffer, rows, num_envs, chunk=1):
    memory = buffer.init(
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), rows[0]), num_envs
    )
    for start in range(0, len(rows), chunk):
        memory = add(buffer, memory, rollout_of(rows[start : start + chunk]))
    return memory


def window(buffer, memory, age, env):
    found = read(memory, np.array([age]), np.array([env]), gamma=buffer.gamma, n_step=buffer.n_step)
    return jax.tree.map(lambda x: np.asarray(x)[0], found)


@pytest.mark.parametrize("chunk", [1, 2, 3])
@pytest.mark.parametrize("num_rows", [3, 4, 7, 12])
def test_the_ring_holds_the_last_rows(chunk, num_rows):
    """Whatever the size of a rollout, before the ring is full and after it wrapped; dtypes stay."""
    buffer = UniformReplay(capacity=2 * 5, batch_size=4, gamma=GAMMA)
    rows = [row(number, 2) for number in range(num_rows - num_rows % chunk)]
    memory = filled(buffer, rows, 2, chunk)
    kept = rows[-5:]
    assert int(memory.size) == len(kept)
    for age, wanted in enumerate(kept):
        for env in range(2):
            found = window(buffer, memory, age, env)
            assert found.reward == wanted.reward[env] and found.action == wanted.action[env]
            np.testing.assert_array_equal(found.obs["frame"], wanted.obs["frame"][env])
            assert found.obs["frame"].dtype == jnp.uint8 and found.action.dtype == jnp.int32
            np.testing.assert_array_equal(found.next_obs["time"], wanted.next_obs["time"][env])
            assert found.discount == GAMMA


def test_one_step_targets_at_both_ends():
    """Termination stops bootstrapping, truncation does not, both together count as termination."""
    rows = [row(0, 4, terminated=(1, 3), truncated=(2, 3))]
    buffer = UniformReplay(capacity=4, batch_size=1, gamma=GAMMA)
    memory = filled(buffer, rows, 4)
    assert [float(window(buffer, memory, 0, env).discount) for env in range(4)] == [
        GAMMA,
        0.0,
        GAMMA,
        0.0,
    ]


@pytest.mark.parametrize("extra", range(6))
def test_n_step_returns_by_hand(extra):
    """Five rows of one environment, ended in row 2 by truncation, wherever the ring's seam lies
    (`extra` rows came before).

    Rewards are 0, 10, 20, 30, 40 and γ is 1/2; three steps are summed: from row 0: 0 + 10/2 + 20/4
    = 10, bootstraps from the successor of row 2 (the time limit) with γ³; from row 1: 10 + 20/2 =
    20, γ²; from row 2: 20, γ; from row 3: 30 + 40/2 = 50, γ², for row 4 is the newest; from row 4:
    40, γ.
    """
    buffer = UniformReplay(capacity=5, batch_size=1, gamma=GAMMA, n_step=3)
    rows = [row(number, 1, truncated=(0,) if number == 2 else ()) for number in range(5)]
    memory = filled(buffer, [row(90, 1)] * extra + rows, 1)
    wanted = [
        (10.0, 0.125, 20),
        (20.0, 0.25, 20),
        (20.0, 0.5, 20),
        (50.0, 0.25, 40),
        (40.0, 0.5, 40),
    ]
    for age, (reward, discount, last) in enumerate(wanted):
        found = window(buffer, memory, age, 0)
        assert (float(found.reward), float(found.discount)) == (reward, discount)
        assert found.obs["time"] == 10 * age and found.next_obs["time"] == last + 1


@pytest.mark.parametrize("both", [False, True])
def test_n_step_returns_stop_at_termination(both):
    buffer = UniformReplay(capacity=8, batch_size=1, gamma=GAMMA, n_step=4)
    ends = {"terminated": (0,), "truncated": (0,) if both else ()}
    memory = filled(
        buffer, [row(number, 1, **(ends if number == 1 else {})) for number in range(6)], 1
    )
    assert (
        float(window(buffer, memory, 0, 0).reward),
        float(window(buffer, memory, 0, 0).discount),
    ) == (5.0, 0.0)
    assert float(window(buffer, memory, 2, 0).discount) == GAMMA**4
    assert float(window(buffer, memory, 2, 0).reward) == 20 + 30 / 2 + 40 / 4 + 50 / 8


def test_a_cut_ends_the_episodes_in_flight():
    """After a restart of the environments the next row follows from nothing: sums stop before it,
    and still bootstrap.
    """
    buffer = UniformReplay(capacity=10, batch_size=1, gamma=GAMMA, n_step=3)
    memory = filled(buffer, [row(0, 2), row(1, 2, terminated=(1,))], 2)
    memory = add(buffer, jax.jit(buffer.cut)(memory), rollout_of([row(7, 2)]))
    found = window(buffer, memory, 0, 0)
    assert (float(found.reward), float(found.discount), float(found.next_obs["time"])) == (
        5.0,
        0.25,
        11.0,
    )
    assert float(window(buffer, memory, 1, 1).discount) == 0.0  # what had ended stays ended


@pytest.mark.parametrize("num_rows", [3, 5, 8])
def test_sampling_is_uniform_over_what_is_stored(num_rows):
    """Chi-square over every stored transition, before the ring is full and after it wrapped."""
    buffer = UniformReplay(capacity=10, batch_size=20_000, gamma=GAMMA)
    memory = filled(buffer, [row(number, 2) for number in range(num_rows)], 2)
    rewards = np.asarray(jax.jit(buffer.sample)(memory, jax.random.key(0), PROGRESS).reward)
    stored = [
        10.0 * number + env for number in range(max(0, num_rows - 5), num_rows) for env in range(2)
    ]
    counts = np.array([(rewards == value).sum() for value in stored])
    assert counts.sum() == 20_000
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert chi_square < 40  # 3 to 9 degrees of freedom: p < 1e-5


def test_capacity_is_rounded_up_to_whole_rows():
    assert [rows_for(10, num_envs) for num_envs in (1, 3, 4, 10, 16)] == [
        10,
        4,
        3,
        1,
        1,
    ]


def test_writing_happens_in_place():
    """The donated ring is the one that comes back: no copy of it is made."""
    buffer = UniformReplay(capacity=1000, batch_size=1, gamma=GAMMA)
    memory = filled(buffer, [row(0, 1)], 1)
    before = memory.words.unsafe_buffer_pointer(), memory.singles.unsafe_buffer_pointer()
    after = add(buffer, memory, rollout_of([row(1, 1)]))
    assert (after.words.unsafe_buffer_pointer(), after.singles.unsafe_buffer_pointer()) == before


def test_a_transition_without_bytes_lies_in_one_place():
    """Its flags too."""
    buffer = UniformReplay(capacity=10, batch_size=1, gamma=GAMMA)
    only_time = [
        step.replace(obs=step.obs["time"], next_obs=step.next_obs["time"])
        for step in (row(0, 1), row(1, 1))
    ]
    memory = filled(buffer, only_time, 1)
    assert memory.singles is None
    assert memory.words.shape == (10, 1, 5)  # reward, flags, observation, action, next observation
    assert filled(buffer, [row(0, 1)], 1).singles.shape == (10, 1, 2)


@pytest.mark.parametrize("num_seeds", [1, 2])
@pytest.mark.parametrize("n_step", [1, 3])
def test_writing_and_reading_in_one_program_copies_nothing(num_seeds, n_step):
    """Seen failing: where XLA fuses the write into the read behind it, it keeps the old ring and
    copies it.
    """
    buffer = UniformReplay(capacity=123_457, batch_size=8, gamma=GAMMA, n_step=n_step)
    example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), row(0, 1))

    def step(memory, rollout, key):
        memory = buffer.add(memory, rollout)
        batches = jax.lax.scan(
            lambda _, k: (None, buffer.sample(memory, k, PROGRESS)), None, jax.random.split(key, 1)
        )[1]
        return memory, batches

    arguments = buffer.init(example, 1), rollout_of([row(0, 1)]), jax.random.key(0)
    if num_seeds > 1:
        step = jax.vmap(step)
        arguments = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((num_seeds, *x.shape), x.dtype), arguments
        )
    lowered = jax.jit(step, donate_argnums=0).lower(*arguments)
    program = lowered.compile(compiler_options={"xla_backend_optimization_level": 3}).as_text()
    assert "123457" in program
    copies = [line for line in program.splitlines() if re.search(r"123457\S* copy\(", line)]
    assert copies == []


@pytest.mark.parametrize(
    "dtype", [np.float32, np.int32, np.uint8, np.int8, np.bool_, np.float16, np.int16]
)
def test_every_bit_comes_back(dtype):
    """Of any kind of number, not-a-numbers included."""
    bits = np.random.default_rng(0).integers(
        0, 256, (3, 2, 5, 4 * np.dtype(dtype).itemsize), dtype=np.uint8
    )
    values = bits % 2 == 1 if dtype is np.bool_ else bits.view(dtype)
    rows = [
        row(number, 2).replace(obs={"x": values[number]}, extras={"y": {"z": values[number, :, 0]}})
        for number in range(3)
    ]
    buffer = UniformReplay(capacity=6, batch_size=1, gamma=GAMMA)
    memory = filled(buffer, rows, 2)
    for age in range(3):
        for env in range(2):
            found = window(buffer, memory, age, env)
            assert (
                found.obs["x"].tobytes() == values[age, env].tobytes()
                and found.obs["x"].dtype == dtype
            )
            assert found.extras["y"]["z"].tobytes() == values[age, env, 0].tobytes()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.int32])
def test_a_cut_marks_the_newest_row_whatever_rewards_are(dtype):
    rows = [step.replace(reward=step.reward.astype(dtype)) for step in (row(0, 2), row(1, 2))]
    memory = filled(UniformReplay(capacity=6, batch_size=1, gamma=GAMMA), rows, 2)
    kept = jax.device_get(jax.jit(lambda memory: memory.cut().transitions)(memory))
    assert kept.truncated.tolist()[:2] == [[False] * 2, [True] * 2] and not kept.terminated.any()
    assert kept.reward.tolist()[:2] == [step.reward.tolist() for step in rows]


def test_a_rollout_larger_than_the_ring_is_refused():
    buffer = UniformReplay(capacity=2, batch_size=1, gamma=GAMMA)
    with pytest.raises(
        ConfigError, match="a rollout of 3 steps does not fit into a replay buffer of 2"
    ):
        filled(buffer, [row(number, 1) for number in range(3)], 1, chunk=3)
