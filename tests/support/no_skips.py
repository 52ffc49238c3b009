"""Whether a skipped test is a failure, as in CI."""

import os


def failed_if_skipped(report):
    """With SCOREFOLD_NO_SKIPS=1, as `.ci/run` has it, what was skipped has failed."""
    if os.environ.get("SCOREFOLD_NO_SKIPS") == "1" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"expected no test to be skipped here; got {reason!r}"
    return report
