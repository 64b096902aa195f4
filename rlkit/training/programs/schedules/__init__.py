"""In which order, and on which thread, the host collects and updates: one after the other,
overlapped, or as one compiled loop.

Each is a `Schedule` of the same parts, see `base`.
"""
