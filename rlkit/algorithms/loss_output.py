"""The forms in which a loss may return what it computes."""

import jax.numpy as jnp
from jax import Array

from rlkit.errors import ConfigError, require
from rlkit.types import Metrics, PyTree
from rlkit.validation import is_array

ERROR = "td_error"
"""The metric that holds the error of each transition [M], for prioritised replay; never logged."""


def split_loss(output: PyTree) -> tuple[Array, Metrics]:
    """(loss, metrics) from any form that a `LossFn` may return. Raises `ConfigError` for others."""
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
    elif isinstance(output, tuple):
        raise ConfigError(
            f"a loss returned a tuple of {len(output)}; return a scalar, (loss, metrics dict) or a"
            " dict with 'loss'"
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
                f"a loss returned the metric {name!r} as a {type(value).__name__}; return scalars"
                " as metrics"
            )
        if name == ERROR:
            require(
                jnp.ndim(value) == 1,
                f"a loss returned {ERROR!r} with shape {jnp.shape(value)}",
                "return one for each transition of the batch, [M]",
            )
        elif jnp.shape(value) != ():
            raise ConfigError(
                f"a loss returned the metric {name!r} with shape {jnp.shape(value)}; reduce it to a"
                " scalar, such as its .mean()"
            )
    return jnp.asarray(loss), metrics


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) or is_array(value)
