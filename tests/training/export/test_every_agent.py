"""Exported functions act as the policy does, for every agent and every kind of space."""

import importlib.util
import json

import jax
import numpy as np
import onnxruntime
import pytest
from gymnasium import spaces
from tiers import by_default
from untrained_policies import ACTIONS, OBSERVATIONS, acts_in, policy_of, vary

from rlkit.action_masks import masked_space
from rlkit.agents.registry import AGENTS
from rlkit.training.export.onnx.conversion import to_onnx
from rlkit.training.export.parity import observations
from rlkit.training.export.policy_function import PolicyFunction
from rlkit.training.export.stablehlo import to_stablehlo

# Of continuous actions, which are at most 4 here. JAX's own actions for a batch and for each of its
# rows alone differ by up to 1.4e-5 with large images, whose sums are the longest.
ROUNDING = 5e-5


def plain_action(agent):
    return "discrete" if acts_in(agent, "discrete") else "box"


# Encoders know nothing of the heads behind them: every kind of observation with one kind of action,
# and every kind of action with two kinds of observations.
CASES = [
    (agent, observation, action)
    for agent in AGENTS
    for action in ACTIONS
    if acts_in(agent, action)
    for observation in OBSERVATIONS
    if action == plain_action(agent) or observation in ("floats", "dict")
]
# What JAX itself writes: the dict holds all kinds of leaves but large images.
OF_WHOLE_SPACES = [case for case in CASES if case[1] in ("floats", "dict", "large image")]
# Each agent with all kinds of leaves at once, and each kind of action; large convolutions once.
DEFAULTS = [
    *((agent, "dict", plain_action(agent)) for agent in AGENTS),
    ("actor_critic", "dict", "multi-discrete"),
    ("actor_critic", "floats", "matrix"),
    ("actor_critic", "floats", "composite"),
    ("q_network", "large image", "discrete"),
]
# Settings that change what acts, of the agents that have them.
SETTINGS = {
    "gSDE": ("soft_actor_critic", "box", {"use_sde": True}),
    "gSDE of an actor-critic": ("actor_critic", "matrix", {"use_sde": True}),
    "pink noise": ("deterministic_actor_critic", "matrix", {"noise_color": "pink"}),
    "one torso": ("actor_critic", "multi-discrete", {"share_torso": True}),
    "dueling": ("q_network", "discrete", {"dueling": True}),
    "flat images": ("actor_critic", "discrete", {"image_encoder": "flatten"}),
    **{
        name: ("actor_critic", "box", {"activation": name})
        for name in ("tanh", "relu", "elu", "gelu", "silu")
    },
}


def function_of(policy):
    """What is exported of a policy."""
    env = policy.env
    return PolicyFunction(
        agent=policy.agent,
        state=policy.state,
        observation_space=env.observation_space,
        action_space=env.action_space,
    )


def loaded_from(folder, loader):
    """The policy of a loader in the folder."""
    spec = importlib.util.spec_from_file_location(loader, folder / f"{loader}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Policy()


def named_inputs(function):
    return [(each.name, each.dtype, each.shape) for each in function.inputs]


def batch_of(function, number):
    """Observations in the dtypes of the environment: an array for each leaf."""
    stats = function.state.obs_stats
    return observations(function.observation_space, function.action_space, stats, number)


def arrays(function, batch):
    """The same in the dtypes of the inputs."""
    return [np.asarray(x, each.dtype) for x, each in zip(batch, function.inputs, strict=True)]


def require_equal(found, wanted):
    """Equal actions, part by part in the same structure."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    jax.tree.map(require_equal_arrays, found, wanted)


def require_equal_arrays(found, wanted):
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype.kind == "i":
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, atol=ROUNDING, rtol=0)


def require_onnx_parity(policy):
    batch = batch_of(function_of(policy), 40)
    wanted = vary(policy, function_of(policy).observation(batch))
    function = function_of(policy)
    names, structure = [each.name for each in function.outputs], jax.tree.structure(wanted)
    model = to_onnx(function.best, named_inputs(function), names)
    session = onnxruntime.InferenceSession(model)
    for number in (40, 5, 1):
        feed = {
            each.name: x[:number]
            for each, x in zip(function.inputs, arrays(function, batch), strict=True)
        }
        found = structure.unflatten(session.run(names, feed))
        require_equal(found, jax.tree.map(lambda x, end=number: x[:end], wanted))


@pytest.mark.parametrize(("agent", "observation", "action"), by_default(DEFAULTS, CASES))
def test_onnx(agent, observation, action):
    require_onnx_parity(policy_of(agent, OBSERVATIONS[observation], ACTIONS[action]))


@pytest.mark.parametrize(
    "name", by_default(["gSDE", "dueling", "one torso", "gelu", "elu"], SETTINGS)
)
def test_onnx_of_settings(name):
    agent, action, settings = SETTINGS[name]
    observation = OBSERVATIONS["small image" if name == "flat images" else "floats"]
    require_onnx_parity(policy_of(agent, observation, ACTIONS[action], **settings))


@pytest.mark.parametrize(
    ("agent", "observation", "action"),
    by_default(
        [("soft_actor_critic", "floats", "box")],
        OF_WHOLE_SPACES,
    ),
)
def test_stablehlo(agent, observation, action):
    """The best actions, and sampled ones of a key."""
    require_stablehlo_parity(policy_of(agent, OBSERVATIONS[observation], ACTIONS[action]))


def require_stablehlo_parity(policy):
    function, key = function_of(policy), jax.random.key(3)
    batch = batch_of(function, 5)
    obs = function.observation(batch)
    inputs, given = named_inputs(function), arrays(function, batch)
    best = jax.export.deserialize(bytearray(to_stablehlo(function.best, inputs)))
    sampled = jax.export.deserialize(
        bytearray(to_stablehlo(function.sampled, inputs, takes_key=True))
    )
    wanted = policy(obs)

    def action(results):
        return jax.tree.structure(wanted).unflatten(map(np.asarray, results))

    require_equal(action(best.call(*given)), wanted)
    one = best.call(*(x[:1] for x in given))
    require_equal(action(one), jax.tree.map(lambda x: x[:1], wanted))
    drawn = action(sampled.call(jax.random.key_data(key), *given))
    require_equal(drawn, policy(obs, deterministic=False, key=key))


@pytest.mark.parametrize("name", [name for name in SETTINGS if "gSDE" in name or "pink" in name])
@pytest.mark.full
def test_stablehlo_samples_with_noise_that_has_a_state(name):
    """As at the start of an episode, which is how a policy samples."""
    agent, action, settings = SETTINGS[name]
    policy = policy_of(agent, OBSERVATIONS["floats"], ACTIONS[action], **settings)
    function, key = function_of(policy), jax.random.key(3)
    (obs,) = batch_of(function, 5)
    artefact = to_stablehlo(function.sampled, named_inputs(function), takes_key=True)
    sampled = jax.export.deserialize(bytearray(artefact))
    drawn = np.asarray(sampled.call(jax.random.key_data(key), obs)[0])
    require_equal(drawn, policy(obs, deterministic=False, key=key))


@pytest.mark.full
def test_the_outputs_are_the_parts_of_an_action(tmp_path):
    """Called by their paths, also in the manifest; the loaders put them together again."""
    policy = policy_of("actor_critic", OBSERVATIONS["floats"], ACTIONS["composite"])
    batch = function_of(policy).observation(batch_of(function_of(policy), 4))
    wanted = vary(policy, batch)
    exported = policy.export(tmp_path / "policy")
    assert [each.kind for each in exported.parity] == ["onnx", "stablehlo", "sampled"]
    about = json.loads((tmp_path / "policy" / "manifest.json").read_text())
    assert [(each["name"], each["path"], each["shape"]) for each in about["outputs"]] == [
        ("action.more.0", ["more", 0], ["batch"]),
        ("action.more.1", ["more", 1], ["batch", 2]),
        ("action.move", ["move"], ["batch", 2]),
    ]
    for loader in ("load_onnx", "load_stablehlo"):
        require_equal(loaded_from(tmp_path / "policy", loader)(batch), wanted)


MASKED = [(name, "discrete") for name in AGENTS if acts_in(name, "discrete")]
MASKED += [("actor_critic", "multi-discrete")]


@pytest.mark.full
@pytest.mark.parametrize(("agent", "action"), MASKED)
def test_a_masked_policy_takes_the_mask(agent, action):
    """As a part of the observation."""
    space = masked_space(OBSERVATIONS["dict"], ACTIONS[action])
    policy = policy_of(agent, space, ACTIONS[action])
    assert "obs.action_mask" in [name for name, *_ in named_inputs(function_of(policy))]
    require_onnx_parity(policy)
    require_stablehlo_parity(policy)


REMEMBERING = [
    ("actor_critic", "box", {"memory": "gru"}),
    ("actor_critic", "discrete", {"memory": "lstm", "share_torso": True}),
    ("actor_critic", "box", {"memory": "gru", "use_sde": True}),
    ("actor_critic", "multi-discrete", {"memory": "min_gru"}),
    ("actor_critic", "composite", {"memory": "gru"}),
    ("normalized_q_network", "discrete", {"memory": "lstm"}),
    ("quantile_network", "discrete", {"memory": "gru"}),
    ("soft_actor_critic", "box", {"memory": "gru"}),
    ("soft_actor_critic", "box", {"memory": "lstm", "use_sde": True}),
    ("discrete_soft_actor_critic", "discrete", {"memory": "min_gru"}),
]


@pytest.mark.full
@pytest.mark.parametrize("case", REMEMBERING)
def test_a_policy_with_memory_takes_and_returns_it(tmp_path, case):
    """The exported folder, whose own check acts twice, and its loaders over an episode and a half:
    what they remember is what `Policy.act` carries.
    """
    agent, action, settings = case
    policy = policy_of(agent, OBSERVATIONS["floats"], ACTIONS[action], memory_size=5, **settings)
    batch = function_of(policy).observation(batch_of(function_of(policy), 4))
    vary(policy, batch)
    exported = policy.export(tmp_path / "policy")
    assert [each.kind for each in exported.parity] == ["onnx", "stablehlo", "sampled"]
    assert {each.observations for each in exported.parity} == {512}  # each of 256 twice
    for loader in ("load_onnx", "load_stablehlo"):
        loaded = loaded_from(tmp_path / "policy", loader)
        first, carry = loaded.start(4), None
        memory, actions = first, []
        for step in range(5):
            restart = np.array([False, step == 3, False, False])
            memory = [
                np.where(restart[:, None], new, x) for x, new in zip(memory, first, strict=True)
            ]
            obs = np.roll(batch, step, axis=0)
            found, memory = loaded(obs, memory)
            wanted, carry = policy.act(obs, carry, restart=restart)
            require_equal(found, wanted)
            actions.append(wanted)
        parts = zip(*map(jax.tree.leaves, actions), strict=True)
        assert all((np.ptp(np.stack(part), axis=0) != 0).any() for part in parts)


@pytest.mark.fast
@pytest.mark.parametrize("low", [0, np.iinfo(np.int64).min])
def test_made_up_integers_are_those_that_a_policy_can_be_given(low):
    """Training takes boxes of wide integers as long as their numbers fit into 32 bits."""
    space = spaces.Box(low, np.iinfo(np.int64).max, (2,), np.int64)
    (drawn,) = observations(space, spaces.Discrete(2), None, 64)
    assert (drawn.shape, drawn.dtype) == ((64, 2), np.int64)
    assert (drawn.astype(np.int32) == drawn).all() and drawn.max() > 2**30
