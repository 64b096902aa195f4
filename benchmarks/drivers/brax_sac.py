"""brax's SAC on Gymnax's Pendulum, since brax's own environments are different tasks.

brax trains in one call, which compiles, prefills, and reports after each evaluation. Each execution
here is therefore one segment of a single long call, from the end of one evaluation to the end of
the next: the task's number of updates, and one episode in one environment. It continues with the
same learner.
"""

import queue
import threading

import flax.linen
import jax
import jax.numpy as jnp
from brax.envs.base import Env, State
from brax.training.agents.sac import networks
from brax.training.agents.sac.train import train as train_sac

from common import prefilled, serve

STRETCHES = 1000  # more than anybody asks for
EPISODE = 200


class Pendulum(Env):
    observation_size, action_size, backend = 3, 1, "none"

    def reset(self, rng):
        state = jax.random.uniform(
            rng, (2,), minval=jnp.array([-jnp.pi, -1.0]), maxval=jnp.array([jnp.pi, 1.0])
        )
        return State(
            pipeline_state=state,
            obs=self._obs(state),
            reward=jnp.float32(0.0),
            done=jnp.float32(0.0),
        )

    def step(self, state, action):
        theta, speed = state.pipeline_state
        torque = 2.0 * jnp.clip(action[0], -1.0, 1.0)
        angle = (theta + jnp.pi) % (2 * jnp.pi) - jnp.pi
        cost = angle**2 + 0.1 * speed**2 + 0.001 * torque**2
        speed = jnp.clip(speed + 0.05 * (15.0 * jnp.sin(theta) + 3.0 * torque), -8.0, 8.0)
        moved = jnp.stack([theta + 0.05 * speed, speed])
        return state.replace(pipeline_state=moved, obs=self._obs(moved), reward=-cost)

    def _obs(self, state):
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])


def build(task):
    assert task.env == "Pendulum-v1", "this driver supports no other environment"
    reports, goes_on = queue.Queue(), threading.Semaphore(0)

    def report(env_steps, metrics):
        reports.put((env_steps, metrics))
        goes_on.acquire()

    def network(*sizes, **settings):
        activation = getattr(flax.linen, task.activation)
        return networks.make_sac_networks(
            *sizes, hidden_layer_sizes=task.hidden, activation=activation, **settings
        )

    def run(seed):
        try:
            train_long(seed)
        except BaseException as error:  # wakes whoever waits for a report
            reports.put(error)

    def next_report():
        report = reports.get()
        if isinstance(report, BaseException):
            raise report
        return report

    def train_long(seed):
        train_sac(
            environment=Pendulum(),
            num_timesteps=task.prefill_steps + STRETCHES * task.env_steps,
            num_evals=STRETCHES + 1,
            num_eval_envs=1,
            episode_length=EPISODE,
            num_envs=task.num_envs,
            learning_rate=task.learning_rate,
            discounting=task.gamma,
            seed=seed,
            batch_size=task.batch_size,
            tau=task.tau,
            min_replay_size=task.prefill_steps,
            max_replay_size=task.capacity,
            network_factory=network,
            progress_fn=report,
        )

    latest = []  # the latest report

    def begin(seed):
        if not latest:
            threading.Thread(target=run, args=(seed,), daemon=True).start()
            latest.append(next_report())

    def train(_):
        goes_on.release()
        before, latest[0] = latest[0], next_report()
        return before, latest[0]

    return begin, train, train


def mean_return(task, output):
    """Return of the single evaluation episode, with sampled actions."""
    return float(output[1][1]["eval/episode_reward"])


def gradient_steps(output):
    """One per environment step: brax reports these, but not its updates."""
    (before, _), (after, _) = output
    return after - before


if __name__ == "__main__":
    packages = ("brax", "jax", "jaxlib", "flax", "optax", "numpy")
    serve(prefilled(build), mean_return, packages=packages, gradient_steps=gradient_steps)
