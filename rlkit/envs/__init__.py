"""Environments: any JAX environment, batched and resetting itself. Names load on first use;
importing this imports no JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
