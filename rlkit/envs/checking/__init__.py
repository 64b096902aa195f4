"""`check_env` and its checks: reports contract violations and how to fix them.

May import every other folder of `envs`. Nothing else in rlkit imports it, except
`envs/__init__.pyi` and the command line.
"""
