"""How many examples of a property are tried: a fifth of what `make test-long` tries, which sets ANTIFREEZE_EXAMPLES=1.

ANTIFREEZE_EXAMPLES=50 python -m pytest tests/drop_in/test_resume_property.py
"""

import os

from hypothesis import HealthCheck


class _Examples:
    times = float(os.environ.get("ANTIFREEZE_EXAMPLES", "0.2"))
    suppressed = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
    deadline_s = 300 * max(1.0, times)

    def count(self, usual: int) -> int:
        """So many instead of the usual number; at least one."""
        return max(1, round(usual * self.times))


examples = _Examples()
