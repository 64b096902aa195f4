"""The messages of Gymnasium's own checker, as findings that explain them."""

import re
import warnings
from collections.abc import Iterator

import gymnasium
from gymnasium.utils import env_checker, passive_env_checker

from rlkit.envs.checking.gymnasium_rollout import exception_finding
from rlkit.envs.checking.gymnasium_seeding import SEEDING
from rlkit.envs.jittable.contract import Finding

RENDER = "return an array [height, width, 3] of uint8 from render() if render_mode is 'rgb_array'"

# Messages (or parts of them) that rlkit's own checks cover in every step and reset, or that do not
# matter here.
COVERED = (
    # rlkit trains on the wrapped environment, so that is what is checked
    "is different from the unwrapped version",
    "minimum value is -infinity",  # no matter for observations; actions: rlkit checks them
    "maximum value is infinity",
    "we recommend using a symmetric and normalized space",
    # covered by rlkit's own checks for actions; for observations, a constant coordinate
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
    "Environment truncates after 1 step",  # also raised if it returns np.bool_
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

# (part of the message, severity, what, why, fix); {name} is the environment's name.
EXPLAINED = (
    (
        "low value is greater than a high value",
        "error",
        "{name}.observation_space has a lower bound above its upper bound",
        "no observation lies in such a space",
        "correct the bounds",
    ),
    (
        "space is not allowed",
        "error",
        "{name} has an empty Tuple or Dict space",
        "networks need at least one input",
        "give the space at least one part",
    ),
    (
        "random number generator to have been generated",
        "warning",
        "{name}.reset does not call super().reset(seed=seed), so self.np_random is never seeded",
        "anything that draws from self.np_random, wrappers included, is not repeatable",
        SEEDING,
    ),
    (
        "does not call `super().reset(seed=seed)`",
        "warning",
        (
            "{name}.reset does not pass its seed to super().reset(seed=seed), so self.np_random is"
            " not seeded"
        ),
        "anything that draws from self.np_random, wrappers included, is not repeatable",
        SEEDING,
    ),
    (
        "The default seed argument",
        "warning",
        "{name}.reset has a default seed other than None",
        "every reset without a seed then starts the same episode, and the agent sees no other",
        SEEDING,
    ),
    (
        "cannot be reset with a random seed",
        "error",
        "{name}.reset(seed=...) raises a TypeError although reset takes a seed",
        "rlkit seeds every environment of a run this way",
        SEEDING,
    ),
    (
        "cannot be reset with options",
        "error",
        "{name}.reset(options={{}}) raises a TypeError although reset takes options",
        "Gymnasium's wrappers pass options",
        SEEDING,
    ),
    (
        "Official support for the `seed` function is dropped",
        "warning",
        "{name} has a method seed(), which is never called",
        "whatever it seeds stays unseeded",
        "remove it, and seed in reset(seed=...)",
    ),
    (
        "`return_info` is deprecated",
        "warning",
        "{name}.reset has a parameter return_info, from before Gymnasium",
        "reset now always returns (observation, info)",
        "remove it",
    ),
    (
        "Deterministic step info",
        "info",
        "{name}.step returns different info for the same seed and actions",
        (
            "numbers in the info of an episode's last step are recorded; these (a clock?) will"
            " differ between runs"
        ),
        "leave them out of info, unless they should differ",
    ),
    (
        "No render modes",
        "warning",
        "{name}.metadata declares no render modes",
        "Gymnasium's tools then refuse to render",
        RENDER,
    ),
    (
        "No render fps",
        "info",
        "{name}.metadata has no render_fps",
        "videos play at an arbitrary speed",
        "add 'render_fps': 30",
    ),
    (
        "unsupported render mode",
        "error",
        "{name} was created with a render_mode that its metadata does not list",
        "",
        RENDER,
    ),
    (
        "RGB-array rendering",
        "error",
        "{name}.render() does not return an image",
        "rlkit makes videos from it",
        RENDER,
    ),
)


def gymnasium_findings(env: gymnasium.Env, name: str) -> Iterator[Finding]:
    """What `gymnasium.utils.env_checker.check_env` reports beyond rlkit's own checks."""
    failure: Exception | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            env_checker.check_env(env, skip_render_check=True, skip_close_check=True)
            if env.render_mode == "rgb_array":
                passive_env_checker.env_render_passive_checker(env)
        except Exception as error:
            failure = error
    # Gymnasium's logger marks its messages; the environment's own warnings were caught during the
    # rollout.
    texts = (re.sub(r"\x1b\[[0-9;]*m", "", str(warning.message)) for warning in caught)
    for text in dict.fromkeys(text for text in texts if text.startswith(("WARN: ", "ERROR: "))):
        yield from _explained(name, " ".join(text.partition(": ")[2].split()), None)
    if failure is not None:
        yield from _explained(name, " ".join(str(failure).split()), failure)


def _explained(name: str, message: str, failure: Exception | None) -> Iterator[Finding]:
    for part, severity, what, why, fix in EXPLAINED:
        if part in message:
            yield Finding(severity, what.format(name=name), fix, why)  # pyright: ignore[reportArgumentType]
            return
    if any(part in message for part in COVERED):
        return
    if isinstance(failure, ImportError):
        what = (
            f"{name} could not be run through Gymnasium's own checker, which needs a missing"
            f" package: {message}"
        )
        yield Finding("info", what, "install it to run that checker too")
    elif failure is None:
        yield Finding(
            "warning",
            f"{name}: a warning while Gymnasium's checker ran: {message}",
            "follow its advice",
        )
    elif isinstance(
        failure, (AssertionError, gymnasium.error.Error, TypeError, AttributeError)
    ) and _from_checker(failure):
        what = f"{name} fails Gymnasium's own checker: {message}"
        yield Finding(
            "error", what, "fix what it describes; rlkit's checks do not know this message"
        )
    else:
        yield exception_finding(f"{name} in Gymnasium's own checker", failure)


def _from_checker(failure: Exception) -> bool:
    """Whether the checker itself raised it, rather than the environment."""
    trace = failure.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename in (
        env_checker.__file__,
        passive_env_checker.__file__,
    )
