"""What off-policy algorithms share: the ratio of gradient to environment steps, extras of agents,
sizes that are refused.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import by_default

from rlkit.agents.configs import ActorCriticConfig, QNetworkConfig, SoftActorCriticConfig
from rlkit.agents.q_network import q_network
from rlkit.algorithms.collectors import Collector
from rlkit.algorithms.configs import DiscreteSACConfig, DQNConfig, PPOConfig, SACConfig
from rlkit.algorithms.dqn import dqn
from rlkit.algorithms.on_policy_batches import Minibatches, OnPolicyBatchBuilder
from rlkit.algorithms.prioritized_replay import PrioritizedReplay
from rlkit.algorithms.replay_batches import ReplayBatchBuilder
from rlkit.algorithms.replay_buffer import UniformReplay
from rlkit.algorithms.target_update import TargetUpdate
from rlkit.envs.registry import make_env
from rlkit.errors import ConfigError
from rlkit.training.core.module import RLModule, iteration
from rlkit.training.logs.announcements import unused_settings

SMALL = {"num_steps": 1, "prefill_steps": 16, "capacity": 64, "batch_size": 4}


def module_of(num_envs=4, agent=None, **settings):
    env = make_env("probe/Discounting", num_envs)
    agent = agent or q_network(
        env.observation_space, env.action_space, QNetworkConfig(hidden_sizes=(8,))
    )
    return RLModule(
        env=env, agent=agent, algorithm=dqn(DQNConfig(**SMALL | settings)), total_steps=1000.0
    )


RATIOS = [(1 / 4096, 1024), (0.1, 4), (0.3, 3), (1 / 3, 4), (0.7, 3), (0.25, 1)]


@pytest.mark.parametrize(
    ("priority_exponent", "ratio", "num_envs"),
    by_default(
        [(0.6, 0.7, 3)],
        [(exponent, *ratio) for exponent in (None, 0.6) for ratio in RATIOS],
    ),
)
def test_any_ratio_of_updates_holds_exactly(key, quick_jit, ratio, num_envs, priority_exponent):
    """After every iteration there were floor(ratio · steps) updates, counted from the
    prefill on.
    """
    module = module_of(
        num_envs,
        updates_per_step=ratio,
        priority_exponent=priority_exponent,
        capacity=max(SMALL["capacity"], num_envs),
    )
    ts = module.init_train_state(key)
    step = quick_jit(lambda ts: iteration(module, ts, jnp.int32(0)))
    prefilled = ts.learner.env_steps.to_int()
    for _ in range(12):
        before, (ts, metrics) = ts, step(ts)
        steps, updates = ts.learner.env_steps.to_int(), ts.learner.updates.to_int()
        assert updates == int(steps * ratio + 1e-9) - int(prefilled * ratio + 1e-9)
        taken = updates > before.learner.updates.to_int()
        assert np.isfinite(metrics["loss"]) == taken and metrics["sum/skipped_updates"] == 0
        moved = any(
            not np.array_equal(a, b)
            for a, b in zip(
                *map(jax.tree.leaves, (before.learner.params, ts.learner.params)), strict=True
            )
        )
        assert moved == taken


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"updates_per_step": 6e-4},
            "updates_per_step=0.0006 is neither 1/n, with n up to 65,536, nor a fraction with a"
            " denominator up to 1000; use 0.00059988",
        ),
        ({"updates_per_step": 1e-5}, "updates_per_step=1e-05 is neither .* use 1.52588e-05"),
        ({"updates_per_step": 1e-30}, "neither 1/n, .* use 1.52588e-05"),
        (
            {"updates_per_step": 0.3333},
            "nor a fraction with a denominator up to 1000; use 0.333333",
        ),
        (
            {"n_step": 20},
            (
                "n_step=20 sums over more steps than the 16 that the replay buffer holds for each"
                " environment; raise"
            ),
        ),
    ],
)
def test_settings_that_do_not_fit_are_told(settings, message):
    with pytest.raises(ConfigError, match=message):
        module_of(**settings)


@pytest.mark.fast
def test_numbers_of_64_bits_are_refused():
    """They would end in an error of JAX's while the first update is traced."""
    with jax.enable_x64(True), pytest.raises(ConfigError, match=r"JAX_ENABLE_X64.*without replay"):
        module_of()


@pytest.mark.fast
@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
@pytest.mark.parametrize(
    "settings",
    [
        *({"capacity": 0}, {"capacity": 10.5}, {"batch_size": -1}, {"n_step": 0}, {"n_step": True}),
        *({"sequence_length": 1}, {"gamma": 1.5}, {"gamma": math.nan}),
    ],
)
def test_replay_buffers_out_of_range_are_refused(kind, settings):
    with pytest.raises(ConfigError, match=rf"{next(iter(settings))}=.* of {kind.__name__}"):
        kind(**{"capacity": 10, "batch_size": 2, "gamma": 0.9} | settings)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *((PrioritizedReplay, {"min_priority": x}) for x in (-1.0, 0.0, math.nan, math.inf)),
        *((Collector, {"num_steps": x}) for x in (0, 1.5, True)),
        *((Collector, x) for x in ({"prefill_steps": -5}, {"reward_discount": 1.5})),
        *((ReplayBatchBuilder, {"updates_per_step": x}) for x in (-1.0, 0.0, math.nan, math.inf)),
        *((Minibatches, x) for x in ({"num_minibatches": 0}, {"num_epochs": 0.5})),
        (Minibatches, {"sequence_length": 0}),
        *((OnPolicyBatchBuilder, x) for x in ({"gamma": math.nan}, {"gae_lambda": 2.0})),
        *((TargetUpdate, {"period": x}) for x in (1.5, True)),
    ],
)
def test_parts_out_of_range_are_refused(kind, settings):
    """Whoever builds an algorithm of parts has no config that is checked."""
    others = {
        PrioritizedReplay: {"capacity": 10, "batch_size": 2, "gamma": 0.9},
        Collector: {"num_steps": 2},
        ReplayBatchBuilder: {"replay_buffer": None},
        OnPolicyBatchBuilder: {"gamma": 0.9, "gae_lambda": 0.9, "minibatches": Minibatches()},
    }
    with pytest.raises(ConfigError, match=rf"{next(iter(settings))}=.* of {kind.__name__}"):
        kind(**others.get(kind, {}) | settings)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("config", "network", "told"),
    [
        (PPOConfig(), {}, []),
        (PPOConfig(), {"log_std_init": -1.0}, ["log_std_init=-1.0 has no effect without gSDE"]),
        (PPOConfig(), {"log_std_init": -1.0, "use_sde": True}, []),
        (DQNConfig(importance_exponent=0.5), {}, ["importance_exponent=0.5 has no effect without"]),
        (DQNConfig(importance_exponent=0.5, priority_exponent=0.6), {}, []),
        (SACConfig(target_entropy=-7.0), {"initial_temperature": 0.5}, []),
        (
            SACConfig(temperature=0.2, target_entropy=-7.0),
            {"initial_temperature": 0.5},
            [
                "target_entropy=-7.0 has no effect with a fixed temperature (0.2)",
                "initial_temperature=0.5 has no effect with a fixed",
            ],
        ),
        (DiscreteSACConfig(temperature=0, target_entropy_ratio=0.3), {}, ["target_entropy_ratio="]),
    ],
)
def test_settings_without_effect_are_told(config, network, told):
    """And not refused: a preset may have set what a flag makes ineffective."""
    kind = ActorCriticConfig if isinstance(config, PPOConfig) else SoftActorCriticConfig
    found = unused_settings(config, kind(**network))
    assert len(found) == len(told)
    assert all(text.startswith(start) for text, start in zip(found, told, strict=True))


@pytest.mark.fast
def test_a_standard_deviation_is_told_of_where_no_action_has_one():
    network = ActorCriticConfig(initial_std=0.5)
    assert unused_settings(PPOConfig(), network) == []
    assert unused_settings(PPOConfig(), network, acts_in_box=False) == [
        "initial_std=0.5 has no effect on discrete actions"
    ]


@pytest.mark.fast
def test_each_of_several_devices_has_as_many_sequences():
    """64 steps in sequences of 20 are 4 of them, on one device and on four together."""
    whole = UniformReplay(capacity=1000, batch_size=64, gamma=0.9, sequence_length=20)
    assert [n * whole.divided(n, "d").num_sequences for n in (1, 2, 4, 8)] == [4, 4, 4, 8]


@dataclasses.dataclass(frozen=True)
class Telling:
    """An agent that adds to each transition what it thought of the observation, in two types."""

    inner: object

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def explore(self, params, obs, carry, key, progress):
        action, carry, _ = self.inner.explore(params, obs, carry, key, progress)
        return action, carry, {"seen": obs + 1.0, "sure": jnp.ones(action.shape, bool)}


@pytest.mark.parametrize("num_steps", by_default([2], [1, 2]))
def test_extras_of_the_agent_are_replayed(key, num_steps):
    """Those of random actions are zero; everything else of a transition stays what it was."""
    plain = module_of(num_steps=num_steps)
    module = module_of(num_steps=num_steps, agent=Telling(plain.agent))

    @jax.jit
    def program(key):
        ts = module.init_train_state(key)
        after, _ = iteration(module, ts, jnp.int32(0))
        batch = module.algorithm.replay_buffer.sample(after.local.memory, key, jnp.float32(0))
        return ts.local.memory.transitions, after.local.memory.transitions, batch

    prefill, new, batch = jax.device_get(program(key))
    without = jax.jit(lambda key: plain.init_train_state(key).local.memory.transitions)(key)
    prefill, without = (
        jax.tree.map(lambda x: x[:4], transitions)
        for transitions in (prefill, jax.device_get(without))
    )
    np.testing.assert_array_equal(prefill.extras["seen"], 0.0)
    jax.tree.map(np.testing.assert_array_equal, prefill.replace(extras={}), without)
    new = jax.tree.map(lambda x: x[4 : 4 + num_steps], new)
    np.testing.assert_array_equal(new.extras["seen"], new.obs + 1.0)
    assert new.extras["sure"].all()
    assert batch.extras["seen"].shape == batch.obs.shape


def test_what_does_not_fit_the_memory_is_told(key):
    """Rather than written over the next field; numbers of another type are cast."""
    module = module_of()
    ts, (rollout, _) = jax.jit(
        lambda key: module.get_batch(module.init_train_state(key), jnp.int32(0))
    )(key)
    add = jax.jit(module.algorithm.replay_buffer.add)
    whole = rollout.replace(reward=np.full(rollout.reward.shape, 5, np.int32))
    reward = jax.jit(lambda memory: memory.transitions.reward)(add(ts.local.memory, whole))
    assert (np.asarray(reward)[4] == 5.0).all()
    for wrong in (
        rollout.replace(extras={"seen": rollout.obs}),
        rollout.replace(obs=np.asarray(rollout.obs)[..., :0]),
    ):
        with pytest.raises(ConfigError, match="the replay buffer was made for"):
            add(ts.local.memory, wrong)
