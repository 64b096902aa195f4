"""PureJaxRL's ppo_rnn.py, from a checkout at PUREJAXRL_PATH."""

import functools
import os
import re
from pathlib import Path
from types import ModuleType

from purejaxrl_ppo import config_of, mean_return_of, prepare, serve_script

WIDTH = "128"  # of all layers in the script, as literals
# The script is written for a Flax of before 0.7.3, whose GRUCell had another interface.
CELL = "nn.GRUCell()", "nn.GRUCell(rnn_state.shape[-1])"
ZEROS = r"nn\.GRUCell\.initialize_carry\([^)]*\), \(batch_size,\), hidden_size\s*\)"


@functools.cache
def import_script(task):
    """The script with layers of the task's width, for a newer Flax."""
    assert task.hidden == (task.memory_size,) * 2, "PureJaxRL's layers are all of one width"
    prepare()
    path = Path(os.environ["PUREJAXRL_PATH"], "purejaxrl", "ppo_rnn.py")
    text = path.read_text().replace(WIDTH, str(task.memory_size))
    assert CELL[0] in text
    text, replaced = re.subn(ZEROS, "jnp.zeros((batch_size, hidden_size))", text.replace(*CELL))
    assert replaced == 1
    script = ModuleType("ppo_rnn")
    exec(compile(text, path, "exec"), vars(script))
    return script


def build(task):
    return import_script(task).make_train(config_of(task))


def mean_return(task, output):
    """Mean return of the training episodes that ended in the last tenth of the updates."""
    return mean_return_of(task, output["metric"])


if __name__ == "__main__":
    serve_script(build, mean_return)
