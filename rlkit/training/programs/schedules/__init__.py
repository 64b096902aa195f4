"""How the host collects and updates: sequentially, overlapped, or in one compiled loop.

A `Schedule` decides the order and the thread; all use the same parts, see `base`.
"""
