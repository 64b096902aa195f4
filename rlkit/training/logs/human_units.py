"""Counts, sizes and durations as people write them."""

import math


def human_count(count: float, digits: int = 3) -> str:
    """A count in few characters, at most five with three digits: 950, 12.5k, 1.2M, 3B."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= size * 0.9995:
            return f"{count / size:.{digits}g}{unit}"
    return f"{count:.{digits}g}"


def human_bytes(count: float) -> str:
    """A size: 512 bytes, 5.13 kB, 328 MB, 41.2 GB."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size * 0.9995:
            return f"{count / size:{'.3g' if count < size * 999.5 else ',.0f'}} {unit}"
    return f"{count:.0f} bytes"


def human_seconds(seconds: float) -> str:
    """A duration: 42s, 3m05s, 2h10m."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
