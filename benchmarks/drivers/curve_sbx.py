"""SBX's learning curves."""

import sbx
from curve_stable_baselines import run
from flax import linen
from sbx_ppo import PACKAGES

if __name__ == "__main__":
    run(sbx, {"tanh": linen.tanh, "relu": linen.relu}, (*PACKAGES, "mujoco"))
