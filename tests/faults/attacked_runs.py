"""The runs that are attacked, small and deterministic, and what it means that two are equal."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from sessions import RLKIT, Ended, session  # noqa: E402

HARD_LIMIT = 180.0  # seconds after which a command is killed and the attack fails
OUTER = 60  # outer iterations, each with an evaluation and a checkpoint
_OFF_POLICY = ["--prefill-steps", 64, "--batch-size", 16, "--capacity", 200]  # the ring goes round
_ARGUMENTS: dict[str, list[object]] = {
    "ppo": ["gymnax/CartPole-v1", "--num-steps", 16, "--num-minibatches", 2, "--num-epochs", 2],
    "sac": ["gymnax/Pendulum-v1", *_OFF_POLICY],
    "dqn": ["gymnax/CartPole-v1", *_OFF_POLICY, "--priority-exponent", 0.6, "--n-step", 3],
    "td3": ["gymnax/Pendulum-v1", *_OFF_POLICY],
}
_NORMALIZED = ["--normalize-observations", "True", "--normalize-rewards", "True"]
ALGORITHMS = tuple(_ARGUMENTS)


def train(algorithm: str, run_dir: Path, outer: int = OUTER) -> list[object]:
    """The command that trains one of `ALGORITHMS` for so many outer iterations."""
    arguments = _ARGUMENTS[algorithm]
    # what comes first are random actions, for the statistics of normalisation or for the memory
    steps = 32 + outer * 32 if algorithm == "ppo" else 64 + outer * 20
    small = ["--num-envs", 2, "--hidden-sizes", 8, "--evaluation-episodes", 2]
    small += ["--max-evaluation-steps", 20, "--learning-rate", 0.01]
    length = ["--total-steps", steps, "--num-checkpoints", outer]
    normalized = _NORMALIZED if algorithm == "ppo" else []
    whole = [algorithm, *arguments, *small, *length, *normalized, "--deterministic", "--no-debug"]
    return [*RLKIT, "train", *whole, "--run-dir", run_dir]


def continue_or_train(algorithm: str, run_dir: Path, outer: int = OUTER) -> list[object]:
    """The command that continues a run, or begins it if there is nothing to continue."""
    begun = (run_dir / "config.yaml").exists()
    return [*RLKIT, "resume", run_dir] if begun else train(algorithm, run_dir, outer)


def run(command: Sequence[object], cwd: Path, *, code: int = 0, **variables: object) -> Ended:
    """Runs a command to its end; raises `AssertionError` if it ends otherwise than by `code`."""
    log = cwd / "stderr"
    with session(command, cwd=cwd, log=log, **variables) as running:
        ended = running.wait(HARD_LIMIT)
    assert ended.code == code, f"exit code {ended.code}, not {code}: {ended.err[-2000:]}"
    assert not ended.orphans, f"left behind: {ended.orphans}"
    return ended


def saved(run_dir: Path) -> list[int]:
    """The numbers of the complete checkpoints."""
    try:
        names = os.listdir(run_dir / "checkpoints")
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isdecimal())


def leaves(run_dir: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every leaf of the newest state, learner and local: dtype, shape and bytes, by path."""
    import jax

    import rlkit

    with contextlib.redirect_stdout(io.StringIO()), rlkit.reopen(run_dir) as trainer:
        state = trainer.state
    found, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): bits(leaf) for path, leaf in found}


def bits(leaf: object) -> tuple[str, tuple[int, ...], bytes]:
    """Dtype, shape and bytes of an array, also of keys."""
    import jax
    import numpy as np

    is_key = isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    return f"{leaf.dtype}", array.shape, array.tobytes()  # type: ignore[attr-defined]


def logged(run_dir: Path) -> list[tuple[object, ...]]:
    """The rows of metrics.jsonl but for what depends on the clock, and for the events, which name
    the parts that a run was made in.
    """
    from rlkit.training.logs.records import read_records

    found = []
    for row in read_records(run_dir / "metrics.jsonl"):
        if row.kind in ("train", "eval"):
            timeless = {k: v for k, v in row.metrics.items() if k != "train/steps_per_second"}
            metrics = json.dumps(timeless, sort_keys=True)  # a text: NaN equals NaN
            found.append((row.kind, row.env_steps, row.updates, row.seed, metrics))
    return found


def differences(one: Path, other: Path) -> list[str]:
    """What differs between two finished runs: paths of leaves, and "rows"; [] if they are equal."""
    ours, theirs = leaves(one), leaves(other)
    unlike = [path for path in ours | theirs if ours.get(path) != theirs.get(path)]
    return unlike + ["rows"] * (logged(one) != logged(other))
