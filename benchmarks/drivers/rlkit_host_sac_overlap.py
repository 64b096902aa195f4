"""rlkit's SAC on a host environment with `overlap="update"`: it acts by a policy one update old."""

import functools

from rlkit_host_sac import build, run

if __name__ == "__main__":
    run(functools.partial(build, overlap="update"))
