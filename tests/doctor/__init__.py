"""Tests of the doctor. The rule that scores it on the zoo is not in the package: `zoo/` is beside `tests/`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
