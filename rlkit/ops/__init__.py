"""Stateless maths: returns, sampling, counters, statistics. `__init__.pyi` lists the public names.

May import only the lowest floor (`errors` and its neighbours); knows no agents or environments.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
