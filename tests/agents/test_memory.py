"""Memory: recurrent layers over sequences, and the agents that have one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from gymnasium import spaces
from tiers import by_default, in_full

import rlkit
from rlkit.agents.base import memory_for_losses, memory_of, with_memory
from rlkit.agents.cells import LONGEST, make_cell
from rlkit.agents.memory import MemoryTorso, WithMemory, steps_in_a_loop
from rlkit.agents.registry import agent_entry, make_agent
from rlkit.agents.torso import Torso
from rlkit.algorithms.collectors import restart_carry
from rlkit.errors import ConfigError
from rlkit.ops.rows import where_rows
from rlkit.types import Sequences

KINDS = ("gru", "lstm", "min_gru")
LENGTH, BATCH, WIDTH, SIZE = 7, 3, 4, 5
OBS = spaces.Box(-1, 1, (WIDTH,))
SPACES = {
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(-1, 1, (2,)),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
}


def some_inputs(key):
    """Inputs [L, B, F] and restarts [L, B], some in the middle, one of them at the start."""
    x = jax.random.normal(key, (LENGTH, BATCH, WIDTH))
    restart = np.zeros((LENGTH, BATCH), bool)
    restart[[0, 2, 3, 6], [1, 0, 2, 0]] = True
    return x, jnp.asarray(restart)


def built(kind):
    return make_cell(kind, WIDTH, SIZE)


def drawn(cell, key):
    """The cell with weights in place of those that `make_network` would draw."""
    state = nnx.state(cell)
    leaves, structure = jax.tree.flatten(state)
    keys = jax.random.split(key, len(leaves))
    nnx.update(
        cell,
        jax.tree.unflatten(
            structure,
            [0.5 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)],
        ),
    )
    return cell


def assert_close(found, wanted, *, atol=1e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), found, wanted)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_over_a_sequence_flaxs_cell_takes_its_steps(key, kind):
    cell = drawn(built(kind), key)
    x, restart = some_inputs(key)
    start = jax.tree.map(lambda c: c + 0.3, cell.initial_carry(BATCH))
    carry, rows = start, []
    for t in range(LENGTH):
        carry, row = cell.cell(where_rows(restart[t], cell.initial_carry(BATCH), carry), x[t])
        rows.append(row)
    last, found = cell.over(start, x, restart)
    assert_close((last, found), (carry, jnp.stack(rows)))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_derivatives_over_a_sequence_are_those_of_its_steps(key, kind):
    """Forwards and backwards, by the weights, the first memory and the inputs."""
    cell = drawn(built(kind), key)
    x, restart = some_inputs(key)
    graph, weights = nnx.split(cell)
    start = jax.tree.map(lambda c: c + 0.3, cell.initial_carry(BATCH))
    initial = cell.initial_carry(BATCH)

    def by_steps(weights, carry, x):
        flaxs, rows = nnx.merge(graph, weights).cell, []
        for t in range(LENGTH):
            carry, row = flaxs(where_rows(restart[t], initial, carry), x[t])
            rows.append(row)
        return carry, jnp.stack(rows)

    def at_once(weights, carry, x):
        return nnx.merge(graph, weights).over(carry, x, restart)

    primals = (weights, start, x)
    leaves, structure = jax.tree.flatten(primals)
    directions = jax.tree.unflatten(
        structure,
        [
            jax.random.normal(k, leaf.shape)
            for k, leaf in zip(jax.random.split(key, len(leaves)), leaves, strict=True)
        ],
    )

    @functools.partial(jax.jit, static_argnums=0)
    def derivatives(over):
        out, changes = jax.jvp(over, primals, directions)
        return changes, jax.vjp(over, *primals)[1](jax.tree.map(jnp.cos, out))

    assert_close(derivatives(at_once), derivatives(by_steps), atol=1e-5)


def test_min_gru_computes_in_parallel_what_its_equation_says(key):
    cell = drawn(built("min_gru"), key)
    x, restart = some_inputs(key)
    gate, candidate = (
        [np.asarray(each.kernel[...]), np.asarray(each.bias[...])]
        for each in (cell.gate, cell.candidate)
    )
    h, rows = np.full((BATCH, SIZE), 0.3), []
    for x_t, restart_t in zip(np.asarray(x), np.asarray(restart), strict=True):
        h = np.where(restart_t[:, None], 0.0, h)
        z = 1 / (1 + np.exp(-(x_t @ gate[0] + gate[1])))
        h = (1 - z) * h + z * (x_t @ candidate[0] + candidate[1])
        rows.append(h)
    last, found = cell.over(jnp.full((BATCH, SIZE), 0.3), x, restart)
    np.testing.assert_allclose(found, np.stack(rows), atol=1e-6)
    np.testing.assert_allclose(last, rows[-1], atol=1e-6)


@pytest.mark.parametrize(("kind", "gates"), [("gru", 3), ("lstm", 4)])
def test_first_weights_are_orthogonal_for_each_gate(key, kind, gates):
    """Drawn by rlkit: Flax's initialiser calls LAPACK, which can hang under `jit(vmap(init))`."""
    cell = agent_with(kind).init(key)["network"]["actor"]["torso"]["cell"]["cell"]
    assert " qr[" not in str(jax.make_jaxpr(agent_with(kind).init)(key))
    kernels = np.split(cell["dense_h"]["kernel"], gates, axis=1)
    for kernel in kernels:
        np.testing.assert_allclose(kernel.T @ kernel, np.eye(SIZE), atol=1e-5)
    assert np.abs(kernels[0] - kernels[1]).max() > 0.1
    for kernel in np.split(cell["dense_i"]["kernel"], gates, axis=1):  # [6, 5]
        np.testing.assert_allclose(kernel.T @ kernel, np.eye(SIZE), atol=1e-5)
    if kind == "lstm":  # forget gates begin open
        bias = np.split(np.asarray(cell["dense_h"]["bias"]), 4)
        assert [set(gate.tolist()) for gate in bias] == [{0.0}, {1.0}, {0.0}, {0.0}]
    else:
        assert not np.any(cell["dense_i"]["bias"])


@pytest.mark.full
def test_weight_init_is_that_of_the_memory_too(key):
    agent = agent_with("gru", weight_init="pytorch")
    cell = agent.init(key)["network"]["actor"]["torso"]["cell"]["cell"]
    assert 0.9 / np.sqrt(SIZE) < np.abs(cell["dense_h"]["kernel"]).max() <= 1 / np.sqrt(SIZE)


def test_min_gru_begins_with_many_time_scales():
    open_for = np.asarray(jax.nn.sigmoid(built("min_gru").gate.bias[...]))
    np.testing.assert_allclose(1 / open_for, np.geomspace(2, LONGEST, SIZE), rtol=1e-4)


def agent_with(kind, action="discrete", **settings):
    config = rlkit.ActorCriticConfig(hidden_sizes=(6, 8), memory=kind, memory_size=SIZE, **settings)
    return rlkit.actor_critic(OBS, SPACES[action], config)


AGENTS = [
    ("actor_critic", {"memory": "gru", "share_torso": False}),
    ("normalized_q_network", {"memory": "min_gru"}),
    *(("actor_critic", {"memory": kind, "share_torso": True}) for kind in KINDS),
    *(("actor_critic", {"memory": kind}) for kind in ("lstm", "min_gru")),
    ("actor_critic", {"memory": "gru", "use_sde": True}),
    *((name, {"memory": "lstm"}) for name in ("q_network", "normalized_q_network")),
    ("quantile_network", {"memory": "gru", "num_quantiles": 4}),
    ("q_network", {"memory": "gru", "dueling": True}),
]


@pytest.mark.parametrize(("name", "settings"), [*AGENTS[:2], *map(in_full, AGENTS[2:])])
def test_an_agent_says_of_a_sequence_what_it_says_step_by_step(key, name, settings):
    """Values of all steps at once equal those of acting, which restarts the memory as it goes."""
    config = agent_entry(name).config(hidden_sizes=(6, 8), memory_size=SIZE, **settings)
    space = SPACES["box" if settings.get("use_sde") else "discrete"]
    agent = make_agent(name, OBS, space, config)
    params = agent.init(jax.random.key(4))  # with which actions differ
    x, restart = some_inputs(key)
    x, restart = 20 * x, restart.at[0].set(False)
    carry = start = agent.initial_carry(BATCH)
    best = []
    for t in range(LENGTH):
        carry = restart_carry(carry, agent.initial_carry(BATCH), restart[t])
        action, carry = agent.exploit(params, x[t], carry, key)
        best.append(action)
    memory = start.replace(noise=()) if isinstance(start, WithMemory) else start
    sequences = Sequences(obs=x, carry=memory, restart=restart)
    if name == "actor_critic":
        policy, value = agent.policy_and_value(params, sequences)
        found = policy.mode()
        assert value.shape == (LENGTH * BATCH,)
    else:
        found = agent.q_values(params, sequences).argmax(-1)
    wanted = jnp.concatenate(best)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert len(np.unique(np.asarray(wanted).round(3), axis=0)) > 1


@pytest.mark.parametrize("kind", by_default(["lstm"], KINDS))
def test_what_was_seen_before_counts(key, kind):
    """Within an episode, and only there."""
    agent = agent_with(kind)
    params = agent.init(key)
    x, _ = some_inputs(key)
    none = jnp.zeros((LENGTH, BATCH), bool)

    def values(x, restart):
        memory = agent.initial_carry(BATCH)
        return agent.value(params, Sequences(obs=x, carry=memory, restart=restart)).reshape(
            LENGTH, BATCH
        )

    changed = x.at[2].add(1.0)
    before, after = values(x, none), values(changed, none)
    np.testing.assert_allclose(after[:2], before[:2], atol=1e-7)
    assert (np.abs(after[2:] - before[2:]).max(1) > 1e-5).all()
    cut = none.at[4].set(True)
    np.testing.assert_allclose(values(changed, cut)[4:], values(x, cut)[4:], atol=1e-7)


def test_actor_and_critic_remember_apart_unless_they_share(key):
    apart, shared = agent_with("gru"), agent_with("gru", share_torso=True)
    assert len(jax.tree.leaves(apart.initial_carry(2))) == 2
    assert len(jax.tree.leaves(shared.initial_carry(2))) == 1
    params = apart.init(key)["network"]
    assert set(params) == {"actor", "critic"}
    assert set(params["actor"]["torso"]) == {"torso", "cell", "last"}


def test_the_last_layer_sees_memory_and_features(key):
    """Of hidden layers (6, 8), the first stands before the memory, the second after it."""
    torso = agent_with("gru").init(key)["network"]["actor"]["torso"]
    shapes = jax.tree.map(lambda x: x.shape, torso)
    assert shapes["torso"]["mlp"]["layers"][0]["kernel"] == (WIDTH, 6)
    assert shapes["cell"]["cell"]["dense_i"]["kernel"] == (6, 3 * SIZE)
    assert shapes["last"]["layers"][0]["kernel"] == (SIZE + 6, 8)


def test_behind_a_shared_memory_actor_and_critic_have_a_last_layer_each(key):
    agent = agent_with("gru", share_torso=True)
    params = agent.init(key)
    network = params["network"]
    heads = {"actor_last", "actor_head", "critic_last", "critic_head"}
    assert set(network) == {"torso", *heads}
    assert network["critic_last"]["layers"][0]["kernel"].shape == (SIZE + 6, 8)
    x, restart = some_inputs(key)
    sequences = Sequences(obs=x, carry=agent.initial_carry(BATCH), restart=restart)
    found = jax.grad(lambda params: agent.value(params, sequences).sum())(params)["network"]
    moved = {name for name, grads in found.items() if any(map(np.any, jax.tree.leaves(grads)))}
    assert moved == {"torso", "critic_last", "critic_head"}


def test_a_shared_memory_stands_on_a_torso_of_ones_own(key):
    def torso(rngs):
        return lambda obs: 2.0 * obs

    config = rlkit.ActorCriticConfig(memory="gru", share_torso=True, hidden_sizes=(8,))
    network = rlkit.actor_critic(OBS, SPACES["discrete"], config, torso=torso).init(key)["network"]
    assert set(network["torso"]) == {"cell"}
    assert network["actor_last"]["layers"][0]["kernel"].shape == (config.memory_size + WIDTH, 8)
    with pytest.raises(ConfigError, match="leave out one of them"):
        own = lambda rngs: Averages()  # noqa: E731
        rlkit.actor_critic(OBS, SPACES["discrete"], config, torso=own)


def test_noise_and_memory_go_on_side_by_side(key):
    agent = agent_with("gru", "box", use_sde=True)
    params, carry = agent.init(key), agent.initial_carry(BATCH)
    x, _ = some_inputs(key)
    for step, obs in enumerate(x[:3]):
        assert (carry.noise.age == step).all()
        action, after, _ = agent.explore(params, obs, carry, key, jnp.float32(0.0))
        best, memory = agent.exploit(params, obs, carry, key)
        assert np.abs(action - best).max() > 1e-3
        jax.tree.map(np.testing.assert_array_equal, after.memory, memory.memory)
        jax.tree.map(np.testing.assert_array_equal, memory.noise, carry.noise)
        carry = after


class Averages(nnx.Module):
    """Running sums of observations: a memory of one's own, without parameters."""

    def initial_carry(self, num_envs):
        return jnp.zeros((num_envs, WIDTH))

    def __call__(self, carry, obs):
        carry = carry + obs
        return carry, carry


def test_a_torso_with_a_memory_of_its_own(key):
    agent = rlkit.actor_critic(OBS, SPACES["discrete"], torso=lambda rngs: Averages())
    params = agent.init(key)
    x, restart = some_inputs(key)
    sums, rows = jnp.ones((BATCH, WIDTH)), []
    for t in range(LENGTH):
        sums = jnp.where(restart[t][:, None], 0.0, sums) + x[t]
        rows.append(sums @ params["network"]["critic"]["head"]["kernel"])
    pair = (jnp.ones((BATCH, WIDTH)),) * 2
    sequences = Sequences(obs=x, carry=WithMemory(memory=pair, noise=()), restart=restart)
    found = agent.value(params, sequences)
    np.testing.assert_allclose(found, jnp.stack(rows).ravel(), atol=1e-5)
    assert agent.custom == ("torso",)


def test_a_memory_on_a_torso_of_ones_own(key):
    config = rlkit.ActorCriticConfig(memory="gru", memory_size=SIZE, hidden_sizes=(6, 8))
    own = rlkit.ActorCriticConfig(hidden_sizes=(9,))
    agent = rlkit.actor_critic(OBS, SPACES["discrete"], config, torso=lambda rngs: Torso(OBS, own))
    torso = agent.init(key)["network"]["actor"]["torso"]
    assert torso["cell"]["cell"]["dense_i"]["kernel"].shape == (9, 3 * SIZE)
    assert torso["last"]["layers"][0]["kernel"].shape == (SIZE + 9, 8)


class Grows(Averages):
    def __call__(self, carry, obs):
        return jnp.concatenate([carry, obs], -1), obs


class Says(Averages):
    def __call__(self, carry, obs):
        return carry, obs[0]


class Fails(Averages):
    def __call__(self, carry, obs):
        raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("torso", "settings", "message"),
    [
        (Averages, {"memory": "gru"}, "a memory of its own, and memory='gru' would add another"),
        (Grows, {}, r"changes the shape of its memory from .*\(2, 4\).* to .*\(2, 8\)"),
        (Says, {}, r"maps a batch of 2 observations to \(4,\); it must map \(carry \[B, ...\]"),
        (Fails, {}, r"fails on a batch of observations \(.*Error: no such thing\); it must map"),
    ],
)
def test_a_torso_that_does_not_fit_is_refused(torso, settings, message):
    config = rlkit.ActorCriticConfig(**settings)
    with pytest.raises(ConfigError, match=message):
        rlkit.actor_critic(OBS, SPACES["discrete"], config, torso=lambda rngs: torso())


@pytest.mark.fast
@pytest.mark.parametrize("kind", [rlkit.ActorCriticConfig, rlkit.QNetworkConfig])
def test_a_size_without_memory_is_refused(kind):
    with pytest.raises(
        ConfigError, match=r"memory_size=32 has no effect .*--memory-size 64.*--memory gru"
    ):
        kind(memory_size=32)
    assert kind(memory="lstm", memory_size=32).memory_size == 32


@pytest.mark.full
def test_bfloat16_keeps_its_types_over_a_sequence(key):
    for kind in KINDS:
        agent = agent_with(kind, precision="bfloat16")
        x, restart = some_inputs(key)
        sequences = Sequences(obs=x, carry=agent.initial_carry(BATCH), restart=restart)
        value = agent.value(agent.init(key), sequences)
        assert value.dtype == jnp.float32 and np.isfinite(value).all()
        carry = agent.initial_carry(BATCH)
        _, after = agent.exploit(agent.init(key), x[0], carry, key)
        jax.tree.map(lambda a, b: np.testing.assert_equal(a.dtype, b.dtype), after, carry)


class Counts(nnx.Module):
    """A memory that computes in float32 whatever it is given, such as for observed integers."""

    def initial_carry(self, num_envs):
        return jnp.zeros((num_envs, WIDTH))

    def __call__(self, carry, obs):
        carry = 0.9 * carry + obs.astype(jnp.float32)
        return carry, carry


def test_a_memory_of_ones_own_may_compute_in_float32(key):
    """A sequence and its steps one by one give the same, but for rounding between two steps."""
    config = rlkit.QNetworkConfig(precision="bfloat16")
    agent = rlkit.q_network(OBS, SPACES["discrete"], config, torso=lambda rngs: Counts())
    x, restart = some_inputs(key)
    carry, params = agent.initial_carry(BATCH), agent.init(key)
    steps = Sequences(obs=x, carry=carry, restart=jnp.zeros_like(restart))
    for obs in x:
        _, carry = agent.exploit(params, obs, carry, key)
    assert carry.dtype == jnp.float32
    last, _ = agent.network.apply(params, steps)
    assert_close(last, carry, atol=0.1)


def test_min_gru_remembers_as_long_in_bfloat16(key):
    """Its slowest units change by a thousandth in a step, which bfloat16 would round away; and
    steps one by one, as an agent acts, would not add up to the sequence that it learns from.
    """
    config = {"memory": "min_gru", "memory_size": 16, "hidden_sizes": (4,)}
    exact, rounded = (
        rlkit.q_network(
            OBS, SPACES["discrete"], rlkit.QNetworkConfig(**config, precision=precision)
        )
        for precision in ("float32", "bfloat16")
    )
    x = 1.0 + 0.3 * jax.random.normal(key, (300, BATCH, WIDTH))

    @jax.jit
    def memories(params, x):
        def step(carry, obs):
            return rounded.exploit(params, obs, carry, key)[1], None

        def over(agent):
            restart = jnp.zeros(x.shape[:2], bool)
            steps = Sequences(obs=x, carry=agent.initial_carry(BATCH), restart=restart)
            return agent.network.apply(params, steps)[0]

        stepwise = jax.lax.scan(step, rounded.initial_carry(BATCH), x)[0]
        return stepwise, over(rounded), over(exact)

    stepwise, whole, wanted = memories(exact.init(key), x)
    np.testing.assert_allclose(stepwise, whole, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(whole, wanted, atol=0.02 * np.abs(wanted).max())


def test_a_loop_of_one_step_is_the_step(key):
    x, _ = some_inputs(key)
    for restart in (False, True):
        rows = jnp.full((1, BATCH), restart)
        carry, out = steps_in_a_loop(
            Averages(), Averages().initial_carry, jnp.ones((BATCH, WIDTH)), x[:1], rows
        )
        wanted = x[0] + (0.0 if restart else 1.0)
        np.testing.assert_allclose(carry, wanted)
        np.testing.assert_allclose(out, wanted[None])


def test_what_counts_as_a_memory():
    assert isinstance(Averages(), MemoryTorso)
    assert not isinstance(Torso(OBS, rlkit.ActorCriticConfig()), MemoryTorso)


SOFT = {
    "sac": (rlkit.soft_actor_critic, SPACES["box"], {}),
    "sac.gsde": (rlkit.soft_actor_critic, SPACES["box"], {"use_sde": True}),
    "discrete_sac": (rlkit.discrete_soft_actor_critic, SPACES["discrete"], {}),
}


def soft(name, kind="gru", **more):
    make, space, settings = SOFT[name]
    settings = {"hidden_sizes": (6, 4), "memory": kind, "memory_size": SIZE, **settings}
    discrete = name == "discrete_sac"
    kind_of = rlkit.DiscreteSoftActorCriticConfig if discrete else rlkit.SoftActorCriticConfig
    return make(OBS, space, kind_of(**settings), **more)


def critic_values(agent, params, obs, unit_action):
    """Those of all actions [2, M, A], or of unit actions [2, M]."""
    discrete = isinstance(agent.action_space, spaces.Discrete)
    return agent.q_values(params["critic"], obs, *(() if discrete else (unit_action,)))


@pytest.mark.parametrize(
    ("name", "kind"), by_default([("sac", "gru")], [(n, k) for n in SOFT for k in KINDS])
)
def test_critics_remember_what_was_collected(key, name, kind):
    """Their memory after steps of exploring is the one that a sequence leaves, for each of them;
    the best actions are those of the same sequence, and leave the critics' memory alone.
    """
    agent = soft(name, kind)
    x, _ = some_inputs(key)

    @jax.jit
    def stepped(params, key):
        carry, progress = agent.initial_carry(BATCH), jnp.float32(0)
        for t in range(LENGTH):
            before = carry
            best, after = agent.exploit(params, x[t], before, key)
            _, carry, _ = agent.explore(params, x[t], before, key, progress)
        return before, after, best

    params = agent.init(key)
    before, after, best = stepped(params, key)
    jax.tree.map(np.testing.assert_array_equal, after.critics, before.critics)
    whole = Sequences(
        obs=x,
        carry=memory_for_losses(agent.initial_carry(BATCH)),
        restart=jnp.zeros((LENGTH, BATCH), bool),
    )
    rest = whole.replace(obs=x[-1:], carry=memory_for_losses(before), restart=whole.restart[-1:])
    last = np.s_[..., -BATCH:, :] if name == "discrete_sac" else np.s_[..., -BATCH:]
    inputs = jax.random.uniform(key, (LENGTH * BATCH, 2), minval=-1.0)
    if name == "discrete_sac":
        actor = agent.log_probs(params["actor"], whole).argmax(-1)
    else:
        actor = agent.from_unit(agent.policy(params["actor"], whole).mode())
    np.testing.assert_allclose(best, actor[-BATCH:], rtol=1e-4, atol=1e-6)
    wanted = critic_values(agent, params, whole, inputs)[last]
    found = critic_values(agent, params, rest, inputs[-BATCH:])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    assert np.abs(found[0] - found[1]).max() > 1e-3
    forgetful = critic_values(agent, params, rest.replace(carry=whole.carry), inputs[-BATCH:])
    assert np.abs(forgetful - found).max() > 1e-4


def test_only_the_actors_memory_is_needed_to_act():
    """Policies and exports take and return no memory of critics."""
    agent = soft("sac", "lstm")
    carry = agent.initial_carry(2)
    assert [x.shape for x in jax.tree.leaves(memory_of(carry))] == [(2, SIZE)] * 2
    assert [x.shape for x in jax.tree.leaves(memory_for_losses(carry))] == [(2, SIZE)] * 6
    changed = with_memory(carry, [jnp.ones((2, SIZE)), jnp.ones((2, SIZE))])
    assert (
        jax.tree.leaves(changed.memory)[0].all() and not jax.tree.leaves(changed.critics)[0].any()
    )


@pytest.mark.full
def test_critics_may_go_without(key):
    """A torso with memory for the actor, and a user's critics that see one observation."""
    agent = rlkit.soft_actor_critic(
        OBS,
        SPACES["box"],
        rlkit.SoftActorCriticConfig(hidden_sizes=(4,)),
        torso=lambda rngs: Averages(),
    )
    carry = agent.initial_carry(BATCH)
    assert jax.tree.leaves(carry.critics) == []
    x, restart = some_inputs(key)
    params = agent.init(key)
    whole = Sequences(obs=x, carry=memory_for_losses(carry), restart=restart)
    actions = jax.random.uniform(key, (LENGTH * BATCH, 2), minval=-1.0)
    plain = agent.q_values(params["critic"], x.reshape(-1, WIDTH), actions)
    np.testing.assert_array_equal(agent.q_values(params["critic"], whole, actions), plain)
    assert agent.policy(params["actor"], whole).mean.shape == (LENGTH * BATCH, 2)


def test_critics_that_cannot_have_memory_are_refused():
    with pytest.raises(ConfigError, match="critic_torso stands in for all layers of the critics"):
        soft("sac", critic_torso=lambda rngs: Torso(OBS, rlkit.SoftActorCriticConfig()))
    config = rlkit.SoftActorCriticConfig(hidden_sizes=(4,))
    with pytest.raises(ConfigError, match="critic_torso has a memory, but it sees an action"):
        rlkit.soft_actor_critic(OBS, SPACES["box"], config, critic_torso=lambda rngs: Averages())
    with pytest.raises(ConfigError, match="the critics have memory and the actor has none"):
        discrete = rlkit.DiscreteSoftActorCriticConfig(hidden_sizes=(4,))
        rlkit.discrete_soft_actor_critic(
            OBS, SPACES["discrete"], discrete, critic_torso=lambda rngs: Averages()
        )


def test_a_memory_of_integers_is_not_rounded_in_silence():
    def step(memory, x):
        return 0.5 * memory + x, memory

    zeros = jnp.zeros(BATCH, jnp.int32)
    with pytest.raises(TypeError, match="carry"):
        steps_in_a_loop(
            step, lambda _: zeros, zeros, jnp.full((3, BATCH), 1.7), jnp.zeros((3, BATCH), bool)
        )
