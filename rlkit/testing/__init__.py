"""Laws that every environment must keep, to test your own with: in pytest, or as functions.

`list_laws()` says what there is. A law raises `AssertionError`, with what is wrong, or does
nothing. May import all of rlkit but the command line; imports pytest nowhere.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
