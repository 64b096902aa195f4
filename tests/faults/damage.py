"""Damage to the newest checkpoint: what is read is bit for bit a state that the run had, and the
run says so if it is not the newest; or the run refuses.

    python tests/faults/damage.py --all

Flipped bits, truncated and deleted files, empty steps, edited records, and parts of one step or run
in the place of another's (`damages.py`), each to a run of PPO and to one of DQN with priorities.
After each, the run is reopened and its policy loaded. Wrong is: a state that differs in any leaf
from that of its step, an older step without a warning, and an exception that is not rlkit's own.
"""

import collections
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attacked_runs import bits, leaves, run, train
from damages import Place, damages
from record import Record, Row, attack

LAST = 4  # the newest checkpoint


def main(dice: random.Random, directory: Path, is_sample: bool) -> dict[str, Any]:
    """The counts of all damages."""
    outcomes: collections.Counter[str] = collections.Counter()
    failures = []
    for algorithm in ("ppo", "dqn"):
        victim = directory / algorithm
        known = _train_victim(algorithm, victim)
        for name, damage in damages(is_sample):
            attacked = directory / "attacked"
            shutil.copytree(victim, attacked)
            damage(_place(attacked, victim, dice))
            outcome = _outcome(attacked, known)
            shutil.rmtree(attacked)
            outcomes[outcome.split(":")[0]] += 1
            if outcome.startswith("wrong"):
                failures.append(f"{name} ({algorithm}): {outcome}")
    counts = {"damages": outcomes.total(), "silently_wrong": outcomes["wrong"]}
    counts |= {name.replace(" ", "_"): outcomes[name] for name in HARMLESS}
    return counts | {"failures": failures}


HARMLESS = ("fell back", "refused", "unharmed")
Known = dict[int, tuple[Any, Any]]  # by step, what `_state` and `_policy` find there


def _train_victim(algorithm: str, victim: Path) -> Known:
    """Trains a run, and beside it one of another seed, `<its name>-other`."""
    other, older = (victim.with_name(f"{victim.name}-{name}") for name in ("other", "older"))
    run(train(algorithm, victim, outer=LAST), victim.parent)
    run([*train(algorithm, other, outer=LAST), "--seed", 1], victim.parent)
    shutil.copytree(victim, older)
    shutil.rmtree(older / "checkpoints" / str(LAST))
    (older / "summary.json").unlink()
    return {
        LAST: (_state(victim), _policy(victim)),
        LAST - 1: (_state(older), _policy(older)),
    }


def _place(attacked: Path, victim: Path, dice: random.Random) -> Place:
    steps = attacked / "checkpoints"
    other = victim.with_name(f"{victim.name}-other") / "checkpoints" / str(LAST)
    return Place(step=steps / str(LAST), older=steps / str(LAST - 1), other=other, dice=dice)


def _state(run_dir: Path) -> Any:
    return leaves(run_dir)


def _policy(run_dir: Path) -> Any:
    import jax

    import rlkit

    policy = rlkit.load_policy(run_dir, which="latest")
    return policy.checkpoint_step, [bits(leaf) for leaf in jax.tree.leaves(policy.state)]


def _outcome(run_dir: Path, known: Known) -> str:
    """What comes of reading a damaged run: the first thing that is wrong, or one of `HARMLESS`;
    "unharmed" if both the policy and the state are.
    """
    policies = {step: found[1] for step, found in known.items()}
    states = {step: found[0] for step, found in known.items()}
    outcome = _read(_policy, run_dir, policies)  # first, because a run sets damaged steps aside
    if outcome.startswith("wrong"):
        return outcome
    of_state = _read(_state, run_dir, states)
    return outcome if of_state == "unharmed" else of_state


def _read(read: Callable[[Path], Any], run_dir: Path, known: dict[int, Any]) -> str:
    from rlkit.errors import RlkitError

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = read(run_dir)
        except RlkitError:
            return "refused"
        except Exception as error:
            return f"wrong: raw {type(error).__name__}: {error}"[:200]
    step = next((step for step, values in known.items() if values == found), None)
    if step is None:
        return f"wrong: {read.__name__[1:]} is none that the run had"
    if step != LAST and not any("is damaged" in str(text.message) for text in said):
        return f"wrong: {read.__name__[1:]} is an older one, without a word"
    return "unharmed" if step == LAST else "fell back"


def rows(record: Record) -> list[Row]:
    """The rows of the table: what is attacked, how often, and what came of it."""
    return [
        (
            "damage to the newest checkpoint: bits, files, records, parts of other steps and runs",
            f"{record['damages']}",
            f"{record['silently_wrong']} silently wrong; {record['fell_back']} times the run fell"
            f" back to the older one and said so, {record['refused']} times it refused,"
            f" {record['unharmed']} times nothing that is read was hit",
        )
    ]


if __name__ == "__main__":
    attack("damage", main)
