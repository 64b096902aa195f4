"""The names of Craftax's environments. Imports nothing."""

IDS = (
    "Craftax-Classic-Pixels-v1",
    "Craftax-Classic-Symbolic-v1",
    "Craftax-Pixels-v1",
    "Craftax-Symbolic-v1",
)
LEFT_OUT: dict[str, str] = {}
