from .battery import check_law, list_laws
from .comparison import assert_same
from .episodes import (
    check_contract,
    jit_equals_eager,
    resets_restart,
    same_seed_same_episode,
    time_limit_truncates,
    vmap_equals_loop,
)
from .runs import exports_the_same_actions, resumes_exactly, trains

__all__ = [
    "assert_same",
    "check_contract",
    "check_law",
    "exports_the_same_actions",
    "jit_equals_eager",
    "list_laws",
    "resets_restart",
    "resumes_exactly",
    "same_seed_same_episode",
    "time_limit_truncates",
    "trains",
    "vmap_equals_loop",
]
