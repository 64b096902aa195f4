"""Signals that a shell has this process ignore."""

import signal


def hear_signals() -> None:
    """Ctrl-C and SIGHUP are heard, which a process in the background, and one under `nohup`, and
    all that they start, ignore.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
