"""Makes environments of a suite, steps them and checks them; prints a row for each.

PYTHONPATH=benchmarks python benchmarks/drivers/suite_envs.py craftax Craftax-Symbolic-v1
"""

import argparse
import json
import time

import jax

import rlkit

STEPS = 100  # random ones of each environment, more if it declares a time limit of up to 1000


def main() -> None:
    """Runs the driver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suite")
    parser.add_argument("names", nargs="+")
    arguments = parser.parse_args()
    for name in arguments.names:
        print("ROW", json.dumps(tried(f"{arguments.suite}/{name}")), flush=True)
        jax.clear_caches()  # a process may hold only so many programs


def tried(env_id: str) -> dict[str, object]:
    """What became of an environment."""
    begun = time.perf_counter()
    error, warnings = "", []
    try:
        report = rlkit.check_env(env_id, num_steps=STEPS, raise_on_error=False)
        error = "; ".join(finding.what for finding in report.errors)
        warnings = [finding.what for finding in report.warnings]
    except Exception as failure:  # whatever a suite raises is what the table is about
        error = f"{type(failure).__name__}: {failure}".splitlines()[0]
    return {
        "id": env_id,
        "error": error,
        "warnings": warnings,
        "seconds": round(time.perf_counter() - begun, 1),
    }


if __name__ == "__main__":
    main()
