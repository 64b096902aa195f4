"""The A2C of `jumanji.training`, with networks and an optimiser as ours."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from common import jitted, serve


def build(task):
    import jumanji
    from jumanji.training.agents.a2c import A2CAgent
    from jumanji.training.types import ActingState, TrainingState
    from jumanji.wrappers import VmapAutoResetWrapper

    env = VmapAutoResetWrapper(jumanji.make(task.env))
    agent = A2CAgent(
        env=env,
        n_steps=task.num_steps,
        total_batch_size=task.num_envs,
        actor_critic_networks=networks(task, env.action_spec.num_values),
        optimizer=optimizer(task),
        normalize_advantage=False,
        discount_factor=task.gamma,
        bootstrapping_factor=task.gae_lambda,
        l_pg=1.0,
        l_td=task.value_coef,
        l_en=task.entropy_coef,
    )

    def train(key):
        # What `setup_training_state` and `epoch_fn` do; it has keys of the old kind.
        params_key, reset_key, key = jax.random.split(jax.random.key_data(key), 3)
        env_state, timestep = env.reset(jax.random.split(reset_key, task.num_envs))
        zero = jnp.float32(0)
        acting = ActingState(env_state, timestep, key, episode_count=zero, env_step_count=zero)
        state = TrainingState(params_state=agent.init_params(params_key), acting_state=acting)
        return jax.lax.scan(lambda state, _: agent.run_epoch(state), state, None, task.num_updates)

    # The agent adds gradients over an axis of this name, which it runs on by pmap.
    mesh, alike = Mesh(jax.devices()[:1], "devices"), PartitionSpec()
    return jax.shard_map(train, mesh=mesh, in_specs=alike, out_specs=alike, check_vma=False)


def networks(task, num_actions):
    """Actor and critic with the task's layers, for which codes become one-hot vectors."""
    import haiku as hk
    from jumanji.training.networks.actor_critic import ActorCriticNetworks, FeedForwardNetwork
    from jumanji.training.networks.parametric_distribution import CategoricalParametricDistribution

    activation = {"relu": jax.nn.relu, "tanh": jnp.tanh}[task.activation]

    def network(size):
        def apply(observation):
            board = jax.nn.one_hot(observation.board, CODES)
            flat = board.reshape(len(board), -1)
            outputs = hk.nets.MLP((*task.hidden, size), activation=activation)(flat)
            if size == 1:
                return outputs.squeeze(-1)
            return jnp.where(observation.action_mask, outputs, jnp.finfo(jnp.float32).min)

        return FeedForwardNetwork(*hk.without_apply_rng(hk.transform(apply)))

    return ActorCriticNetworks(
        policy_network=network(num_actions),
        value_network=network(1),
        parametric_action_distribution=CategoricalParametricDistribution(num_actions=num_actions),
    )


def optimizer(task):
    """RMSprop as in Stable-Baselines3's A2C, of clipped gradients."""
    import optax

    return optax.chain(
        optax.clip_by_global_norm(task.max_grad_norm),
        optax.rmsprop(task.learning_rate, decay=0.99, eps=1e-5),
    )


CODES = 32  # of a square, as in rlkit's space

if __name__ == "__main__":
    packages = ("jax", "jaxlib", "dm-haiku", "optax", "rlax", "jumanji", "numpy")
    imports = ("jumanji", "haiku", "rlax")
    serve(jitted(build), lambda task, output: None, packages=packages, imports=imports)
