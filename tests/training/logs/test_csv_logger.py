"""`metrics.csv` as pandas reads it."""

import math

import numpy as np
import pytest

from rlkit.training.logs.csv_logger import COLUMNS, CsvLogger
from rlkit.training.logs.records import Record


def record(**fields):
    return Record(kind="eval", env_steps=64, updates=8, wall_seconds=1.25, **fields)


@pytest.mark.fast
def test_pandas_reads_every_number_back(tmp_path):
    import pandas

    values = [math.nan, math.inf, -math.inf, 0.1, 1e-300, 2.0**60, -0.0]
    metrics = {f"eval/{number}": value for number, value in enumerate(values)}
    logger = CsvLogger(tmp_path / "metrics.csv")
    logger.log(record(metrics=metrics))
    logger.log(record(metrics={'user/"a, b"\n': 1.0}, seed=3))
    logger.log(record(text="only in the JSONL file"))
    logger.close()
    assert b"\r" not in logger.path.read_bytes()
    table = pandas.read_csv(logger.path)
    assert tuple(table.columns) == COLUMNS
    # Not every version of pandas is exact in the last bit.
    np.testing.assert_allclose(table["value"], [*values, 1.0], rtol=1e-15)
    assert table["metric"].tolist() == [*metrics, 'user/"a, b"\n']
    assert table["seed"].isna().tolist() == [True] * 7 + [False] and table["seed"].iloc[-1] == 3
    when = table[["kind", "env_steps", "updates", "wall_seconds"]].drop_duplicates()
    assert when.to_numpy().tolist() == [["eval", 64, 8, 1.25]]
