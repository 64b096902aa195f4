"""Generalised state-dependent exploration (gSDE).

Raffin et al. 2021, "Smooth Exploration for Robotic Reinforcement Learning".
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.agents.configs import ActorCriticConfig, SoftActorCriticConfig
from rlkit.ops.rows import where_rows
from rlkit.spaces import Space
from rlkit.types import Key, NoiseState, Params
from rlkit.xla_cpu.matmul import matmul

EPSILON = 1e-6  # Stable-Baselines3's, added to variances


@dataclasses.dataclass(frozen=True)
class StateDependentNoise:
    """Noise that is a linear function of the policy's last hidden features, for a while the same.

    action = mean + features @ matrix, with matrix ~ N(0, std²) [features, A] (eq. 8 of the paper).
    Averaged over matrices, an action is distributed as N(mean, features² @ std²) (eq. 9), from
    which losses take log-probs and samples. The std is learned, log_std being a parameter.

    Follows Stable-Baselines3's `StateDependentNoiseDistribution`, with a std of its own for each
    feature and action, its logarithm unbounded. Differs in when the matrix is drawn: every
    `sample_freq` steps of an environment's own episode, None: where one starts.
    (Stable-Baselines3 counts the steps of a rollout, and also draws at its start.) As there, the
    matrix has the std of the policy that drew it, also after updates.

    With `learn_features`, gradients of the std flow into the features too.
    """

    num_features: int
    num_outputs: int  # A, the size of an action
    sample_freq: int | None
    log_std_init: float
    learn_features: bool

    def init_params(self) -> Params:
        """{"log_std": [features · A]}, flat: weight decay and Muon take matrices for weights."""
        size = self.num_features * self.num_outputs
        return {"log_std": jnp.full((size,), self.log_std_init, jnp.float32)}

    def initial_carry(self, num_envs: int) -> NoiseState:
        """A state of age 0, whose matrices [N, features, A] are yet to be drawn."""
        return NoiseState(
            age=jnp.zeros(num_envs, jnp.int32),
            values=jnp.zeros((num_envs, self.num_features, self.num_outputs)),
        )

    def draw(
        self, carry: NoiseState, key: Key, params: Params, features: Array
    ) -> tuple[Array, NoiseState]:
        """The noise of a step, [N, A], for features [N, features]; the key is consumed."""
        age, matrices = carry.age, carry.values
        due = age == 0 if self.sample_freq is None else age % self.sample_freq == 0

        def drawn() -> Array:
            new = jnp.exp(self._log_std(params)) * jax.random.normal(key, matrices.shape)
            return where_rows(due, new, matrices)

        matrices = jax.lax.cond(due.any(), drawn, lambda: matrices)
        noise = (features[:, :, None] * matrices).sum(1)
        return noise, NoiseState(age=age + 1, values=matrices)

    def std(self, params: Params, features: Array) -> Array:
        """The standard deviation of actions, [B, A], for features [B, features]."""
        if not self.learn_features:
            features = jax.lax.stop_gradient(features)
        variance = matmul(jnp.square(features), jnp.exp(2.0 * self._log_std(params)))
        return jnp.sqrt(variance + EPSILON)

    def _log_std(self, params: Params) -> Array:
        return params["log_std"].reshape(self.num_features, self.num_outputs)


def state_dependent_noise(
    config: ActorCriticConfig | SoftActorCriticConfig,
    num_features: int,
    space: Space,
    *,
    learn_features: bool,
) -> StateDependentNoise:
    """gSDE as an agent's config describes it, for actions of `space`."""
    return StateDependentNoise(
        num_features=num_features,
        num_outputs=math.prod(space.shape or ()),
        sample_freq=config.sde_sample_freq,
        log_std_init=config.log_std_init,
        learn_features=learn_features,
    )
