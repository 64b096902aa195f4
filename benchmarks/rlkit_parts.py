"""Shared by rlkit's drivers: the components for a task, and a bare Trainer."""

import dataclasses
import math

import gymnasium
import numpy as np

import rlkit

# rlkit imports its modules, and they their libraries, on first use.
IMPORTS = (
    "distrax",
    "gymnax",
    "rlkit.agents.actor_critic",
    "rlkit.agents.q_network",
    "rlkit.agents.soft_actor_critic",
    "rlkit.algorithms.dqn",
    "rlkit.algorithms.ppo",
    "rlkit.algorithms.sac",
    "rlkit.envs.jittable.gymnax",
    "rlkit.envs.registry",
    "rlkit.training.trainer",
)
PACKAGES = ("rlkit", "jax", "jaxlib", "flax", "optax", "distrax", "gymnax", "numpy")
OUTER_ITERATIONS = 10
FACTORIES = {
    "ppo": (rlkit.actor_critic, rlkit.ppo),
    "convolutional_ppo": (rlkit.actor_critic, rlkit.ppo),
    "recurrent_ppo": (rlkit.actor_critic, rlkit.ppo),
    "a2c": (rlkit.actor_critic, rlkit.a2c),
    "pqn": (rlkit.normalized_q_network, rlkit.pqn),
    "sac": (rlkit.soft_actor_critic, rlkit.sac),
    "td3": (rlkit.deterministic_actor_critic, rlkit.td3),
    "dqn": (rlkit.q_network, rlkit.dqn),
}


def outer_iterations_of(task):
    """Number of outer iterations for the whole task: ten, if that divides its updates."""
    return math.gcd(task.num_updates, OUTER_ITERATIONS)


def parts(task, **changes):
    """Environment, agent and algorithm.

    `changes` are settings of the agent or the algorithm to try. `time_limits_terminate=True`, on
    gymnax, takes time limits for terminations, as PureJaxRL and rejax do; `purejaxrl_memory=True`
    gives a recurrent agent the network of PureJaxRL.
    """
    env = rlkit.make_env(f"{task.suite}/{task.env}", task.num_envs)
    if task.suite == "navix":  # its own PPO sees codes too
        env = rlkit.vectorize(Codes(env.env), task.num_envs)
    if changes.pop("time_limits_terminate", False):
        env = rlkit.vectorize(TimeLimitsTerminate(env.env), task.num_envs)
    name = task.kind[0]
    others_network = changes.pop("purejaxrl_memory", False)
    network, config = SETTINGS[name](task)
    network, config = (_changed(part, changes) for part in (network, config))
    assert not changes, f"neither agent nor algorithm has {', '.join(changes)}"
    make_agent, make_algorithm = FACTORIES[name]
    agent = make_agent(env.observation_space, env.action_space, network)
    if others_network:
        from purejaxrl_memory import as_purejaxrl  # few benchmarks need what it imports

        agent = as_purejaxrl(agent, task, env.observation_space)
    return env, agent, make_algorithm(config)


@dataclasses.dataclass(frozen=True)
class Changed:
    """An environment in JAX; those below differ from it in something."""

    env: object

    def __getattr__(self, name):
        return getattr(self.env, name)

    def replace_params(self, params):
        """As the environment's own."""
        return type(self)(self.env.replace_params(params))

    def reset(self, key):
        """As the environment's own."""
        return self.env.reset(key)


@dataclasses.dataclass(frozen=True)
class Codes(Changed):
    """Its grid of codes is observed as numbers, of which networks make no one-hot vectors."""

    @property
    def observation_space(self):
        """A flat Box."""
        values = self.env.observation_space.nvec.ravel()
        return gymnasium.spaces.Box(0, values - 1, dtype=np.float32)

    def reset(self, key):
        """As the environment's own, but for the observation."""
        state, obs = self.env.reset(key)
        return state, obs.ravel().astype(np.float32)

    def step(self, key, state, action):
        """As the environment's own, but for the observation."""
        state, obs, *rest = self.env.step(key, state, action)
        return state, obs.ravel().astype(np.float32), *rest


@dataclasses.dataclass(frozen=True)
class TimeLimitsTerminate(Changed):
    """Its time limits are reported as terminations."""

    def step(self, key, state, action):
        """As the environment's own, but for the flags."""
        state, obs, reward, terminated, truncated, info = self.env.step(key, state, action)
        return state, obs, reward, terminated | truncated, truncated & False, info


def _changed(config, changes):
    """The config with those of the changes that it has, which are taken out."""
    names = [field.name for field in dataclasses.fields(config) if field.name in changes]
    return dataclasses.replace(config, **{name: changes.pop(name) for name in names})


def bare_trainer(task, env, agent, algorithm, *, outer_iterations=1, **settings):
    """A `Trainer` that runs the whole task without evaluation, logs and checkpoints."""
    config = rlkit.TrainerConfig(
        num_checkpoints=outer_iterations,
        epochs_per_checkpoint=task.num_updates // outer_iterations,
        enable_evaluation=False,
        debug=False,
        **settings,
    )
    return rlkit.Trainer(env, None, agent, algorithm, config)


def mean_return_of(return_sum, episodes):
    """Mean return over all seeds; None if no episode ended."""
    return float(return_sum.sum() / episodes.sum()) if episodes.sum() else None


def _ppo(task):
    network = rlkit.ActorCriticConfig(
        hidden_sizes=task.hidden, activation=task.activation, image_encoder="flatten"
    )
    return network, _named_alike(rlkit.PPOConfig, task, learning_rate_schedule="linear")


def _convolutional_ppo(task):
    network, config = _ppo(task)
    return dataclasses.replace(network, image_encoder="cnn"), config


def _recurrent_ppo(task):
    network, config = _ppo(task)
    memory = {"memory": "gru", "memory_size": task.memory_size, "share_torso": True}
    return dataclasses.replace(network, **memory), config


def _a2c(task):
    network = rlkit.ActorCriticConfig(hidden_sizes=task.hidden, activation=task.activation)
    return network, _named_alike(rlkit.A2CConfig, task)


def _pqn(task):
    return rlkit.NormalizedQNetworkConfig(**_q_network(task)), _named_alike(rlkit.PQNConfig, task)


def _sac(task):
    network = rlkit.SoftActorCriticConfig(hidden_sizes=task.hidden, activation=task.activation)
    return network, _off_policy(rlkit.SACConfig, task)


def _td3(task):
    network = rlkit.DeterministicActorCriticConfig(
        hidden_sizes=task.hidden,
        activation=task.activation,
        exploration_noise=task.exploration_noise,
    )
    return network, _off_policy(rlkit.TD3Config, task)


def _dqn(task):
    network = rlkit.QNetworkConfig(**_q_network(task))
    return network, _off_policy(rlkit.DQNConfig, task, double=False)


def _q_network(task):
    return {
        "hidden_sizes": task.hidden,
        "activation": task.activation,
        "epsilon_start": task.epsilon_start,
        "epsilon_end": task.epsilon_end,
        "exploration_fraction": task.exploration_fraction,
    }


def _off_policy(kind, task, **others):
    ratio = task.gradient_steps / task.env_steps
    return _named_alike(kind, task, updates_per_step=ratio, **others)


def _named_alike(kind, task, **others):
    """A config with the task's numbers, for those that both have, and `others`."""
    names = [field.name for field in dataclasses.fields(kind) if hasattr(task, field.name)]
    return kind(**{name: getattr(task, name) for name in names}, **others)


SETTINGS = {
    "ppo": _ppo,
    "convolutional_ppo": _convolutional_ppo,
    "recurrent_ppo": _recurrent_ppo,
    "a2c": _a2c,
    "pqn": _pqn,
    "sac": _sac,
    "td3": _td3,
    "dqn": _dqn,
}
