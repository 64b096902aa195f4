from .config import OptimizerConfig as OptimizerConfig
from .optimizer import create_optimizer as create_optimizer
from .schedules import create_schedule as create_schedule
from .schedules import current_learning_rate as current_learning_rate
from .schedules import scale_by_progress as scale_by_progress
from .small_arrays import Elementwise as Elementwise
from .small_arrays import elementwise as elementwise
