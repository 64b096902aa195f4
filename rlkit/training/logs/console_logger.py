"""`ConsoleLogger`: what a run prints while it trains."""

from collections.abc import Mapping

from tqdm import tqdm

from rlkit.training.logs.human_units import human_count, human_seconds
from rlkit.training.logs.records import Record, headline
from rlkit.validation import PlainData

MOST_REPORTED = 2  # numbers reported by environments at episode ends; simulators report a dozen


class ConsoleLogger:
    """Prints evaluations, texts, events and errors as lines that do not break a progress bar."""

    def log(self, record: Record, /) -> None:
        if record.kind == "train" or record.seed is not None:  # with several seeds, their mean
            return
        parts = [
            f"{human_count(record.env_steps):>6} steps | {human_seconds(record.wall_seconds)}",
            *_evaluation(record.metrics),
        ]
        if record.text is not None:
            # An error ends the run and is printed in full by the caller.
            text = headline(record.text) if record.kind == "error" else record.text
            parts.insert(1, text if record.kind == "text" else f"{record.kind}: {text}")
        tqdm.write(" | ".join(parts))

    def start(self, run_info: PlainData, /) -> None: ...
    def state(self) -> PlainData:
        return {}

    def restore(self, state: PlainData, /) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def _evaluation(metrics: Mapping[str, float]) -> list[str]:
    """The parts of a line about an evaluation; with returns and lengths alone, 70 columns at most.

    Lengths with sampled actions, and the many numbers of a simulator, are only in the file.
    """
    shown = {name.removeprefix("eval/"): value for name, value in metrics.items()}
    reported = [name for name in shown if name.startswith("done_info/")]
    left_out = {"sampled_avg_length", *(reported if len(reported) > MOST_REPORTED else ())}
    parts = []
    if "avg_return" in shown:
        sampled = shown.pop("sampled_avg_return", None)
        beside = "" if sampled is None else f" (sampled {sampled:.4g})"
        parts.append(f"return {shown.pop('avg_return'):.4g}{beside}")
    if "avg_length" in shown:
        parts.append(f"length {shown.pop('avg_length'):.4g}")
    others = {name: value for name, value in shown.items() if name not in left_out}
    return parts + [f"{name} {value:.4g}" for name, value in others.items()]
