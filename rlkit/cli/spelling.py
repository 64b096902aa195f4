"""What people type: values in the forms of other tools, and other tools' names of flags."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from rlkit.errors import did_you_mean, require
from rlkit.validation import field_annotations
from rlkit.whole_numbers import in_digits, kinds, require_no_groups

# What other frameworks call the same setting.
OTHER_NAMES = {
    "lr": "learning-rate",
    "timesteps": "total-steps",
    "total-timesteps": "total-steps",
    "n-timesteps": "total-steps",
    "num-timesteps": "total-steps",
    "steps": "total-steps",
    "n-envs": "num-envs",
    "envs": "num-envs",
    "n-seeds": "num-seeds",
    "seeds": "num-seeds",
    "env-kwargs": "env-arguments",
    "n-steps": "num-steps",
    "rollout-length": "num-steps",
    "n-epochs": "num-epochs",
    "update-epochs": "num-epochs",
    "ent-coef": "entropy-coef",
    "vf-coef": "value-coef",
    "clip-coef": "clip-epsilon",
    "clip-range": "clip-epsilon",
    "clip-eps": "clip-epsilon",
    "anneal-lr": "learning-rate-schedule",
    "buffer-size": "capacity",
    "replay-size": "capacity",
    "learning-starts": "prefill-steps",
    "net-arch": "hidden-sizes",
    "hidden-dim": "hidden-sizes",
    "hidden-size": "hidden-sizes",
    "norm-obs": "normalize-observations",
    "normalize-obs": "normalize-observations",
    "norm-reward": "normalize-rewards",
    "normalize-reward": "normalize-rewards",
    "track": "wandb",
    "use-wandb": "wandb",
    "wandb-mode": "wandb",
    "tb": "tensorboard",
    "use-tensorboard": "tensorboard",
    "tensorboard-log": "tensorboard",
    "wandb-project-name": "wandb-project",
    "project": "wandb-project",
    "wandb-run-name": "wandb-name",
    "wandb-group-name": "wandb-group",
    "log-model": "wandb-artifacts",
    "save-model": "wandb-artifacts",
    "eval-freq": "eval-every",
    "eval-episodes": "evaluation-episodes",
    "n-eval-episodes": "evaluation-episodes",
    "num-eval-episodes": "evaluation-episodes",
    "save-freq": "checkpoint-every",
    "log-dir": "run-dir",
    "logdir": "run-dir",
    "log-folder": "run-dir",
    "output-dir": "run-dir",
    "save-path": "run-dir",
    "save-dir": "run-dir",
    "quiet": "no-debug",
    "no-progress-bar": "no-debug",
    "progress-bar": "debug",
    "resume": "restore-checkpoint",
    "dir": "run-dir",
    "out": "output",
    "o": "output",
}
_DEVICES = {"device", "cuda", "gpu", "cpu"}  # what other frameworks let a flag choose
_WHERE = "JAX trains on a GPU if it finds one; `JAX_PLATFORMS=cpu rlkit ...` stays on the CPU"
OTHER_COMMANDS = {
    "run": "train",
    "fit": "train",
    "learn": "train",
    "eval": "evaluate",
    "enjoy": "evaluate",
    "test": "evaluate",
    "play": "evaluate",
    "continue": "resume",
    "restart": "resume",
    "check": "check-env",
    "check_env": "check-env",
    "validate": "check-env",
    "envs": "list",
    "ls": "list",
    "show": "list",
    "curve": "plot",
    "onnx": "export",
    "convert": "export",
}
_YES, _NO = {"true", "yes", "on"}, {"false", "no", "off"}
_NONE = {"none", "null"}
_WHEN_BARE = {"wandb": "online"}  # what a flag means without a value


def flag_types(kind: type) -> dict[str, Any]:
    """The annotation of each flag of `kind`, by its name without dashes; nested ones included."""
    found: dict[str, Any] = {}
    for name, annotation in field_annotations(kind).items():
        nested = next(filter(dataclasses.is_dataclass, (annotation, *get_args(annotation))), None)
        if isinstance(nested, type):
            found |= flag_types(nested)
        else:
            found[name.replace("_", "-")] = annotation
    return found


def is_switch(annotation: Any) -> bool:
    """Whether its flag has two forms, as in --debug and --no-debug; it may also allow None."""
    allowed = set(kinds(annotation))
    return bool in allowed and allowed <= {bool, type(None)}


def is_flag(argument: str) -> bool:
    """Whether it is the name of a flag, and neither a negative number nor a sentence."""
    return re.match(r"--?[A-Za-z][^\s=]*(=|$)", argument) is not None


def usual_form(kind: type, arguments: Sequence[str], *, ends_in_words: bool = False) -> list[str]:
    """`arguments` with values as the flags of `kind` take them.

    `--total-steps 1e5` and `100k` become 100000, `--double True` becomes `--double`,
    `--no-save-replay` becomes `--save-replay False`, `--wandb` alone is online, and
    `--hidden-sizes=[64,64]`, as W&B's agent writes it, becomes `64 64`. If the command
    `ends_in_words`, such as RUN_DIR, one may follow a switch. Raises `ConfigError` for a list that
    does not end, or does not begin.
    """
    known = flag_types(kind)
    rest, found = list(arguments), []
    while rest:
        typed, equals, value = rest.pop(0).partition("=")
        name = typed[2:].replace("_", "-")
        opposite = name[3:] if typed.startswith("--no") and name[:3] == "no-" else ""
        if not equals and is_switch(known.get(opposite)):
            found += _usual(f"--{opposite}", known[opposite], ["no"])
            continue
        if not typed.startswith("--") or name not in known:
            found.append(typed + equals + value)
            continue
        values = [value] if equals else list(_until_flag(rest))
        if ends_in_words and not equals and is_switch(known[name]) and not _is_answer(values[:1]):
            values = []
        del rest[: 0 if equals else len(values)]
        found += _usual(f"--{name}", known[name], values)
    return found


def advice(typed: str, known: Sequence[str], *, otherwise: str) -> str:
    """A hint for an unknown flag: which of the `known` flags was meant, or else `otherwise`."""
    name = typed.partition("=")[0].strip("-").replace("_", "-")
    if name in _DEVICES:
        return _WHERE + "; --devices N takes several" * ("--devices" in known)
    meant = OTHER_NAMES.get(name)
    if meant is not None and f"--{meant}" in known:
        return f"did you mean '--{meant}'?"
    # Without dashes, which would make all flags alike.
    near = did_you_mean(name, [flag.strip("-") for flag in known], cutoff=0.6)
    is_hint = near.startswith("did you mean")
    return re.sub(r"'([a-z0-9-]+)'", r"'--\1'", near) if is_hint else otherwise


def _is_answer(values: list[str]) -> bool:
    return bool(values) and values[0].lower() in _YES | _NO | _NONE


def _until_flag(arguments: Sequence[str]) -> Iterator[str]:
    for argument in arguments:
        if is_flag(argument):
            return
        yield argument


def _usual(flag: str, annotation: Any, values: list[str]) -> list[str]:
    allowed = set(kinds(annotation))
    if is_switch(annotation) and (values or annotation is not bool):
        values = values or ["yes"]
        word = values[0].lower()
        if annotation is not bool:  # tyro wants a word where None is possible
            known = "True" if word in _YES else "False" if word in _NO else values[0]
            return [flag, "None" if word in _NONE else known, *values[1:]]
        if word in _YES | _NO:
            return [flag if word in _YES else f"--no-{flag[2:]}", *values[1:]]
    if not values and flag[2:] in _WHEN_BARE:
        return [flag, _WHEN_BARE[flag[2:]]]
    if tuple in allowed:
        text = " ".join(values)
        # Of text, only what one pair of brackets encloses: [a] [b] and (a) b are words with some.
        form = r"\[[^\[\]]*\]" if len(values) > 1 else r"\[[^\[\]]*\]|\([^()]*\)"
        if re.fullmatch(form, text) or ({int, float} & allowed and re.search(r"[\[(,]", text)):
            if int in allowed:
                require_no_groups(flag, text)
            values = _listed(flag, text.strip())
    if type(None) in allowed and str not in allowed and values and values[0] in _NONE:
        values = ["None", *values[1:]]
    # A seed counts nothing: 64,128 would be two of them.
    is_count = not (flag.endswith("seed") and values and "," in values[0])
    if int in allowed and float not in allowed and is_count:
        converted = len(values) if tuple in allowed else 1  # the others belong to the command
        values = [*map(in_digits, values[:converted]), *values[converted:]]
    if values and re.match(r"--?[A-Za-z]", values[0]):  # else tyro would take it for a flag
        return [f"{flag}={values[0]}", *values[1:]]
    return [flag, *values]


def _listed(flag: str, text: str) -> list[str]:
    """The words of a list such as [64,64]. Raises `ConfigError` if a bracket has no partner."""
    first, last = text[:1], text[-1:]
    words = re.split(r"\s*,\s*|\s+", text.strip("[]() "))
    found = [word.strip("'\"") for word in words if word]
    require(
        first + last in ("[]", "()") or not {first, last} & set("[]()"),
        f"{flag} {text} is only a part of a list",
        f"write {' '.join([flag, *found])}, or the whole list without spaces: {flag}=[...]",
    )
    return found
