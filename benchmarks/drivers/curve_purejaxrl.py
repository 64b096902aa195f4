"""The learning curves of PureJaxRL's ppo.py and dqn.py.

dqn.py replaces the key of a run by that of seed 0 when it has drawn the first observations, so
that all runs share their first weights and all draws. Here that key is the seed's too.
"""

from unittest import mock

import jax
import purejaxrl_dqn
import purejaxrl_ppo
from curve_episodes import CountsEpisodes, curve
from curve_serving import serve


def trainer(task):
    """A function of a seed."""
    name, driver = {"ppo": ("ppo", purejaxrl_ppo), "dqn": ("dqn", purejaxrl_dqn)}[task.kind[0]]
    if not hasattr(jax, "tree_map"):  # removed from newer jax; dqn.py calls it once
        jax.tree_map = jax.tree.map
    script = purejaxrl_ppo.import_script(name)
    log = script.LogWrapper
    script.LogWrapper = lambda env: log(CountsEpisodes(env, task))
    train = driver.build(task)

    @jax.jit
    def program(key):
        own = jax.random.fold_in(key, 0)
        with mock.patch.object(jax.random, "PRNGKey", lambda seed: own):
            return curve(train(key)["runner_state"])

    return lambda seed: jax.block_until_ready(program(jax.random.key(seed)))


if __name__ == "__main__":
    serve(trainer, ("jax", "jaxlib", "flax", "optax", "distrax", "flashbax", "gymnax"))
