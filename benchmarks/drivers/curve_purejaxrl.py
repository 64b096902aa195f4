"""The learning curves of PureJaxRL's ppo.py, ppo_rnn.py and dqn.py.

dqn.py replaces the key of a run by that of seed 0 when it has drawn the first observations, so
that all runs share their first weights and all draws. Here that key is the seed's too.
"""

from unittest import mock

import jax
import purejaxrl_dqn
import purejaxrl_ppo
import purejaxrl_ppo_rnn
from curve_episodes import CountsEpisodes, curve
from curve_serving import serve


def trainer(task):
    """A function of a seed."""
    if not hasattr(jax, "tree_map"):  # removed from newer jax; dqn.py calls it once
        jax.tree_map = jax.tree.map
    driver, script = {
        "ppo": lambda: (purejaxrl_ppo, purejaxrl_ppo.import_script("ppo")),
        "dqn": lambda: (purejaxrl_dqn, purejaxrl_ppo.import_script("dqn")),
        "recurrent_ppo": lambda: (purejaxrl_ppo_rnn, purejaxrl_ppo_rnn.import_script(task)),
    }[task.kind[0]]()
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
