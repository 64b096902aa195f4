"""Runs that these tests start in their own process draw no learning curve."""

from blank_curves import blank_curves, real_curves  # noqa: F401 - fixtures
