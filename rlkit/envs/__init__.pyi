from .base import EnvAdapter, JaxEnv
from .checking.check_env import CheckReport, check_env
from .host.base import HostAdapter
from .host.envpool import EnvPoolAdapter
from .host.gymnasium import GymnasiumAdapter
from .host.resume_by_replay import ResumeByReplay
from .jittable.contract import Finding
from .jittable.gymnax import GymnaxAdapter, GymnaxEnv, gymnax_env
from .jittable.observation_wrappers import (
    CastObservation,
    FlattenObservation,
    FrameStack,
    SelectObservation,
)
from .jittable.vectorized import VectorizedEnv, vectorize
from .jittable.wrappers import RescaleAction, TimeLimit, Wrapper
from .registry import list_envs, make_env, register_env, register_suite

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
    "HostAdapter",
    "JaxEnv",
    "RescaleAction",
    "ResumeByReplay",
    "SelectObservation",
    "TimeLimit",
    "VectorizedEnv",
    "Wrapper",
    "check_env",
    "gymnax_env",
    "list_envs",
    "make_env",
    "register_env",
    "register_suite",
    "vectorize",
]
