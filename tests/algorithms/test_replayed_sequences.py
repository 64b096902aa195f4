"""Learning through memory from replay: what sequences hold, and what their results must be."""

import dataclasses
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algorithm_rows import VARIANTS, agent_of, algorithm_of
from flax import nnx
from gymnasium import spaces
from tiers import by_default, in_full

import rlkit
from rlkit.action_masks import mask_in, masked_space
from rlkit.agents.base import memory_for_losses
from rlkit.agents.memory import one_step
from rlkit.agents.registry import agent_entry, make_agent
from rlkit.algorithms.collectors import acting_randomly
from rlkit.algorithms.compatibility import check_compatible, observations_of_batch
from rlkit.algorithms.dqn import dqn_loss
from rlkit.algorithms.prioritized_replay import PrioritizedReplay
from rlkit.algorithms.replay_batches import ReplayBatchBuilder, ReplayDataset
from rlkit.algorithms.replay_buffer import UniformReplay
from rlkit.algorithms.replayed_sequences import SequenceReader
from rlkit.algorithms.sequences import CARRY
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.envs.probes.space_probes import Counter
from rlkit.envs.probes.value_probes import Recall
from rlkit.errors import ConfigError
from rlkit.ops.running_stats import fold, init_stats, normalize
from rlkit.training.core.module import RLModule, fit
from rlkit.types import Sequences, Transition

N, C = 3, 40  # environments, and rows of the memory
GAMMA = 0.9
OBS = spaces.Box(-1, 1, (3,))


def steps(num, *, end=0.25, seed=0):
    """Rows of `num` steps in N environments, whose episodes end at random, in both ways.

    Observations count 1000 · environment and the step within the episode; the memory is half less.
    """
    rng, t = np.random.default_rng(seed), np.zeros(N)
    rows = []
    for k in range(num):
        done, is_terminated = rng.random(N) < end, rng.random(N) < 0.5
        obs = np.float32(1000 * np.arange(N) + t)
        rows.append(
            Transition(
                obs=obs,
                action=np.full(N, k, np.int32),
                reward=rng.random(N).astype(np.float32),
                terminated=done & is_terminated,
                truncated=done & ~is_terminated,
                next_obs=obs + 1,
                extras={CARRY: {"memory": obs[:, None] - np.float32(0.5)}, "twice": 2 * obs},
            )
        )
        t = np.where(done, 0, t + 1)
    return rows


def filled(buffer, rows, chunk=1):
    def shape(x):
        return jax.ShapeDtypeStruct(x.shape[1:], x.dtype)

    memory = buffer.init(jax.tree.map(shape, rows[0]), N)
    add = jax.jit(buffer.add)
    for start in range(0, len(rows), chunk):
        memory = add(memory, jax.tree.map(lambda *x: np.stack(x), *rows[start : start + chunk]))
    return memory


@pytest.mark.parametrize(
    ("length", "burn_in", "n_step", "num"),
    [(7, 4, 3, 57), (5, 0, 1, 60), (2, 3, 2, 34), (6, 6, 1, 100)],
)
def test_what_is_sampled_is_what_was_stored(length, burn_in, n_step, num):
    """Every sample is a step that was taken, with the n-step sum and the true successor of a walk
    along the rows, before the memory is full and after it has wrapped.
    """
    rows = steps(num)
    buffer = UniformReplay(
        capacity=C * N,
        batch_size=64 * length - 1,  # rounded up
        gamma=GAMMA,
        n_step=n_step,
        sequence_length=length,
        burn_in=burn_in,
    )
    memory = filled(buffer, rows, chunk=1 if num % 2 else 2)
    batch = jax.jit(buffer.sample)(memory, jax.random.key(1), jnp.float32(0))
    batch = jax.device_get(batch)
    seen, after = batch.obs.seen, batch.next_obs.seen
    assert seen.shape == (length * 64,) and batch.weight.tolist() == [1.0] * len(seen)
    for m, k in enumerate(batch.action):
        env, total, count = int(seen[m]) // 1000, 0.0, 0
        while count < n_step:
            row = rows[k + count]
            total += GAMMA**count * row.reward[env]
            count += 1
            if row.done[env]:
                break
        assert rows[k].obs[env] == seen[m] and batch.extras["twice"][m] == 2 * seen[m]
        assert row.next_obs[env] == after[m]
        np.testing.assert_allclose(batch.reward[m], total, rtol=1e-6)
        goes_on = not row.terminated[env]
        np.testing.assert_allclose(batch.discount[m], GAMMA**count * goes_on, rtol=1e-6)
    assert max(num - C, 0) + burn_in // 2 <= batch.action.min()
    assert num - n_step - 4 <= batch.action.max() <= num - n_step


def test_a_sequence_is_what_the_agent_saw():
    """In order, each final observation once, from the memory that was stored at its first step."""
    rows = steps(57, end=0.3)
    reader = SequenceReader(length=8, burn_in=3, n_step=2, gamma=GAMMA)
    buffer = UniformReplay(
        capacity=C * N, batch_size=1, gamma=GAMMA, n_step=2, sequence_length=8, burn_in=3
    )
    memory = filled(buffer, rows)
    ages, envs = (x.ravel() for x in np.mgrid[: C - reader.num_rows + 1, :N])
    batch = jax.device_get(jax.jit(reader.read)(memory, ages, envs))
    for s, (age, env) in enumerate(zip(ages, envs, strict=True)):
        wanted, begins = [], []
        for row in rows[-C:][age : age + reader.num_rows]:
            wanted.append(row.obs[env])
            begins.append(len(wanted) > 1 and row.obs[env] % 1000 == 0)
            if row.done[env]:
                wanted.append(row.next_obs[env])
                begins.append(False)
        wanted.append(row.next_obs[env])
        size = reader.num_rows + 1
        assert batch.obs.obs[:, s].tolist() == wanted[:size]
        assert batch.obs.restart[:, s].tolist() == [*begins, False][:size]
        assert batch.obs.carry["memory"][s, 0] == wanted[0] - 0.5
        newest = (len(rows) - C + age) % C
        assert (batch.index.reshape(8, -1)[:, s] == newest * N + env).all()


def test_a_final_observation_stands_for_the_step_before_it():
    """Or for the step after it, where it is the first that is learned from."""
    is_last = np.array([[0, 0, 1, 0, 0, 1, 0], [0, 0, 0, 1, 0, 0, 0]], bool).T
    reader = SequenceReader(length=4, burn_in=2, n_step=1, gamma=GAMMA)
    assert reader._learned(is_last).T.tolist() == [[3, 3, 4, 4], [2, 2, 4, 5]]


KINDS = ("gru", "lstm", "min_gru")


def network(kind):
    config = rlkit.QNetworkConfig(hidden_sizes=(4, 5), memory=kind, memory_size=3)
    return rlkit.q_network(OBS, spaces.Discrete(2), config)


def sequences(key, burn_in=2, at=None, length=6, batch=2):
    obs, carry = (jax.random.normal(key, shape) for shape in ((length, batch, 3), (batch, 3)))
    restart = np.zeros((length, batch), bool)
    restart[[1, 4], 0] = True
    return Sequences(obs=obs, carry=carry, restart=restart, at=at, burn_in=burn_in)


@pytest.mark.parametrize("kind", by_default(["gru"], KINDS))
def test_results_are_those_of_one_step_at_a_time(key, kind):
    """Burned in with the parameters of today, without a gradient; those that are asked for."""
    agent, at = network(kind), np.array([3, 0, 7, 7])
    whole = sequences(key, at=at)
    if kind == "lstm":
        whole = whole.replace(carry=(whole.carry, 2 * whole.carry))
    params = agent.init(key)

    def stepped(params):
        carry, values = whole.carry, []
        for t in range(6):
            if t == whole.burn_in:
                carry = jax.lax.stop_gradient(carry)
            initial = agent.initial_carry(2)
            carry = jax.tree.map(
                lambda new, x, t=t: jnp.where(whole.restart[t][:, None], new, x), initial, carry
            )
            carry, value = agent.network.apply(params, one_step(whole.obs[t], carry))
            values.append(value)
        return jnp.concatenate(values[whole.burn_in :])[at]

    def found(params):
        return agent.q_values(params, whole)

    np.testing.assert_allclose(found(params), stepped(params), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(whole.seen, np.asarray(whole.obs)[2:].reshape(-1, 3)[at])
    gradients = [
        jax.jit(jax.grad(lambda p, f=f: (f(p) ** 2).sum()))(params) for f in (found, stepped)
    ]
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), *gradients)
    kernel = jax.tree.leaves(gradients[0]["torso"]["cell"])[0]
    assert np.abs(kernel).max() > 1e-4


class CountSteps(nnx.Module):
    """Features are the steps of the episode so far."""

    def initial_carry(self, num_envs):
        return jnp.zeros((num_envs, 1))

    def __call__(self, carry, obs):
        return carry + 1.0, carry + 1.0


@pytest.mark.parametrize("double", [in_full(True), False])
def test_targets_are_those_of_a_table(key, double):
    """Values are 10 · steps of the episode + action, and twice that in the target network.

    The final observation of an episode is valued by the steps of that episode.
    """
    agent = rlkit.q_network(
        spaces.Box(-1, 1, ()), spaces.Discrete(2), torso=lambda rngs: CountSteps()
    )
    head = {"kernel": jnp.full((1, 2), 10.0), "bias": jnp.array([0.0, 1.0])}
    params = agent.init(key) | {"advantage_head": head}
    rows = [
        dataclasses.replace(
            row,
            action=np.arange(N, dtype=np.int32) % 2,
            extras={CARRY: (row.obs % 1000)[:, None]},
        )
        for row in steps(57)
    ]
    buffer = UniformReplay(
        capacity=C * N, batch_size=192, gamma=GAMMA, n_step=2, sequence_length=6, burn_in=2
    )
    batch = buffer.sample(filled(buffer, rows), key, 0.0)
    loss = dqn_loss(rlkit.DQNConfig(double=double))
    _, metrics = jax.jit(partial(loss, agent))(
        params, jax.tree.map(lambda x: 2 * x, params), batch, key
    )
    assert isinstance(batch.obs, Sequences) and isinstance(batch.next_obs, Sequences)
    steps_before, steps_after = batch.obs.seen % 1000, batch.next_obs.seen % 1000
    value = 10 * (steps_before + 1) + batch.action
    best = 2 * (10 * (steps_after + 1) + 1)
    wanted = batch.reward + batch.discount * best - value
    np.testing.assert_allclose(metrics["td_error"], wanted, rtol=1e-4, atol=1e-3)
    assert len(set(np.asarray(batch.discount).tolist())) == 3  # γ, γ² and 0


@pytest.mark.parametrize("chunk", [1, 2])
def test_only_whole_sequences_have_a_priority(chunk):
    """New rows have none; they complete the sequences that began before them."""
    buffer = PrioritizedReplay(
        capacity=8 * N, batch_size=8, gamma=GAMMA, n_step=2, sequence_length=2, burn_in=1
    )
    assert buffer.sequences.num_rows == 4
    rows = steps(14)
    for num in (4, 8, 10, 14):
        memory = filled(buffer, rows[:num], chunk)
        leaves = np.asarray(memory.tree.leaves)[: 8 * N].reshape(8, N)
        held = min(num, 8)
        begins = [row % 8 for row in range(num - held, num - 3)]
        assert sorted(np.flatnonzero(leaves.all(axis=1))) == sorted(begins), num
        assert leaves.sum() == N * len(begins)
        index = jax.jit(buffer.sample)(memory, jax.random.key(0), jnp.float32(0)).index
        assert set(np.asarray(index) // N) <= set(begins)


@pytest.mark.full
def test_the_priority_of_a_sequence_is_mostly_that_of_its_largest_error():
    """0.9 · largest + 0.1 · mean; weights are those of the sequence, at each of its steps."""
    buffer = PrioritizedReplay(
        capacity=12 * N,
        batch_size=6,
        gamma=GAMMA,
        sequence_length=3,
        burn_in=1,
        priority_exponent=1.0,
        importance_exponent=1.0,
        min_priority=1e-30,
    )
    memory = filled(buffer, steps(12))
    key = next(
        key
        for key in jax.random.split(jax.random.key(0), 20)
        if len({*np.asarray(buffer.sample(memory, key, 0.0).index).tolist()}) == 2
    )
    batch = buffer.sample(memory, key, 0.0)
    assert batch.index.shape == (6,) and batch.weight.tolist() == [1.0] * 6
    errors = jnp.array([1.0, -8.0, -3.0, 0.0, 2.0, 4.0])  # [3 steps, 2 sequences]
    memory = jax.jit(buffer.reprioritize)(memory, batch, errors)
    found = np.asarray(memory.tree.leaves)[np.asarray(batch.index[:2])]
    np.testing.assert_allclose(found, [0.9 * 3 + 0.1 * 2, 0.9 * 8 + 0.1 * 4], rtol=1e-6)
    assert float(memory.max_priority) == pytest.approx(7.6)
    again = jax.device_get(buffer.sample(memory, key, 0.0))
    urgency = np.asarray(memory.tree.leaves)[again.index]
    np.testing.assert_allclose(again.weight, urgency.min() / urgency, rtol=1e-5)
    unknown = buffer.reprioritize(memory, batch, errors.at[0].set(np.nan))
    assert float(unknown.tree.leaves[batch.index[0]]) == found[0]


BAD = [
    ({"capacity": 30}, "a sequence takes 31 steps, more than the 15 that the replay"),
    (
        {"prefill_steps": 40},
        r"more than the 21 of each .* to 62 or more, or lower burn_in \(10\), sequence_length \(21",
    ),
]


@pytest.mark.parametrize(("settings", "message"), BAD)
def test_a_memory_too_small_for_a_sequence_is_told(settings, message):
    env = vectorize(Counter(), 2)
    agent = rlkit.q_network(
        env.observation_space, env.action_space, rlkit.QNetworkConfig(memory="gru")
    )
    table = {"capacity": 200, "prefill_steps": 100, "batch_size": 4} | settings
    config = rlkit.DQNConfig(**{"sequence_length": 21, "burn_in": 10} | table)
    with pytest.raises(ConfigError, match=message):
        RLModule(env=env, agent=agent, algorithm=rlkit.dqn(config), total_steps=1e4)


@pytest.mark.parametrize("setting", [{"sequence_length": 8}, {"burn_in": 0}])
def test_settings_of_sequences_need_memory(setting):
    env = vectorize(Counter(), 2)
    agent = rlkit.q_network(env.observation_space, env.action_space)
    [(name, value)] = setting.items()
    with pytest.raises(ConfigError, match=f"{name}={value} has no effect on an agent without mem"):
        algorithm = rlkit.dqn(rlkit.DQNConfig(**setting))
        RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1e4)


class ContinuousRecall(Recall):
    """`Recall` with the sign of a number for an action."""

    action_space = spaces.Box(-1.0, 1.0, (1,))

    def step(self, key, state, action):
        return super().step(key, state, (action[0] > 0).astype(jnp.int32))


@pytest.mark.parametrize(
    ("name", "learns"),
    by_default(
        [("dqn.gru", True)],
        [
            ("dqn.gru", True),
            ("dqn", False),
            ("qr_dqn.min_gru", True),
            ("discrete_sac.gru", True),
            ("sac.lstm_gsde", True),
        ],
    ),
)
def test_only_memory_recalls(key, quick_jit, name, learns):
    """A cue is shown at the first step and asked for at the last: see `probe/Recall`."""
    env = vectorize((ContinuousRecall if name.startswith("sac") else Recall)(), 8)
    settings = {"memory_size": 16} if name in VARIANTS else {}
    agent = agent_of(name, env, **settings)
    table = {
        "num_steps": 4,
        "prefill_steps": 256,
        "capacity": 8000,
        "batch_size": 48,
        "updates_per_step": 0.125,
        "target_period": 256,
        "tau": 0.02,
        "learning_rate": 0.001,
        "gamma": 0.9,
        "temperature": 0.05,
    }
    module = RLModule(
        env=env,
        agent=agent,
        algorithm=algorithm_of(name, table),
        total_steps=2e4,
        eval_env=env,
        evaluation_episodes=32,
        max_evaluation_steps=4,
    )
    _, metrics = quick_jit(lambda k: fit(module, k, num_outer_iterations=250))(key)
    mean = float(np.mean(metrics["eval"]["return"][-1]))
    assert mean == 1.0 if learns else 0.2 < mean < 0.8, mean


def gathered(key, agent, space, buffer, obs_stats):
    """The batch that losses see, of rows whose observations are drawn from `space`."""
    space.seed(0)
    drawn = [np.stack([space.sample() for _ in range(N)]) for _ in range(31)]
    rows = [
        dataclasses.replace(
            row,
            obs=drawn[t],
            next_obs=drawn[t + 1],
            extras={CARRY: agent.initial_carry(N)},
        )
        for t, row in enumerate(steps(30))
    ]
    dataset = ReplayDataset(
        memory=filled(buffer, rows),
        obs_stats=obs_stats,
        progress=jnp.float32(0),
        is_due=None,
        num_updates=1,
    )
    return ReplayBatchBuilder(replay_buffer=buffer, updates_per_step=1.0).gather(dataset, key)


@pytest.mark.full
def test_sequences_are_normalised(key):
    """Those of successors too: both are the same."""
    buffer = UniformReplay(capacity=C * N, batch_size=20, gamma=GAMMA, sequence_length=5, burn_in=2)
    stats = fold(init_stats(jax.ShapeDtypeStruct((3,), jnp.float32)), jnp.ones((9, 3)) * 3)
    args = key, network("gru"), OBS, buffer
    raw, found = gathered(*args, None), gathered(*args, stats)
    assert np.abs(raw.obs.obs - found.obs.obs).min() > 0.1
    for one, other in ((raw.obs, found.obs), (raw.next_obs, found.next_obs)):
        np.testing.assert_array_equal(normalize(stats, one.obs), other.obs)


@pytest.mark.parametrize("name", ["q_network", "quantile_network", "discrete_soft_actor_critic"])
def test_masks_are_those_of_the_steps_that_are_asked_for(key, name):
    """What is not allowed in a step is -inf there, after the burn-in, wherever it is asked for."""
    space = masked_space(OBS, spaces.Discrete(4))
    settings = {"hidden_sizes": (4,), "memory": "gru", "memory_size": 3}
    agent = make_agent(name, space, spaces.Discrete(4), agent_entry(name).config(**settings))
    at = np.array([5, 0, 3, 3, 7])
    plain = sequences(key)
    mask = jax.random.bernoulli(key, 0.5, (6, 2, 4)).at[..., 1].set(True)
    obs = {"observation": plain.obs, "action_mask": mask.astype(jnp.int8)}
    carry = memory_for_losses(agent.initial_carry(2))
    whole = plain.replace(obs=obs, carry=carry, at=at)
    params = agent.init(key)
    if name == "discrete_soft_actor_critic":
        found = agent.log_probs(params["actor"], whole)
    elif name == "quantile_network":
        found = agent.quantiles(params, whole)[0]
    else:
        found = agent.q_values(params, whole)
    wanted = np.asarray(mask)[2:].reshape(-1, 4)[at]
    np.testing.assert_array_equal(np.isfinite(found), wanted)
    np.testing.assert_array_equal(mask_in(whole), wanted)
    assert not wanted.all()


def test_random_actions_are_stored_with_memory_and_no_other_extras(key):
    """The extras of an action that was not taken would be learned from."""
    agent = rlkit.q_network(OBS, spaces.Discrete(2), torso=lambda rngs: CountSteps())

    def explore(params, obs, carry, key, progress):
        action, carry, _ = agent.explore(params, obs, carry, key, progress)
        return action, carry, {"log_prob": jnp.ones(len(action))}

    telling = SimpleNamespace(explore=explore)
    policy = SimpleNamespace(params=agent.init(key), obs_stats=None, progress=jnp.float32(0))
    act = acting_randomly(telling, policy, spaces.Discrete(2))
    _, carry, extras = act(jnp.zeros((N, 3)), jnp.ones((N, 1)), key)
    assert extras["log_prob"].tolist() == [0.0] * N
    assert extras[CARRY].tolist() == [[1.0]] * N and carry.tolist() == [[2.0]] * N


def test_a_buffer_of_ones_own_is_told():
    """One that knows nothing of sequences."""

    class Own:
        capacity, batch_size, n_step = 100, 8, 1

        def init(self, example, num_envs):
            return ()

        add = sample = cut = init

    env = vectorize(Counter(), 2)
    config = rlkit.QNetworkConfig(memory="gru")
    agent = rlkit.q_network(env.observation_space, env.action_space, config)
    algorithm = rlkit.dqn(rlkit.DQNConfig(prefill_steps=50, capacity=100, batch_size=8))
    builder = dataclasses.replace(algorithm.batch_builder, replay_buffer=Own())
    with pytest.raises(ConfigError, match="Own has no sequences to learn from with memory; use Un"):
        check_compatible(dataclasses.replace(algorithm, batch_builder=builder), agent, env)


def test_estimates_count_the_steps_of_sequences():
    buffer = UniformReplay(
        capacity=100, batch_size=39, gamma=GAMMA, n_step=3, sequence_length=20, burn_in=10
    )
    assert observations_of_batch(buffer, has_memory=False) == 39
    assert observations_of_batch(buffer, has_memory=True) == 2 * 33
