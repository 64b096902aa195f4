"""What a run leaves on disk: run directory, description, checkpoints; and the replay memory's size.

May import `training.core`, `training.logs` and the settings; knows neither the Trainer nor its
programs.
"""
