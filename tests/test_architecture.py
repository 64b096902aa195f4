"""The structure of the package, checked on its source; every check is also shown a tree that breaks
it.
"""

import ast
import importlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlkit.envs.suites.table import ADAPTED

PACKAGE = Path(__file__).parents[1] / "rlkit"

# Lowest first. A module may import its own unit and lower floors; only on floors 1 and 3 do units
# import each other.
FLOORS = (
    {
        "errors",
        "validation",
        "whole_numbers",
        "signatures",
        "protocols",
        "lazy",
        "plugins",
        "tuning_switch",
    },
    {"ops", "xla_cpu", "xla_gpu"},
    {"types", "spaces", "action_masks", "optimizers"},
    {"envs", "agents"},
    {"algorithms"},
    {"training"},
    {"testing"},
    {"cli"},
)
# The rooms of the two large packages, lowest first; rooms on one floor never import each other.
# `envs` and `training` themselves hand names out to others and import none.
ROOMS = {
    "envs": (
        {"ids", "base", "non_finite", "observations", "pictures"},
        {"host", "jittable", "probes"},
        {"suites", "mixture"},
        {"registry"},
        {"checking"},
    ),
    "training": (
        {"directories"},
        {"config", "compile", "curriculum", "interrupts", "plain_yaml"},
        {
            "core",
            "fingerprint",
            "health",
            "history",
            "logs",
            "phase_plan",
            "processes",
            "run_clock",
            "run_config",
            "run_progress",
        },
        {"programs", "files", "video", "export", "policy_inputs"},
        {"policy", "run_parts", "callbacks", "finite_checks", "phase_checks"},
        {"phase_programs"},
        {"evaluations", "phases", "run_phases", "best_model", "record_video", "report"},
        {"run"},
        {"reporting", "restoring", "saving", "starting"},
        {"outer_loop"},
        {"trainer"},
        {"from_config"},
        {"sweeps"},
    ),
}
UNPICKLERS = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
UNSAFE_YAML = {
    "load",
    "load_all",
    "unsafe_load",
    "unsafe_load_all",
    "full_load",
    "full_load_all",
    "UnsafeLoader",
    "FullLoader",
}
EXPLICIT = ("training/compile/compilation_cache.py", "training/processes/start.py")
NO_JAX = (
    "rlkit",
    "rlkit.training.config",
    "rlkit.training.logs.loaded_runs",
    "rlkit.algorithms.configs",
    "rlkit.agents.configs",
    "rlkit.cli.main",
    "rlkit.cli.train",
    "rlkit.cli.sweep",
    "rlkit.cli.evaluate",
    "rlkit.cli.resume",
)


def sources(package: Path) -> Iterator[tuple[str, ast.Module]]:
    """The path relative to `package`, and the syntax tree, of every module."""
    for path in sorted(package.rglob("*.py")):
        yield path.relative_to(package).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imported(name: str, tree: ast.AST) -> Iterator[str]:
    """Dotted names that the module `name` imports anywhere in it; `from a import b` counts as
    `a.b`.
    """
    here = ["rlkit", *name.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = here[: len(here) - node.level + 1] if node.level else []
            yield from (
                ".".join([*parts, *filter(None, [node.module]), alias.name]) for alias in node.names
            )


def import_violations(package: Path) -> list[str]:
    floor_of = {unit: floor for floor, units in enumerate(FLOORS) for unit in units}
    found = []
    for name, tree in sources(package):
        unit = name.split("/")[0].removesuffix(".py")
        if unit in ("__init__", "__main__", "presets"):
            continue
        if unit not in floor_of:
            found.append(f"{name}: {unit} has no floor")
            continue
        for target in imported(name, tree):
            root, _, rest = target.partition(".")
            other = rest.split(".")[0]
            if root != "rlkit" or other in (unit, "presets", "__version__"):
                continue
            # The front door, rlkit itself, stands above all floors.
            floor = floor_of.get(other, len(FLOORS))
            if floor >= floor_of[unit] and not (floor == floor_of[unit] and floor in (0, 2)):
                found.append(f"{name}: imports {target}")
    return found


def room_violations(package: Path) -> list[str]:
    """What a room of `envs` or `training` imports from its own floor or from above."""
    found = []
    for name, tree in sources(package):
        owner, *inner = name.removesuffix(".py").split("/")
        if owner not in ROOMS or inner[0] == "__init__":
            continue
        floor_of = {room: floor for floor, rooms in enumerate(ROOMS[owner]) for room in rooms}
        if inner[0] not in floor_of:
            found.append(f"{name}: {inner[0]} has no floor in {owner}")
            continue
        for target in imported(name, tree):
            root, unit, room, *_ = [*target.split("."), "", ""]
            if root != "rlkit" or unit != owner or room == inner[0]:
                continue
            if floor_of.get(room, len(floor_of)) >= floor_of[inner[0]]:
                found.append(f"{name}: imports {target}")
    return found


def preset_violations(package: Path) -> list[str]:
    """Presets are data: YAML beside an `__init__.py` that holds a docstring at most."""
    files = [
        path
        for path in sorted((package / "presets").rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    return [
        path.name
        for path in files
        if path.suffix not in (".yaml", ".md") and not _is_bare_init(path)
    ]


def _is_bare_init(path: Path) -> bool:
    if path.name != "__init__.py":
        return False
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body)


def code_loading_violations(package: Path) -> list[str]:
    """Places that could run code out of a file: unpicklers, eval and exec, YAML loaders that build
    objects.
    """
    found = []
    for name, tree in sources(package):
        found += [
            f"{name}: imports {module}"
            for module in imported(name, tree)
            if module.split(".")[0] in UNPICKLERS
        ]
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="eval" | "exec" as call)):
                    found.append(f"{name}:{node.lineno}: calls {call}")
                case ast.Attribute(value=ast.Name(id="yaml"), attr=attr) if attr in UNSAFE_YAML:
                    found.append(f"{name}:{node.lineno}: yaml.{attr}")
                case ast.ImportFrom(module="yaml", names=names) if UNSAFE_YAML & {
                    alias.name for alias in names
                }:
                    found.append(f"{name}:{node.lineno}: from yaml import ...")
                case ast.keyword(arg="allow_pickle", value=value) if not (
                    isinstance(value, ast.Constant) and value.value is False
                ):
                    found.append(f"{name}:{value.lineno}: allow_pickle")
    return found


COMPILES = (
    "training/",
    "testing/",
    "envs/checking/",
    "envs/suites/",
    "agents/first_weights.py",
)


def jit_violations(package: Path) -> list[str]:
    """Only `training` makes programs for runs.

    `testing` and `checking` make some to see what environments do, and suites of others compile
    what takes seconds in Python: to trace a step for each place of a program, to draw a picture.
    First weights are drawn by a program, since people call `agent.init` by itself.
    """
    found = []
    for name, tree in sources(package):
        if name.startswith(COMPILES):
            continue
        jitted = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr in ("jit", "pmap")
        ]
        jitted += [
            0 for module in imported(name, tree) if module.rpartition(".")[2] in ("jit", "pmap")
        ]
        found += [f"{name}:{line}: compiles" for line in jitted]
    return found


def process_violations(package: Path) -> list[str]:
    """Settings of the whole process are those of `xla_cpu`, and what a user asks for by a call."""
    setters = ("jax.config.update", "register_lowering", "set_threshold")
    return [
        f"{name}:{node.lineno}: {ast.unparse(node.func)}"
        for name, tree in sources(package)
        if not name.startswith(("xla_cpu/", *EXPLICIT))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(setters)
    ]


def pytest_violations(package: Path) -> list[str]:
    """rlkit runs where no pytest is installed, `rlkit.testing` too."""
    return [
        f"{name}: imports {module}"
        for name, tree in sources(package)
        for module in imported(name, tree)
        if module.split(".")[0] in ("pytest", "_pytest")
    ]


def protocol_violations(package: Path) -> list[str]:
    """Wrappers follow a protocol by `__getattr__` too, which `isinstance` overlooks."""
    trees = list(sources(package))
    protocols = {
        node.name
        for _, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)
    }
    return [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for name, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "isinstance"
        and protocols & {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
    ]


CHECKS = {
    "imports go down only": import_violations,
    "rooms stand on those below": room_violations,
    "presets are data": preset_violations,
    "no file can run code": code_loading_violations,
    "jit only in training and check_env": jit_violations,
    "the process is set in xla_cpu": process_violations,
    "no pytest": pytest_violations,
    "wrappers follow protocols": protocol_violations,
}


@pytest.mark.fast
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_package_keeps_its_structure(check):
    assert check(PACKAGE) == []


BREACHES = [
    (import_violations, "envs/jittable/gymnax.py", "from rlkit.agents.base import Agent"),
    (import_violations, "agents/base.py", "from ..envs import base"),
    (import_violations, "agents/heads.py", "def f():\n    import rlkit.algorithms.ppo"),
    (import_violations, "ops/losses.py", "from rlkit import optimizers"),
    (import_violations, "errors.py", "import rlkit.ops.returns"),
    (import_violations, "algorithms/ppo.py", "from rlkit import Trainer"),
    (import_violations, "training/trainer.py", "import rlkit"),
    (import_violations, "training/trainer.py", "from rlkit.testing.comparison import assert_same"),
    (import_violations, "testing/runs.py", "from rlkit.cli.main import main"),
    (import_violations, "novelty/thing.py", ""),
    (
        room_violations,
        "envs/host/gymnasium.py",
        "from rlkit.envs.jittable.vectorized import vectorize",
    ),
    (room_violations, "envs/jittable/gymnax.py", "from rlkit.envs import registry"),
    (room_violations, "training/core/module.py", "from rlkit.training.logs import loggers"),
    (room_violations, "training/files/checkpointer.py", "from ..trainer import Trainer"),
    (
        room_violations,
        "training/programs/jittable_program.py",
        "from rlkit.training import Trainer",
    ),
    (room_violations, "training/callbacks.py", "from rlkit.training.trainer import Trainer"),
    (room_violations, "training/new_room/thing.py", ""),
    (preset_violations, "presets/ppo.py", "gamma = 0.99"),
    (preset_violations, "presets/__init__.py", "import os"),
    (code_loading_violations, "training/files/checkpointer.py", "import pickle"),
    (code_loading_violations, "training/files/checkpointer.py", "from cloudpickle import loads"),
    (code_loading_violations, "cli/main.py", "eval('1 + 1')"),
    (code_loading_violations, "cli/main.py", "import yaml\nyaml.load('')"),
    (code_loading_violations, "cli/main.py", "from yaml import UnsafeLoader"),
    (code_loading_violations, "cli/main.py", "import numpy as np\nnp.load('x', allow_pickle=True)"),
    (jit_violations, "ops/returns.py", "import jax\n@jax.jit\ndef f(x): return x"),
    (jit_violations, "agents/networks.py", "from flax import nnx\nnnx.jit(print)"),
    (jit_violations, "algorithms/ppo.py", "from jax import jit"),
    (pytest_violations, "testing/runs.py", "def f():\n    import pytest"),
    (process_violations, "types.py", "import gc\ngc.set_threshold(1)"),
    (process_violations, "envs/host/base.py", "import jax\njax.config.update('jax_x', 1)"),
    (process_violations, "types.py", "mlir.register_lowering(p, rule, platform='cpu')"),
    (
        protocol_violations,
        "envs/base.py",
        "class JaxEnv(Protocol): ...\ndef f(env): return isinstance(env, JaxEnv | type)",
    ),
]


@pytest.mark.fast
@pytest.mark.parametrize(("check", "path", "source"), BREACHES)
def test_checks_see_a_breach(check, path, source, tmp_path):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(source)
    assert len(check(tmp_path)) == 1


@pytest.mark.fast
def test_checks_let_sound_code_pass(tmp_path):
    sound = {
        "__init__.py": "from rlkit.training.trainer import Trainer",
        "validation.py": "from rlkit.errors import require",
        "algorithms/ppo.py": (
            "import jax\nfrom rlkit.agents.base import Agent\nfrom .base import Algorithm"
        ),
        "training/trainer.py": (
            "import jax\nimport yaml\nfrom rlkit import"
            " __version__\njax.jit(len)\nyaml.safe_load('')"
        ),
        "testing/runs.py": "import jax\nfrom rlkit.training.trainer import Trainer\njax.jit(len)",
        "presets/__init__.py": '"""Data."""',
        "presets/ppo.yaml": "gamma: 0.99",
    }
    for path, source in sound.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source)
    assert [check(tmp_path) for check in CHECKS.values()] == [[]] * len(CHECKS)


def slow_imports(*modules: str) -> str:
    """Which of the libraries that take seconds to import come along with `modules`, in a fresh
    interpreter.
    """
    program = f"""
        import importlib, sys
        for module in {modules!r}:
            importlib.import_module(module)
        slow = {{"jax", "flax", "gymnax", "distrax", "orbax", "wandb", "matplotlib", "pandas"}}
        print(*sorted(slow & sys.modules.keys()))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.process
@pytest.mark.parametrize("module", NO_JAX)
def test_settings_and_command_line_import_no_jax(module):
    assert slow_imports(module) == ""


@pytest.mark.process
def test_slow_imports_are_seen():
    assert "jax" in slow_imports("rlkit.types").split()


PATHS = sorted(path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py"))
MODULES = [
    ".".join(path.parts).removesuffix(".__init__") for path in PATHS if path.name != "__main__"
]


@pytest.mark.parametrize("module", MODULES)
def test_every_module_imports(module):
    name = module.rpartition(".")[2] if module.startswith("rlkit.envs.suites.") else ""
    suite = ADAPTED.get(name.partition("_")[0])
    if suite is not None and not name.endswith("_ids"):  # which import nothing
        pytest.importorskip(suite.package)
    importlib.import_module(module)
