"""The forms in which a loss may return what it computes."""

import jax.numpy as jnp
from jax import Array

from rlkit.errors import ConfigError, require
from rlkit.types import Metrics, PyTree
from rlkit.validation import is_array

ERROR = "td_error"
"""The metric that holds the error of each transition [M], for prioritised replay; never logged."""
AUXILIARY = "auxiliary"
"""The metric that holds what a loss returns beside the scalar, if that is an array."""


def split_loss(output: PyTree) -> tuple[Array, Metrics]:
    """(loss, metrics) from any form that a `LossFn` may return; metrics are scalars by then.

    Those that were arrays are averaged. Raises `ConfigError` for other forms.
    """
    if isinstance(output, dict):
        if "loss" not in output:
            raise ConfigError(
                f"a loss returned a dict with keys {sorted(output)}; put the scalar to minimise"
                ' under "loss"'
            )
        loss, metrics = (
            output["loss"],
            {name: value for name, value in output.items() if name != "loss"},
        )
    elif isinstance(output, tuple) and len(output) == 2 and isinstance(output[1], dict):
        loss, metrics = output
    elif isinstance(output, tuple) and len(output) == 2 and is_array(output[1]):
        loss, metrics = output[0], {AUXILIARY: output[1]}
    elif isinstance(output, tuple):
        raise ConfigError(
            f"a loss returned a tuple of {len(output)}; return a scalar, (loss, metrics dict),"
            " (loss, array) or a dict with 'loss'"
        )
    else:
        loss, metrics = output, {}
    if not _is_number(loss):
        raise ConfigError(
            f"a loss returned {loss!r}; return a scalar, (loss, metrics dict) or a dict with 'loss'"
        )
    if jnp.shape(loss) != ():
        raise ConfigError(
            f"a loss returned an array of shape {jnp.shape(loss)}; reduce it to a scalar, such as"
            " its .mean()"
        )
    if not jnp.issubdtype(jnp.result_type(loss), jnp.floating):
        raise ConfigError(
            f"a loss returned a scalar of {jnp.result_type(loss)}, which has no gradient; make it a"
            " float"
        )
    for name, value in metrics.items():
        if not _is_number(value):
            raise ConfigError(
                f"a loss returned the metric {name!r} as a {type(value).__name__}; return numbers"
                " or arrays as metrics"
            )
        if name == ERROR:
            require(
                jnp.ndim(value) == 1,
                f"a loss returned {ERROR!r} with shape {jnp.shape(value)}",
                "return one for each transition of the batch, [M]",
            )
    return jnp.asarray(loss), {
        name: value if name == ERROR or jnp.shape(value) == () else _mean(value)
        for name, value in metrics.items()
    }


def _mean(value: Array) -> Array:
    """The mean of an array of metrics, in floating point."""
    return jnp.mean(jnp.asarray(value, jnp.result_type(value, float)))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) or is_array(value)
