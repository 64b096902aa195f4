"""What every agent of the registry takes: torsos of one's own, and another precision."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algorithm_rows import SMALL_AGENT, known
from flax import linen, nnx
from gymnasium import spaces

from rlkit.agents.actor_critic import actor_critic
from rlkit.agents.configs import ActorCriticConfig
from rlkit.agents.registry import agent_entry, list_agents
from rlkit.errors import ConfigError, SpaceError
from rlkit.lazy import resolve

OBS = spaces.Box(-1.0, 1.0, (3,))
ACTIONS = (spaces.Discrete(3, start=-1), spaces.Box(-2.0, 2.0, (2,)))
NAMES = tuple(list_agents())


def make(name, settings=None, **torsos):
    """The agent `name` with 8 hidden units, for the first kind of actions that it takes."""
    entry = agent_entry(name)
    config = entry.config(**known(entry.config, SMALL_AGENT), **(settings or {}))
    for actions in ACTIONS:
        try:
            return resolve(entry.factory)(OBS, actions, config, **torsos)
        except SpaceError:
            continue
    raise AssertionError(f"{name} takes none of {ACTIONS}")


class Half(nnx.Module):
    """Features [B, 4] of observations [B, 3], or of (observations, actions)."""

    def __init__(self, rngs):
        self.scale = nnx.Param(jax.random.uniform(rngs.params(), (4,)))

    def __call__(self, seen):
        joined = jnp.concatenate(jax.tree.leaves(seen), axis=-1)
        return jnp.tanh(joined.sum(-1, keepdims=True) * self.scale[...])


def shapes(tree):
    return sorted(x.shape for x in jax.tree.leaves(tree))


@pytest.mark.parametrize("name", NAMES)
def test_a_torso_of_ones_own_takes_the_place_of_the_default(name, key):
    factory = resolve(agent_entry(name).factory)
    for which in ("torso", "critic_torso"):
        if which not in inspect.signature(factory).parameters:
            assert which == "critic_torso"
            continue
        agent = make(name, **{which: Half})
        assert agent.custom == (which,)
        params = jax.eval_shape(agent.init, key)
        part = {"torso": "actor", "critic_torso": "critic"}[which]
        changed, kept = (params, {}) if "actor" not in params else (params[part], params)
        assert (3, 8) not in shapes(changed) and (4,) in shapes(changed)
        if kept:
            usual = jax.eval_shape(make(name).init, key)
            other = "critic" if part == "actor" else "actor"
            assert shapes(kept[other]) == shapes(usual[other])
        action, _, _ = jax.eval_shape(
            agent.explore, params, jnp.zeros((5, 3)), (), key, jnp.float32(0.5)
        )
        assert action.shape[0] == 5
    assert make(name).custom == ()


class Recording(Half):
    """Keeps the shapes of what it was given."""

    seen: list = []  # noqa: RUF012

    def __call__(self, inputs):
        Recording.seen.append(jax.tree.map(jnp.shape, inputs))
        return super().__call__(inputs)


@pytest.mark.parametrize("name", [n for n in NAMES if "soft" in n or "deterministic" in n])
def test_critics_of_ones_own_get_actions_where_these_are_continuous(name, monkeypatch):
    monkeypatch.setattr(Recording, "seen", [])
    make(name, critic_torso=Recording)
    given = (2, 3) if name.startswith("discrete") else ((2, 3), (2, 2))
    assert Recording.seen and set(Recording.seen) == {given}
    with pytest.raises(ConfigError, match="the torso fails on a batch of observations"):
        make(name, critic_torso=lambda rngs: lambda seen: seen["no"])
    with pytest.raises(ConfigError, match=r"the torso maps a batch of 2 observations to \(\)"):
        make(name, critic_torso=lambda rngs: lambda inputs: jax.tree.leaves(inputs)[0].sum())


def output(agent, params, obs):
    """What the agent's network computes before it chooses."""
    if hasattr(agent, "policy_and_value"):
        return agent.policy_and_value(params, obs)[1]
    if hasattr(agent, "policy"):
        return agent.policy(params["actor"], obs).mean
    if hasattr(agent, "log_probs"):
        return agent.log_probs(params["actor"], obs)
    if hasattr(agent, "actor"):
        return agent.actor.apply(params["actor"], obs)
    return agent.q_values(params, obs)


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_tells_large_values_apart(name, key):
    """The last layer is not rounded: in bfloat16 there is no number between 200 and 201."""
    exact, rounded = make(name), make(name, {"precision": "bfloat16"})
    obs = np.linspace(-1.0, 1.0, 15, dtype=np.float32).reshape(5, 3)

    def raised(path, x):
        where = jax.tree_util.keystr(path)
        return x + 200.3 if "head" in where and "bias" in where else x

    @jax.jit
    def outputs(key, obs):
        params = jax.tree.map_with_path(raised, exact.init(key))
        return [output(agent, params, obs) for agent in (exact, rounded)]

    wanted, close = outputs(key, obs)
    np.testing.assert_allclose(close, wanted, atol=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_computes_the_same_to_its_precision(name, key):
    """Parameters and outputs stay float32; only what is in between is rounded."""
    exact, rounded = make(name), make(name, {"precision": "bfloat16"})
    obs = np.linspace(-1.0, 1.0, 15, dtype=np.float32).reshape(5, 3)

    @jax.jit
    def outputs(key, obs):
        params = exact.init(key)
        return rounded.init(key), *(output(agent, params, obs) for agent in (exact, rounded))

    params, wanted, close = outputs(key, obs)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(params))
    assert close.dtype == jnp.float32
    np.testing.assert_allclose(close, wanted, atol=0.03 * np.abs(wanted).max())
    assert not np.array_equal(close, wanted)
    assert "bf16" in str(jax.make_jaxpr(lambda o: rounded.exploit(params, o, (), key))(obs))
    assert "bf16" not in str(jax.make_jaxpr(lambda o: exact.exploit(params, o, (), key))(obs))


def test_losses_reach_the_parts_of_a_network(key):
    """A layer that only a loss uses, through the module with the parameters that it is given."""

    class Torso(nnx.Module):
        def __init__(self, rngs):
            self.encode, self.decode = nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)

        def __call__(self, obs):
            return nnx.tanh(self.encode(obs))

    agent = actor_critic(OBS, ACTIONS[1], ActorCriticConfig(share_torso=True), torso=Torso)
    params, obs = agent.init(key), jax.random.normal(key, (5, 3))
    _, (out, value) = agent.network.apply(params["network"], obs)
    _, (same_out, same_value) = agent.network.module(params["network"])(obs)
    np.testing.assert_array_equal(out, same_out)
    np.testing.assert_array_equal(value, same_value)

    def error(params):
        torso = agent.network.module(params["network"]).torso
        return ((torso.decode(torso(obs)) - obs) ** 2).mean()

    found = jax.grad(error)(params)
    reached = {
        "/".join(str(part.key) for part in path)
        for path, x in jax.tree_util.tree_leaves_with_path(found)
        if jnp.abs(x).max() > 0
    }
    wanted = [f"{layer}/{x}" for layer in ("encode", "decode") for x in ("bias", "kernel")]
    assert reached == {f"network/torso/{name}" for name in wanted}


@pytest.mark.parametrize("memory", [None, "gru"])
def test_the_module_of_two_critics_has_both(memory, key):
    critics = make("discrete_soft_actor_critic", {"memory": memory}).critics
    params = critics.init(key)
    both = critics.network.module(params)
    first, second = (nnx.to_pure_dict(nnx.state(each)) for each in (both.first, both.second))
    jax.tree.map(np.testing.assert_array_equal, {"first": first, "second": second}, params)


class OfLinen(linen.Module):
    @linen.compact
    def __call__(self, obs):
        return linen.Dense(4)(obs)


@pytest.mark.parametrize(
    ("torso", "said"),
    [
        (Half(nnx.Rngs(0)), "is a Half that was built already.*torso=Half"),
        (OfLinen, "OfLinen is a module of flax.linen.*nnx.Module"),
        (OfLinen(), "OfLinen is a module of flax.linen.*nnx.Module"),
        (lambda obs: obs, r"torso\(rngs\) must return a module that maps obs"),
    ],
    ids=["built", "linen", "built of linen", "function of observations"],
)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_passed_in_place_of_a_torso(name, torso, said):
    with pytest.raises(ConfigError, match=said):
        make(name, torso=torso)
