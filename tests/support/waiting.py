"""Waiting for a condition, and saying which one did not come."""
import os
import signal
import time

# Only a failure takes this long, however busy the machine is. A sanitizer makes everything several times slower.
PATIENCE = 180 if os.environ.get("HEADGATE_SANITIZED") else 60
# In the background of a shell it is ignored, and so it would be by every program that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
DAY = 24 * 3600
BEFORE_MIDNIGHT = 180  # seconds that a script may take


def avoid_midnight():
    """Daily quotas and windows of a day begin anew at midnight UTC: a script that would run into it starts after it."""
    left = DAY - time.time() % DAY
    if left < BEFORE_MIDNIGHT:
        time.sleep(left + 1)


def wait_until(holds, what):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = holds()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {PATIENCE} s in vain: {what}")
