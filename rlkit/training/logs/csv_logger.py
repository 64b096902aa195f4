"""`CsvLogger`: the numbers of a run for spreadsheets and pandas."""

import csv
import io

from rlkit.training.logs.records import Record
from rlkit.training.logs.row_logger import RowLogger

COLUMNS = ("kind", "env_steps", "updates", "wall_seconds", "seed", "metric", "value")


class CsvLogger(RowLogger):
    """Writes each metric of a record as a row: a tidy table. Texts are only in the JSONL file.

    `seed` is empty for the mean over all seeds; `value` may be nan, inf or -inf.
    """

    HEADER = ",".join(COLUMNS) + "\n"
    CURE = "start a new run without --csv"

    def rows(self, record: Record) -> str:
        when = (record.kind, record.env_steps, record.updates, record.wall_seconds, record.seed)
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerows((*when, name, float(value)) for name, value in record.metrics.items())
        return text.getvalue()
