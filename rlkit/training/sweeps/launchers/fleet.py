"""`Fleet`: groups that processes elsewhere train, which may be asked to stop. No JAX."""


class Fleet:
    """Groups that processes elsewhere train, which may be asked to stop."""

    def __init__(self) -> None:
        self.stop_reason: str | None = None
        """Why it was asked to stop; None: it was not."""

    def request_stop(self, reason: str) -> None:
        """Lets each group finish its outer iteration, and save it.

        Safe to call from signal handlers.
        """
        self.stop_reason = reason
