"""What `rlkit train --dry-run` prints: the settings as YAML, with where each comes from."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlkit.training.plain_yaml import dump_yaml
from rlkit.training.run_config import RunConfig, flat_settings, to_dict
from rlkit.validation import PlainData

ARGUMENTS = "env.arguments"  # a setting of any form
# Settings that flags name otherwise.
SETTINGS = {
    "num_envs": "env.num_envs",
    "env_arguments": ARGUMENTS,
    "curriculum": "curriculum.phases",
}


def origins(
    config: RunConfig, defaults: RunConfig, source: str, arguments: Sequence[str]
) -> dict[str, str]:
    """Where the settings come from that are not `defaults`, by their dotted names.

    A flag among `arguments`, or else `source`: a preset or a file.
    """
    now, before = _flat(config), _flat(defaults)
    found = {name: source for name in now if now[name] != before.get(name)}
    for argument in arguments:
        if argument.startswith("--"):
            flag = argument[2:].partition("=")[0].replace("-", "_")
            wanted = {SETTINGS.get(name, name) for name in (flag, flag.removeprefix("no_"))}
            found |= {name: "flag" for name in now if wanted & {name, name.rpartition(".")[2]}}
    return found


def _flat(config: RunConfig) -> PlainData:
    flat = flat_settings(config)
    inner = {name for name in flat if name.startswith(f"{ARGUMENTS}.")}
    rest = {name: value for name, value in flat.items() if name not in inner}
    return rest | {ARGUMENTS: config.env.arguments}


def dump(config: RunConfig, origin_of: Mapping[str, str]) -> str:
    """The settings as YAML, with their origins as comments."""
    head = "# Settings without a comment have their default values.\n"
    return head + "\n".join(_rows(to_dict(config), origin_of)) + "\n"


def _rows(values: PlainData, origin_of: Mapping[str, str], path: str = "") -> Iterator[str]:
    for name, value in values.items():
        whole = f"{path}{name}"
        if isinstance(value, dict) and whole != ARGUMENTS:
            yield f"{name}:"
            yield from (f"  {row}" for row in _rows(value, origin_of, f"{whole}."))
        else:
            yield from _setting(name, value, origin_of.get(whole))


def _setting(name: str, value: Any, origin: str | None) -> list[str]:
    text = dump_yaml({name: value}, allow_unicode=True, width=10**6)
    first, *others = text.splitlines()
    if origin is None:
        return [first, *others]
    if others and isinstance(value, str):  # text over several rows, which a comment would end
        return [f"# {origin}:", first, *others]
    return [f"{first}  # {origin}", *others]
