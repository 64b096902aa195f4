"""A callback that stops runs."""

from rlkit import Callback


class StopAt(Callback):
    """Asks for a stop after an outer iteration."""

    def __init__(self, iteration):
        self.iteration = iteration

    def on_iteration_end(self, trainer, iteration, metrics):
        if iteration == self.iteration:
            trainer.request_stop("asked to")
