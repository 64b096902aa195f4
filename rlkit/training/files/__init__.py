"""What a run leaves on disk: run directory, description, checkpoints; and how large a replay memory
is.

May import `training.core`, `training.logs` and the settings; knows neither the Trainer nor its
programs.
"""
