"""Environments of all kinds, as batches that reset themselves.

Names are loaded on first use, so importing this package does not import JAX. May import `ops`,
`types` and `spaces`, but nothing of agents, algorithms or training.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
