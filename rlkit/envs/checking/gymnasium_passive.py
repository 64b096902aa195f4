"""Gymnasium's own checker, its assertions and warnings as findings that say why they matter and
what to do.
"""

import re
import warnings
from collections.abc import Iterator

import gymnasium
from gymnasium.utils import env_checker, passive_env_checker

from rlkit.envs.checking.gymnasium_rollout import raised
from rlkit.envs.checking.gymnasium_seeding import SEEDING
from rlkit.envs.jittable.contract import Finding

RENDER = (
    "return an array [height, width, 3] of uint8 from render() where render_mode is 'rgb_array'"
)

# What rlkit's own checks look at in every step and after every reset, or what does not matter here.
# (part of the message)
COVERED = (
    # one trains on the wrapped environment, so that is what is checked
    "is different from the unwrapped version",
    "minimum value is -infinity",  # of observations: no matter; of actions: ours
    "maximum value is infinity",
    "we recommend using a symmetric and normalized space",
    # of actions: ours; of observations: a coordinate that never changes
    "maximum and minimum values are equal",
    "was not a tuple of the form",
    "did not return a 2-tuple",
    "should be `(obs, info)` by default",
    "is not within the observation space",
    "was not a dictionary",
    "must be a python dictionary",
    "does not provide a `seed`",
    "does not provide an `options`",
    "requires that `Env.reset` can be passed",
    "Using `env.reset(seed=123)`",
    "Step observations are not equal although similar",
    "Step rewards are not equal although similar",
    "Step info are not equal although similar",
    "is not properly been updated after step",
    "Deterministic step observations",
    "Deterministic step rewards",
    "Deterministic step termination",
    "Environment truncates after 1 step",  # also said of every environment that returns np.bool_
    "Expects step result to be a tuple",
    "written in old step API",
    "four or five element tuple",
    "signal to be a boolean",
    "was expecting",
    "Casting input x to numpy array",
    "should be an int or np.int64",
    "length is not same as the observation space length",
    "must be a dict, actual type",
    "observation keys is not same",
    "The reward",
)

# (part of the message, severity, what, why, cure); {name} is the environment's.
EXPLAINED = (
    (
        "low value is greater than a high value",
        "error",
        "{name}.observation_space has a low above its high",
        "no observation lies within such a space",
        "correct the bounds",
    ),
    (
        "space is not allowed",
        "error",
        "{name} has an empty Tuple or Dict space",
        "a network needs something to read",
        "give the space at least one part",
    ),
    (
        "random number generator to have been generated",
        "warning",
        "{name}.reset does not call super().reset(seed=seed), so self.np_random is never seeded",
        "whatever draws from self.np_random, wrappers included, is not repeatable",
        SEEDING,
    ),
    (
        "does not call `super().reset(seed=seed)`",
        "warning",
        (
            "{name}.reset does not hand its seed to super().reset(seed=seed), so self.np_random is"
            " not seeded by it"
        ),
        "whatever draws from self.np_random, wrappers included, is not repeatable",
        SEEDING,
    ),
    (
        "The default seed argument",
        "warning",
        "{name}.reset has a default seed that is not None",
        "every reset without a seed then starts the same episode, and the agent sees no other",
        SEEDING,
    ),
    (
        "cannot be reset with a random seed",
        "error",
        "{name}.reset(seed=...) raises a TypeError although it has that parameter",
        "rlkit seeds every environment of a run through it",
        SEEDING,
    ),
    (
        "cannot be reset with options",
        "error",
        "{name}.reset(options={{}}) raises a TypeError although it has that parameter",
        "Gymnasium's wrappers pass options on",
        SEEDING,
    ),
    (
        "Official support for the `seed` function is dropped",
        "warning",
        "{name} has a method seed(), which nobody calls any more",
        "what it seeds would stay unseeded",
        "remove it, and seed in reset(seed=...)",
    ),
    (
        "`return_info` is deprecated",
        "warning",
        "{name}.reset has a parameter return_info, of an interface before Gymnasium",
        "reset always returns (observation, info) now",
        "remove it",
    ),
    (
        "Deterministic step info",
        "info",
        "{name}.step returns another info for the same seed and actions",
        (
            "numbers in the info of an episode's last step are recorded: these will differ from run"
            " to run (a clock?)"
        ),
        "leave them out of info, unless they are meant to differ",
    ),
    (
        "No render modes",
        "warning",
        "{name}.metadata names no render modes",
        "Gymnasium's tools refuse to render then",
        RENDER,
    ),
    (
        "No render fps",
        "info",
        "{name}.metadata has no render_fps",
        "videos run at a speed of their own",
        "add 'render_fps': 30",
    ),
    (
        "unsupported render mode",
        "error",
        "{name} was made with a render_mode that its metadata does not name",
        "",
        RENDER,
    ),
    (
        "RGB-array rendering",
        "error",
        "{name}.render() does not return a picture",
        "rlkit makes videos of them",
        RENDER,
    ),
)


def gymnasium_findings(env: gymnasium.Env, name: str) -> Iterator[Finding]:
    """What `gymnasium.utils.env_checker.check_env` says of `env` beyond what `host_checking` finds
    by itself.
    """
    failure: Exception | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            env_checker.check_env(env, skip_render_check=True, skip_close_check=True)
            if env.render_mode == "rgb_array":
                passive_env_checker.env_render_passive_checker(env)
        except Exception as error:
            failure = error
    # Gymnasium's logger marks its messages; what the environment itself warns of was seen when it
    # was played.
    texts = (re.sub(r"\x1b\[[0-9;]*m", "", str(warning.message)) for warning in caught)
    for text in dict.fromkeys(text for text in texts if text.startswith(("WARN: ", "ERROR: "))):
        yield from _explained(name, " ".join(text.partition(": ")[2].split()), None)
    if failure is not None:
        yield from _explained(name, " ".join(str(failure).split()), failure)


def _explained(name: str, message: str, failure: Exception | None) -> Iterator[Finding]:
    for part, severity, what, why, cure in EXPLAINED:
        if part in message:
            yield Finding(severity, what.format(name=name), cure, why)  # pyright: ignore[reportArgumentType]
            return
    if any(part in message for part in COVERED):
        return
    if isinstance(failure, ImportError):
        what = (
            f"{name} could not be given to Gymnasium's own checker, which lacks a package:"
            f" {message}"
        )
        yield Finding("info", what, "install it to have that checker's opinion too")
    elif failure is None:
        yield Finding(
            "warning",
            f"{name}: a warning while Gymnasium's checker ran: {message}",
            "see what it asks for",
        )
    elif isinstance(
        failure, (AssertionError, gymnasium.error.Error, TypeError, AttributeError)
    ) and _from_checker(failure):
        what = f"{name} fails Gymnasium's own checker: {message}"
        yield Finding(
            "error", what, "correct what it names; rlkit's checks do not know this message"
        )
    else:
        yield raised(f"{name} in Gymnasium's own checker", failure)


def _from_checker(failure: Exception) -> bool:
    """Whether the checker raised it, not the environment."""
    trace = failure.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename in (
        env_checker.__file__,
        passive_env_checker.__file__,
    )
