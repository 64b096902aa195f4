"""Tuning for XLA on GPUs, all in one folder; README.md says what each trick gains.

May import only `errors` and `tuning_switch`; everything above may use it, and works without it.
"""
