"""How a run's programs are compiled: ahead of time, for parallel seeds, and the cache.

May import `xla_cpu` and `types`; knows no environment, agent or algorithm.
"""
