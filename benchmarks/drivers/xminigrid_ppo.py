"""XLand-MiniGrid's train_single_task.py, from a checkout at XLAND_MINIGRID_PATH."""

import os
import re
import sys
from pathlib import Path
from types import ModuleType

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import orthogonal

from common import jitted, serve


class ActorCriticRNN(nn.Module):
    """rlkit's network with the interface of theirs, and with their GRU."""

    num_actions: int
    hidden: tuple[int, int]
    memory_size: int

    @nn.compact
    def __call__(self, inputs, hidden):
        """Inputs [B, S, ...] and memory [B, 1, M]; the grid [B, S, V, V, 2] is all it looks at."""
        import distrax
        from nn import BatchedRNNModel
        from xminigrid.core.constants import NUM_COLORS, NUM_TILES

        def layer(x, width):
            return nn.relu(nn.Dense(width, kernel_init=orthogonal(2**0.5))(x))

        grid = inputs["obs_img"].astype(jnp.int32)
        tiles = jax.nn.one_hot(grid[..., 0], NUM_TILES)
        colors = jax.nn.one_hot(grid[..., 1], NUM_COLORS)
        x = jnp.concatenate([tiles, colors], axis=-1).reshape(*grid.shape[:2], -1)  # [B, S, O]
        features = layer(x, self.hidden[0])
        memory, hidden = BatchedRNNModel(self.memory_size, 1)(features, hidden)
        x = jnp.concatenate([memory, features], axis=-1)
        logits = nn.Dense(self.num_actions, kernel_init=orthogonal(0.01))(layer(x, self.hidden[1]))
        value = nn.Dense(1, kernel_init=orthogonal(1.0))(layer(x, self.hidden[1]))
        return distrax.Categorical(logits=logits), value[..., 0], hidden

    def initialize_carry(self, batch_size):
        """No memory yet."""
        return jnp.zeros((batch_size, 1, self.memory_size))


def build(task):
    assert task.activation == "relu" and task.clip_value_loss
    scripts = Path(os.environ["XLAND_MINIGRID_PATH"], "training")
    sys.path.insert(0, str(scripts))
    for absent in ("pyrallis", "wandb"):
        sys.modules[absent] = ModuleType(absent)
    sys.modules["pyrallis"].wrap = lambda: lambda main: main
    jax.pmap = jax.vmap  # of one device, whose axis keeps its name
    # From Python 3.11 on, dataclasses refuse arrays as defaults.
    utils = sys.modules["utils"] = ModuleType("utils")
    text = re.sub(r"jnp\.asarray\((.*)\)$", r"\1", (scripts / "utils.py").read_text(), flags=re.M)
    exec(compile(text, scripts / "utils.py", "exec"), vars(utils))
    import train_single_task as script

    script.ActorCriticRNN = lambda num_actions, **_: ActorCriticRNN(
        num_actions, task.hidden, task.memory_size
    )
    nothing = jax.tree.map(jnp.asarray, utils.RolloutStats())
    script.rollout = lambda *_: nothing  # no evaluation after each update
    config = script.TrainConfig(
        env_id=task.env,
        num_envs=task.num_envs,
        num_steps=task.num_steps,
        update_epochs=task.num_epochs,
        num_minibatches=task.num_minibatches,
        total_timesteps=task.env_steps,
        lr=task.learning_rate,
        clip_eps=task.clip_epsilon,
        gamma=task.gamma,
        gae_lambda=task.gae_lambda,
        ent_coef=task.entropy_coef,
        vf_coef=task.value_coef,
        max_grad_norm=task.max_grad_norm,
        eval_episodes=1,
    )
    assert config.num_updates == task.num_updates

    def train(key):
        config.seed = jax.random.bits(key)
        rng, env, params, memory, state = script.make_states(config)
        devices = jax.tree.map(lambda x: jnp.asarray(x)[None], (rng, state, memory))
        return script.make_train(env, params, config)(*devices)["loss_info"]

    return train


if __name__ == "__main__":
    packages = ("jax", "jaxlib", "flax", "optax", "distrax", "xminigrid", "numpy")
    serve(jitted(build), lambda task, output: None, packages=packages, imports=("xminigrid",))
