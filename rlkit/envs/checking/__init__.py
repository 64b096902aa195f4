"""All of `check_env`: whether an environment keeps the contract, and what to mend where it does
not.

May import every other room of `envs`; nothing in rlkit but `envs/__init__.pyi` and the command line
imports it.
"""
