"""PureJaxRL's dqn.py, from a checkout at PUREJAXRL_PATH; its program includes the prefill."""

import jax
from purejaxrl_ppo import import_script, serve_script


def build(task):
    config = {
        "ENV_NAME": task.env,
        "NUM_ENVS": task.num_envs,
        "BUFFER_SIZE": task.capacity,
        "BUFFER_BATCH_SIZE": task.batch_size,
        "TOTAL_TIMESTEPS": task.total_steps,
        "LEARNING_STARTS": task.prefill_steps,
        "TRAINING_INTERVAL": task.num_envs,
        "LR": task.learning_rate,
        "LR_LINEAR_DECAY": False,
        "GAMMA": task.gamma,
        "TAU": 1.0,
        "TARGET_UPDATE_INTERVAL": task.target_period,
        "EPSILON_START": task.epsilon_start,
        "EPSILON_FINISH": task.epsilon_end,
        "EPSILON_ANNEAL_TIME": task.total_steps * task.exploration_fraction,
    }
    assert task.hidden == (120, 84) and task.activation == "relu", (
        "PureJaxRL's Q-network has a fixed size"
    )
    if not hasattr(jax, "tree_map"):  # removed from newer jax; dqn.py calls it once
        jax.tree_map = jax.tree.map
    return import_script("dqn").make_train(config)


def mean_return(task, output):
    """Mean of the environments' last finished episodes, over the last tenth of the updates."""
    return float(output["metrics"]["returns"][-max(1, task.num_updates // 10) :].mean())


def gradient_steps(output):
    return int(output["metrics"]["updates"][-1])


if __name__ == "__main__":
    serve_script(build, mean_return, library="flashbax", gradient_steps=gradient_steps)
