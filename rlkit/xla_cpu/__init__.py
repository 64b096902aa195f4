"""Tuning for XLA on CPUs, all in one room; README.md says what each trick gains.

May import `errors`; everything above may use it, and works without it.
"""
