"""Waiting for a condition, and saying which one did not come."""
import os
import time

# A sanitizer makes everything several times slower.
PATIENCE = 120 if os.environ.get("HEADGATE_SANITIZED") else 30


def wait_until(holds, what):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = holds()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {PATIENCE} s in vain: {what}")
