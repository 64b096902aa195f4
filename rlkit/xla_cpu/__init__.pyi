from .process import Report as Report
from .process import disable as disable
from .process import enable as enable
from .xla_options import compiler_options as compiler_options
