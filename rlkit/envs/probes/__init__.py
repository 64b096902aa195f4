"""Probe environments with known answers: each isolates one thing that an agent can get wrong.

May import `types` and `errors`, but nothing else from `envs`.
"""
