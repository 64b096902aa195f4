"""YAML as settings are written in: plain data, with numbers such as 3e-4."""

import re
from typing import Any, ClassVar

import yaml

_DATE = "tag:yaml.org,2002:timestamp"
_TAG, _NUMBER = "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+\Z")
_NUMBERS = (_TAG, "tag:yaml.org,2002:int")


class _Loader(yaml.SafeLoader):
    """Loads plain data only. As in YAML 1.2, 3e-4 is a number, and 2024-01-01 and 1:30 are text.

    To PyYAML these are text, a date, and 90, of base 60.
    """

    yaml_implicit_resolvers: ClassVar = {
        first: [
            (tag, re.compile(rf"(?!.*:){pattern.pattern}", pattern.flags))
            if tag in _NUMBERS
            else (tag, pattern)
            for tag, pattern in resolvers
            if tag != _DATE
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class _Dumper(yaml.SafeDumper):
    """Quotes text that `_Loader` would read as a number."""


for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(_TAG, _NUMBER, list("-+0123456789"))


def parse_yaml(text: str) -> Any:
    """Plain data from YAML or JSON, without running any code. Raises `yaml.YAMLError`."""
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    except RecursionError:
        raise yaml.YAMLError("lists or mappings are nested too deeply") from None
    except ValueError as error:  # text that looks like a number but is none that Python reads
        raise yaml.YAMLError(str(error).partition(";")[0]) from None
    finally:
        loader.dispose()


def dump_yaml(value: Any, **format: Any) -> str:
    """Plain data as YAML, in the order it has; `parse_yaml` is the inverse."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, **format)
