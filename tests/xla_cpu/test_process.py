"""What is changed for the whole process, and when: never by an import, each in a process of its
own.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from algorithm_rows import NAMES

pytestmark = pytest.mark.process

# What other programs of the process see of it, and a host run.
LOOK = """
import gc, importlib, logging, os, pkgutil, sys
import jax
from jax._src.interpreters import mlir

def look():
    tables = {"": mlir._lowerings, **mlir._platform_specific_lowerings}
    rules = {f"{name} {p}": rule for name, table in tables.items() for p, rule in table.items()}
    return {**jax.config.values, **rules, "gc": gc.get_threshold()}

def changed():
    now = look()
    return [key for key, value in before.items() if now[key] is not value and now[key] != value]

def loops():
    return jax.jit(lambda: jax.random.bits(jax.random.key(0))).lower().as_text().count("while")

before = look()
import rlkit
from rlkit.xla_cpu.process import start_run
from rlkit.tuning_switch import has_backend

def trainer(env_id):
    env = rlkit.make_env(env_id, 2)
    agent = rlkit.actor_critic(env.observation_space, env.action_space)
    algorithm = rlkit.ppo(rlkit.PPOConfig(num_steps=4, num_minibatches=1, num_epochs=1))
    config = rlkit.TrainerConfig(
        total_steps=8,
        enable_evaluation=False,
        debug=False,
        logger_config=rlkit.LoggerConfig(console=False),
    )
    return rlkit.Trainer(env, None, agent, algorithm, config)
"""
AGENTS = {
    "gymnasium/CartPole-v1": ["actor_critic", "q_network", "discrete_soft_actor_critic"],
    "gymnasium/Pendulum-v1": ["soft_actor_critic", "deterministic_actor_critic"],
}
SUPPORT = Path(__file__).parents[1] / "support"
INLINE, HASH = "jax_cpu_enable_async_dispatch", "cpu threefry2x32"


def said_by(code: str) -> list[str]:
    """The lines that a fresh process prints after `LOOK`."""
    environment = {**os.environ, "RLKIT_CPU_TUNING": "on", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "error::UserWarning", "-c", LOOK + textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_only_enable_changes_the_process():
    code = """
    from rlkit.envs.suites.table import ADAPTED
    adapters = tuple(f"rlkit.envs.suites.{name}" for name in ADAPTED)  # import what others made
    for module in pkgutil.walk_packages(rlkit.__path__, "rlkit."):
        if not (module.name.endswith("__main__") or module.name.startswith(adapters)):
            importlib.import_module(module.name)
    for env_id, agents in AGENTS.items():
        env = rlkit.make_env(env_id, 2)
        for agent in agents:
            rlkit.make_agent(agent, env.observation_space, env.action_space, None)
    print("imports, environments, agents:", changed(), has_backend())
    for setting in ("off", "no-threefry", "no-inline-dispatch", "on", "on"):
        os.environ["RLKIT_CPU_TUNING"] = setting
        start_run(on_host=True)
        print(setting, rlkit.xla_cpu.enable(), changed(), has_backend())
        if setting.startswith("no"):
            print("disable", rlkit.xla_cpu.disable(), changed())
    print("loops:", loops())
    print("disable", rlkit.xla_cpu.disable(), "loops:", loops())
    """
    assert said_by(f"AGENTS = {AGENTS}" + textwrap.dedent(code)) == [
        "imports, environments, agents: [] False",
        "off Report(threefry='off', inline_dispatch='off') [] False",
        f"no-threefry Report(threefry='off', inline_dispatch='on') ['{INLINE}'] False",
        "disable Report(threefry='off', inline_dispatch='off') []",
        f"no-inline-dispatch Report(threefry='on', inline_dispatch='off') ['{HASH}'] False",
        "disable Report(threefry='off', inline_dispatch='off') []",
        f"on Report(threefry='on', inline_dispatch='on') ['{INLINE}', '{HASH}'] False",
        f"on Report(threefry='on', inline_dispatch='on') ['{INLINE}', '{HASH}'] False",
        "loops: 0",
        "disable Report(threefry='off', inline_dispatch='too late') loops: 1",
    ]


@pytest.mark.full
def test_the_checks_before_a_host_run_compute_nothing():
    """Of any algorithm, with every optional part: otherwise its Trainer would come too late."""
    code = """
    table = rows.SMALL | rows.NORMALIZED | {"priority_exponent": 0.6}
    for name in rows.NAMES:
        for env_id in AGENTS:
            env, eval_env = (rlkit.make_env(env_id, n) for n in (4, 2))
            if rows.acts_in(name, env.action_space):
                agent, algorithm = rows.agent_of(name, env), rows.algorithm_of(name, table)
                rlkit.RLModule(
                    env=env, agent=agent, algorithm=algorithm, total_steps=80, eval_env=eval_env
                )
                print(name, has_backend())
    trainer("gymnasium/CartPole-v1")
    print(changed())
    """
    support = f"sys.path.insert(0, {str(SUPPORT)!r})\nimport algorithm_rows as rows\n"
    *of_algorithms, last = said_by(f"AGENTS = {AGENTS}\n{support}" + textwrap.dedent(code))
    assert set(of_algorithms) == {f"{name} False" for name in NAMES}
    assert last == f"['{INLINE}']"


@pytest.mark.full
def test_a_run_leaves_other_programs_alone():
    """Only how programs are dispatched is global; their hash is that of JAX."""
    code = """
    trainer("gymnasium/CartPole-v1").run(0)
    print(changed(), loops())
    """
    assert said_by(code) == [f"['{INLINE}'] 1"]


@pytest.mark.full
def test_what_comes_too_late_is_said():
    """In the report of `enable`; a Trainer, which is not asked, writes it to the log."""
    code = """
    trainer("gymnax/CartPole-v1").run(0)
    print(changed(), loops())
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout, force=True)
    trainer("gymnasium/CartPole-v1")
    print(rlkit.xla_cpu.enable(), changed())
    """
    first, *log, last = said_by(code)
    assert first == "[] 1"
    assert any("call rlkit.xla_cpu.enable() at the start" in line for line in log)
    assert last == f"Report(threefry='on', inline_dispatch='too late') ['{HASH}']"


def test_the_command_line_names_a_setting_that_means_nothing():
    environment = {**os.environ, "RLKIT_CPU_TUNING": "maybe"}
    command = [sys.executable, "-m", "rlkit.cli.main", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("rlkit: error: RLKIT_CPU_TUNING='maybe'")
