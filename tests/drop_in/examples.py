"""How many examples of a property are tried: few, unless ANTIFREEZE_EXAMPLES says how many times as many.

ANTIFREEZE_EXAMPLES=50 python -m pytest tests/drop_in/test_resume_property.py
"""

import os

from hypothesis import HealthCheck


class _Examples:
    times = int(os.environ.get("ANTIFREEZE_EXAMPLES", "1"))
    suppressed = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
    deadline_s = 120 * times

    def count(self, few: int) -> int:
        return few * self.times


examples = _Examples()
