"""PPO with a loss, a network and an optimiser of your own. Each is an argument; none needs a
subclass.

python examples/own_loss_and_torso.py --total-steps 100000
"""

import jax.numpy as jnp
import optax
import tyro
from flax import nnx

import rlkit
from rlkit.ops import losses


def kl_penalty_loss(agent, params, target_params, batch, key):
    """PPO as in section 4 of its paper: a penalty on the KL divergence instead of clipping.

    Leaves of the batch are [M, ...].
    """
    policy, value = agent.policy_and_value(params, batch.obs)
    log_ratio = policy.log_prob(batch.action) - batch.log_prob
    gain = (jnp.exp(log_ratio) * batch.advantage).mean()
    kl = losses.approximate_kl(log_ratio).mean()
    value_loss = losses.squared_error(value, batch.target).mean()
    return {"loss": -gain + 3.0 * kl + 0.5 * value_loss, "kl": kl, "value_loss": value_loss}


class ResidualTorso(nnx.Module):
    """Observations [B, 4] to features [B, 64], with a skip connection."""

    def __init__(self, rngs: nnx.Rngs):
        orthogonal = rlkit.agents.orthogonal(2**0.5)
        self.first = nnx.Linear(4, 64, kernel_init=orthogonal, rngs=rngs)
        self.second = nnx.Linear(64, 64, kernel_init=orthogonal, rngs=rngs)

    def __call__(self, obs):
        x = nnx.tanh(self.first(obs))
        return x + nnx.tanh(self.second(x))


def main(total_steps: int = 100_000) -> None:
    """Trains on CartPole for `total_steps` environment steps."""
    env = rlkit.make_env("gymnax/CartPole-v1", num_envs=8)
    agent = rlkit.actor_critic(env.observation_space, env.action_space, torso=ResidualTorso)
    algorithm = rlkit.ppo(
        loss=kl_penalty_loss,
        optimizer=optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(1e-3)),
    )
    config = rlkit.TrainerConfig(total_steps=total_steps, num_checkpoints=5)

    with rlkit.Trainer(env, None, agent, algorithm, config) as trainer:
        last = trainer.run(0)[-1]
        metrics = trainer.train_step()
    print(f"return {last['return'].mean():.0f}")
    print(f"our own metrics: kl {metrics['kl']:.4f}, value_loss {metrics['value_loss']:.2g}")


if __name__ == "__main__":
    tyro.cli(main)
