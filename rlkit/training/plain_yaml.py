"""YAML as settings are written in: plain data, with numbers such as 3e-4."""

import re
from typing import Any

import yaml

_TAG, _NUMBER = "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


class _Loader(yaml.SafeLoader):
    """Loads plain data only, and reads 3e-4 as a number (as in YAML 1.2; PyYAML reads text)."""


class _Dumper(yaml.SafeDumper):
    """Quotes text that `_Loader` would read as a number."""


for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(_TAG, _NUMBER, list("-+0123456789"))


def parse_yaml(text: str) -> Any:
    """Plain data from YAML or JSON, without running any code. Raises `yaml.YAMLError`."""
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def dump_yaml(value: Any, **format: Any) -> str:
    """Plain data as YAML, in the order it has; `parse_yaml` is the inverse."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, **format)
