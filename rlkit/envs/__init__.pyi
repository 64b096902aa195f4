from .base import EnvAdapter, JaxEnv
from .checking import CheckReport, check_env
from .contract import Finding
from .envpool import EnvPoolAdapter
from .gymnasium import GymnasiumAdapter
from .gymnax import GymnaxAdapter, GymnaxEnv, gymnax_env
from .observation_wrappers import CastObservation, FlattenObservation, FrameStack
from .registry import list_envs, make_env, register_env
from .vectorized import VectorizedEnv, vectorize
from .wrappers import RescaleAction, TimeLimit

__all__ = [
    "CastObservation",
    "CheckReport",
    "EnvAdapter",
    "EnvPoolAdapter",
    "Finding",
    "FlattenObservation",
    "FrameStack",
    "GymnasiumAdapter",
    "GymnaxAdapter",
    "GymnaxEnv",
    "JaxEnv",
    "RescaleAction",
    "TimeLimit",
    "VectorizedEnv",
    "check_env",
    "gymnax_env",
    "list_envs",
    "make_env",
    "register_env",
    "vectorize",
]
