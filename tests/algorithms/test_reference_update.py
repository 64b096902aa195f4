"""One PPO update, written again as plainly as possible: loops, NumPy, no import of
rlkit's maths.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from tiers import by_default

from rlkit.algorithms.a2c import a2c
from rlkit.algorithms.configs import A2CConfig, PPOConfig
from rlkit.algorithms.ppo import ppo


def network(net, x):
    """Dense layers with tanh, the last one linear."""
    for layer in net["torso"]["mlp"]["layers"].values():
        x = jnp.tanh(x @ layer["kernel"] + layer["bias"])
    return x @ net["head"]["kernel"] + net["head"]["bias"]


def log_prob_and_entropy(params, obs, action):
    out = network(params["network"]["actor"], obs)
    if "log_std" in params["head"]:
        std = jnp.exp(params["head"]["log_std"])
        log_prob = (
            -0.5 * ((action - out) / std) ** 2 - jnp.log(std) - 0.5 * np.log(2 * np.pi)
        ).sum(-1)
        return log_prob, (jnp.log(std) + 0.5 * np.log(2 * np.pi * np.e)).sum()
    log_p = out - jnp.log(jnp.exp(out).sum(-1, keepdims=True))
    return log_p[jnp.arange(len(action)), action], -(jnp.exp(log_p) * log_p).sum(-1).mean()


def values(params, obs):
    return network(params["network"]["critic"], obs)[..., 0]


def advantages(config, params, rollout):
    """GAE, one environment and one step at a time; a truncated step bootstraps from its own final
    observation.
    """
    num_steps, num_envs = rollout.reward.shape
    advantage = np.zeros((num_steps, num_envs))
    value, successor = (
        np.asarray(jax.jit(values)(params, obs), np.float64)
        for obs in (rollout.obs, rollout.next_obs)
    )
    for n in range(num_envs):
        tail = 0.0
        for t in reversed(range(num_steps)):
            terminated, truncated = bool(rollout.terminated[t, n]), bool(rollout.truncated[t, n])
            if terminated or truncated:
                tail = 0.0
            bootstrap = 0.0 if terminated else config.gamma * successor[t, n]
            tail = (
                float(rollout.reward[t, n])
                + bootstrap
                - value[t, n]
                + config.gamma * config.gae_lambda * tail
            )
            advantage[t, n] = tail
    return advantage, value


def ppo_objective(config, params, batch):
    log_prob, entropy = log_prob_and_entropy(params, batch["obs"], batch["action"])
    ratio = jnp.exp(log_prob - batch["log_prob"])
    a = batch["advantage"]
    policy = (
        jnp.where(
            a > 0,
            jnp.minimum(ratio, 1 + config.clip_epsilon),
            jnp.maximum(ratio, 1 - config.clip_epsilon),
        )
        * a
    )
    value = values(params, batch["obs"])
    clipped = jnp.clip(
        value, batch["value"] - config.clip_epsilon, batch["value"] + config.clip_epsilon
    )
    error = jnp.maximum((value - batch["target"]) ** 2, (clipped - batch["target"]) ** 2)
    return -policy.mean() + config.value_coef * 0.5 * error.mean() - config.entropy_coef * entropy


def a2c_objective(config, params, batch):
    log_prob, entropy = log_prob_and_entropy(params, batch["obs"], batch["action"])
    error = (values(params, batch["obs"]) - batch["target"]) ** 2
    return (
        -(log_prob * batch["advantage"]).mean()
        + config.value_coef * error.mean()
        - config.entropy_coef * entropy
    )


class Adam:
    def __init__(self, leaves):
        self.m, self.v, self.t = [0.0 * x for x in leaves], [0.0 * x for x in leaves], 0

    def step(self, g, epsilon):
        self.t += 1
        self.m = [0.9 * m + 0.1 * x for m, x in zip(self.m, g, strict=True)]
        self.v = [0.999 * v + 0.001 * x**2 for v, x in zip(self.v, g, strict=True)]
        pairs = zip(self.m, self.v, strict=True)
        return [
            (m / (1 - 0.9**self.t)) / (np.sqrt(v / (1 - 0.999**self.t)) + epsilon) for m, v in pairs
        ]


class RMSProp:
    def __init__(self, leaves):
        self.v = [0.0 * x for x in leaves]

    def step(self, g, epsilon):
        self.v = [0.99 * v + 0.01 * x**2 for v, x in zip(self.v, g, strict=True)]
        return [x / (np.sqrt(v) + epsilon) for x, v in zip(g, self.v, strict=True)]


def reference(config, params, rollout, plan, progress, objective, rule):
    """The parameters after one update; `plan` lists the samples of every minibatch."""
    advantage, value = advantages(config, params, rollout)
    flat_obs, flat_action = (x.reshape(-1, *x.shape[2:]) for x in (rollout.obs, rollout.action))
    samples = {
        "obs": flat_obs,
        "action": flat_action,
        "log_prob": np.asarray(jax.jit(log_prob_and_entropy)(params, flat_obs, flat_action)[0]),
        "value": value.ravel().astype(np.float32),
        "advantage": advantage.ravel(),
        "target": (advantage + value).ravel().astype(np.float32),
    }
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda x: np.asarray(x, np.float64), params))
    optimizer = rule(leaves)
    gradient = jax.jit(jax.grad(lambda p, b: objective(config, p, b)))
    for index in plan:
        batch = {name: x[index] for name, x in samples.items()}
        if config.normalize_advantages:
            batch["advantage"] = (batch["advantage"] - batch["advantage"].mean()) / (
                batch["advantage"].std() + 1e-8
            )
        batch["advantage"] = batch["advantage"].astype(np.float32)
        current = jax.tree.unflatten(structure, [x.astype(np.float32) for x in leaves])
        g = [np.asarray(x, np.float64) for x in jax.tree.leaves(gradient(current, batch))]
        norm = np.sqrt(sum((x**2).sum() for x in g))
        g = [x * min(1.0, config.max_grad_norm / norm) for x in g]
        rate = config.learning_rate * (
            1.0 - progress if config.learning_rate_schedule == "linear" else 1.0
        )
        leaves = [
            x - rate * d
            for x, d in zip(leaves, optimizer.step(g, config.optimizer_epsilon), strict=True)
        ]
    return jax.tree.unflatten(structure, leaves)


ACTIONS = {"discrete": spaces.Discrete(2), "box": spaces.Box(-0.5, 0.5, (2,))}
PPO = PPOConfig(
    num_steps=16,
    num_epochs=3,
    num_minibatches=4,
    learning_rate=0.02,
    gamma=0.9,
    gae_lambda=0.8,
    max_grad_norm=0.1,
)
A2C = A2CConfig(
    num_steps=16, learning_rate=0.02, gamma=0.9, gae_lambda=0.8, entropy_coef=0.1, max_grad_norm=0.1
)
CASES = {"ppo": (ppo, PPO, ppo_objective, Adam), "a2c": (a2c, A2C, a2c_objective, RMSProp)}


@pytest.mark.parametrize(
    ("name", "actions"),
    by_default(
        [("ppo", "discrete"), ("a2c", "box")],
        [(name, space) for name in CASES for space in ACTIONS],
    ),
)
def test_update_equals_the_plain_one(key, make_env, make_agent, quick_jit, name, actions):
    factory, config, objective, rule = CASES[name]
    env = make_env(action_space=ACTIONS[actions])
    agent, algorithm = make_agent(env), factory(config)
    # Not `key` itself, with which the twelve steps of a head's bias happen to end where they began.
    init_key, update_key = jax.random.split(jax.random.fold_in(key, 1))

    @quick_jit
    def program():
        state = algorithm.init(agent, env, init_key, total_steps=160.0)
        # A quarter of the run is over.
        learner = state.learner.replace(env_steps=state.learner.env_steps.add(40))
        after, rollout, _ = algorithm.collect(agent, env, state.replace(learner=learner))
        builder = algorithm.batch_builder
        dataset = builder.ingest(agent, after.learner, (), rollout)[1]
        plan = builder.draw(dataset, jax.random.split(update_key)[0]).batches
        after, _, metrics = algorithm.update(agent, after.learner, (), rollout, update_key)
        return learner.params, rollout, plan, after, metrics

    params, rollout, plan, learner, metrics = jax.device_get(program())
    ends = rollout.terminated & ~rollout.truncated, rollout.truncated & ~rollout.terminated
    # The rollout holds both kinds of end, and not only in its last row.
    assert all(bool(end[:-1].any()) for end in ends)

    epochs, size = (3, 64) if name == "ppo" else (1, 64)
    for order in plan.reshape(epochs, -1):
        np.testing.assert_array_equal(np.sort(order), np.arange(size))  # every sample once an epoch

    wanted = reference(config, params, rollout, plan, 0.25, objective, rule)
    for (path, found), one, before in zip(
        jax.tree.leaves_with_path(learner.params),
        jax.tree.leaves(wanted),
        jax.tree.leaves(params),
        strict=True,
    ):
        np.testing.assert_allclose(
            found, one, rtol=1e-5, atol=1e-5, err_msg=jax.tree_util.keystr(path)
        )
        assert np.abs(found - before).max() > 1e-3  # and it did move
    rate = config.learning_rate * (0.75 if name == "ppo" else 1.0)
    np.testing.assert_allclose(metrics["learning_rate"], rate, rtol=1e-6)
    assert (learner.env_steps.to_int(), learner.updates.to_int()) == (40 + 64, len(plan))
