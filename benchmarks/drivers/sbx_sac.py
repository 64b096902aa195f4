"""SBX's SAC: Stable-Baselines3 with networks and updates in JAX."""

from sb3_ppo import mean_return
from sb3_sac import functions, gradient_steps, settings
from sbx import SAC
from sbx_ppo import PACKAGES, create

from common import prefilled, serve


def build(task):
    model = create(SAC, task, settings(task))
    begun = model.policy.actor_state, model.policy.qf_state, model.ent_coef_state

    def start(seed):
        """The same weights each time, because a new model would compile again."""
        model.set_random_seed(seed)
        model.policy.actor_state, model.policy.qf_state, model.ent_coef_state = begun
        model.replay_buffer.reset()
        model._n_updates = 0
        return model

    return functions(task, start)


if __name__ == "__main__":
    packages = (*PACKAGES, "mujoco")
    serve(prefilled(build), mean_return, packages=packages, gradient_steps=gradient_steps)
