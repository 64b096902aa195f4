"""Flags that make a run of the command line tiny."""

NETWORK_AND_UPDATE = ["--num-minibatches", "2", "--num-epochs", "1", "--hidden-sizes", "8"]
TINY = ["--num-envs", "2", "--num-steps", "16", *NETWORK_AND_UPDATE]
