"""`python -m rlkit`: the command line, where its script is not on the PATH."""

import sys

from rlkit.cli.main import main

sys.exit(main())
