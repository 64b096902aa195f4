"""YAML as settings are written in: plain data, with numbers such as 3e-4."""

import re
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Loads plain data only, and reads 3e-4 as a number (as in YAML 1.2; PyYAML reads text)."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+"), list("-+0123456789")
)


def parse_yaml(text: str) -> Any:
    """Plain data from YAML or JSON, without running any code. Raises `yaml.YAMLError`."""
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
