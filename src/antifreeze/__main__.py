"""`python -m antifreeze`: the command line, for a Python whose scripts are not on PATH."""

import sys

from antifreeze.cli.main import main

sys.exit(main())
