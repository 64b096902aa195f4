"""Tuning for XLA on CPUs, all in one folder; README.md says what each trick gains.

May import only `errors` and `tuning_switch`; everything above may use it, and works without it.
Names are imported when first used; importing anything here changes nothing in the process.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
