"""Environments with known answers: each isolates one thing that a learner can get wrong.

May import `types` and `errors`; knows no other room of `envs`.
"""
