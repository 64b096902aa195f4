"""`JsonlLogger`: the JSONL file of a run, its source of truth."""

from rlkit.training.logs.records import Record
from rlkit.training.logs.row_logger import RowLogger


class JsonlLogger(RowLogger):
    """Writes each record as one row of JSON, which `read_records` reads."""

    CURE = "start a new run with --jsonl PATH to write elsewhere"

    def rows(self, record: Record) -> str:
        return record.to_json() + "\n"
