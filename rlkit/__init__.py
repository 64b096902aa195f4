"""rlkit: reinforcement learning in JAX, with jittable and host environments.

Names are imported when first used, so that `import rlkit` is cheap; `__init__.pyi` lists them.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
