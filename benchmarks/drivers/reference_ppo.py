"""A plain PPO in a single file without rlkit, the baseline of `regression.py`.

It never changes, so that ratios can be compared between releases. It is tuned only as anybody would
who writes PPO in JAX: one program, `scan` over steps, epochs and minibatches, `vmap` over
environments. Like most such loops it treats time limits as termination.
"""

import itertools
from typing import NamedTuple

import gymnax
import jax
import jax.numpy as jnp
import optax

from common import jitted, serve


class Step(NamedTuple):
    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array


def init_network(key, sizes, last_scale):
    layers = []
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        scale = last_scale if i == len(sizes) - 2 else jnp.sqrt(2.0)
        kernel = jax.nn.initializers.orthogonal(scale)(
            jax.random.fold_in(key, i), (fan_in, fan_out)
        )
        layers.append((kernel, jnp.zeros(fan_out)))
    return layers


def apply_network(layers, x, activation):
    for kernel, bias in layers[:-1]:
        x = activation(x @ kernel + bias)
    kernel, bias = layers[-1]
    return x @ kernel + bias


def build(task):
    env, env_params = gymnax.make(task.env)
    num_actions = env.action_space(env_params).n
    activation = {"tanh": jnp.tanh, "relu": jax.nn.relu}[task.activation]
    batch_size = task.num_envs * task.num_steps
    schedule = optax.linear_schedule(task.learning_rate, 0.0, task.gradient_steps)
    optimizer = optax.chain(
        optax.clip_by_global_norm(task.max_grad_norm), optax.adam(schedule, eps=1e-5)
    )

    def forward(params, obs):
        obs = obs.reshape(obs.shape[0], -1)
        logits = jax.nn.log_softmax(apply_network(params["actor"], obs, activation))
        return logits, apply_network(params["critic"], obs, activation)[:, 0]

    def env_step(carry, key):
        params, state, obs, running = carry
        act_key, step_key = jax.random.split(key)
        logits, value = forward(params, obs)
        action = jax.random.categorical(act_key, logits)
        log_prob = jnp.take_along_axis(logits, action[:, None], axis=1)[:, 0]
        keys = jax.random.split(step_key, task.num_envs)
        next_obs, state, reward, terminated, truncated, _ = jax.vmap(
            env.step, in_axes=(0, 0, 0, None)
        )(keys, state, action, env_params)
        done = terminated | truncated  # if it is set, gymnax has already started a new episode
        running = running + reward
        finished = jnp.where(done, running, 0.0).sum(), done.sum()
        step = Step(obs, action, log_prob, value, reward, done)
        return (params, state, next_obs, jnp.where(done, 0.0, running)), (step, finished)

    def advantages(steps, last_value):
        def back(carry, step):
            advantage, next_value = carry
            alive = 1.0 - step.done
            delta = step.reward + task.gamma * next_value * alive - step.value
            advantage = delta + task.gamma * task.gae_lambda * alive * advantage
            return (advantage, step.value), advantage

        return jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), steps, reverse=True)[1]

    def loss(params, batch):
        step, advantage, target = batch
        logits, value = forward(params, step.obs)
        log_prob = jnp.take_along_axis(logits, step.action[:, None], axis=1)[:, 0]
        ratio = jnp.exp(log_prob - step.log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - task.clip_epsilon, 1 + task.clip_epsilon)
        policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
        near = step.value + jnp.clip(value - step.value, -task.clip_epsilon, task.clip_epsilon)
        value_loss = 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2).mean()
        entropy = -(jnp.exp(logits) * logits).sum(axis=1).mean()
        return policy_loss + task.value_coef * value_loss - task.entropy_coef * entropy

    def minibatch_step(carry, batch):
        params, opt_state = carry
        updates, opt_state = optimizer.update(jax.grad(loss)(params, batch), opt_state)
        return (optax.apply_updates(params, updates), opt_state), None

    def update(carry, _):
        params, opt_state, state, obs, running, key = carry
        key, step_key, shuffle_key = jax.random.split(key, 3)
        start = params, state, obs, running
        (_, state, obs, running), (steps, finished) = jax.lax.scan(
            env_step, start, jax.random.split(step_key, task.num_steps)
        )
        advantage = advantages(steps, forward(params, obs)[1])
        data = jax.tree.map(
            lambda x: x.reshape(batch_size, *x.shape[2:]),
            (steps, advantage, advantage + steps.value),
        )

        def epoch(carry, key):
            order = jax.random.permutation(key, batch_size).reshape(task.num_minibatches, -1)
            batches = jax.tree.map(lambda x: x[order], data)
            return jax.lax.scan(minibatch_step, carry, batches)[0], None

        (params, opt_state), _ = jax.lax.scan(
            epoch, (params, opt_state), jax.random.split(shuffle_key, task.num_epochs)
        )
        return (params, opt_state, state, obs, running, key), jax.tree.map(jnp.sum, finished)

    def train(key):
        key, actor_key, critic_key, reset_key = jax.random.split(key, 4)
        obs, state = jax.vmap(env.reset, in_axes=(0, None))(
            jax.random.split(reset_key, task.num_envs), env_params
        )
        inputs = obs[0].size
        params = {
            "actor": init_network(actor_key, (inputs, *task.hidden, num_actions), 0.01),
            "critic": init_network(critic_key, (inputs, *task.hidden, 1), 1.0),
        }
        carry = params, optimizer.init(params), state, obs, jnp.zeros(task.num_envs), key
        return jax.lax.scan(update, carry, length=task.num_updates)

    return train


def mean_return(task, output):
    """Mean return of the training episodes of the last tenth of the updates."""
    returns, episodes = output[1]
    last = slice(-max(1, task.num_updates // 10), None)
    return float(returns[last].sum() / episodes[last].sum())


if __name__ == "__main__":
    serve(jitted(build), mean_return, packages=("jax", "jaxlib", "optax", "gymnax", "numpy"))
