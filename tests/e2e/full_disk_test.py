#!/usr/bin/env python3
"""The emergency throttle, revocation and policies work on a full disk, and are written once there is space."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import Server, wait_until

POLICIES = """
policies:
  - {id: ten, limit: {strategy: fixed_window, limit: 10, window: 24h}, key: [agent]}
"""


def in_own_mounts():
    """Starts this script again where it may mount a file system of its own."""
    if "HEADGATE_TEST_MOUNTS" in os.environ:
        return
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    os.environ["HEADGATE_TEST_MOUNTS"] = "none"
    if shutil.which("unshare") and subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
        os.environ["HEADGATE_TEST_MOUNTS"] = "own"
        os.execvp(unshare[0], [*unshare, sys.executable, *sys.argv])


@unittest.skipUnless(os.environ.get("HEADGATE_TEST_MOUNTS") == "own", "no file system can be mounted here")
class FullDisk(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder.name], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", folder.name], check=True)
        self.data = pathlib.Path(folder.name) / "data"
        self.data.mkdir(mode=0o700)
        self.filler = pathlib.Path(folder.name) / "filler"
        self.server = self.start()

    def start(self):
        server = Server(data=self.data, policies=POLICIES)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def fill(self):
        with open(self.filler, "wb", buffering=0) as file:
            for size in (65536, 4096):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    pass

    def test_executions_leave_a_reserve_free(self):
        def record():
            return self.server.manage("POST", "/api/quotas/executions", {"user_id": "alice", "command_type": "shell"})
        self.assertEqual(record().status, 200)
        self.filler.write_bytes(b"x" * (5 << 20))
        wait_until(lambda: record().status == 503, "less than half of the small disk is free")
        self.assertEqual(record().json["error"], "disk_low")
        wait_until(lambda: "disk_low" in self.alerts(), "an alert")
        self.filler.unlink()
        wait_until(lambda: record().status == 200, "there is room again")

    def alerts(self):
        return {alert["kind"] for alert in self.changed("GET", "/api/alerts")["alerts"]}

    def changed(self, method, path, body=None):
        answer = self.server.manage(method, path, body)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json

    def test_brake_and_revocation_work_at_once_and_are_kept_when_there_is_room(self):
        made = self.server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "A"})
        self.assertEqual(made.status, 201)
        secret = made.json["secret"]
        for _ in range(5):
            self.assertTrue(self.server.check()["allowed"])
        self.fill()
        self.assertIs(self.changed("PUT", "/api/admin/emergency", {"reason": "first"})["kept"], False)
        self.assertFalse(self.server.check()["allowed"], "the brake works")
        on = self.changed("PUT", "/api/admin/emergency", {"reason": "runaway"})
        self.assertEqual((on["active"], on["reason"], on["kept"]), (True, "runaway", False))
        self.assertIn("full", on["not_kept"])

        asked = {"agent": "A", "operation": "run"}
        self.assertEqual(self.server.call("POST", "/v1/check", asked, token=secret).status, 200)
        revoked = self.changed("DELETE", f"/api/admin/tokens/{made.json['id']}")
        self.assertEqual((revoked["revoked"], revoked["kept"]), (True, False))
        self.assertEqual(self.server.call("POST", "/v1/check", asked, token=secret).status, 401, "revoked at once")

        tier = {"light": {"capacity": 1, "refill_per_minute": 1}}
        self.assertIs(self.changed("PUT", "/api/admin/rate-limits/B", tier)["kept"], False)
        put = self.changed("PUT", "/api/admin/policies", POLICIES.replace("10", "30"))
        self.assertIs(put["kept"], False)
        listed = self.changed("GET", "/api/admin/policies")["policies"]
        self.assertEqual(listed[0]["limits"], ["fixed_window 30/1d"])
        versions = [each["id"] for each in self.changed("GET", "/api/admin/policies/versions")["versions"]]
        self.assertIn(put["version"], versions, "also while it is in memory only")
        self.assertEqual(self.server.manage("POST", "/api/admin/tokens", {"role": "viewer"}).status, 503,
                         "no secret is given out that a restart forgets")
        ready = self.server.call("GET", "/readyz")
        self.assertEqual(ready.status, 503)
        self.assertIn("full", str(ready.json["reasons"]))

        self.filler.unlink()
        wait_until(lambda: self.server.call("GET", "/readyz").status == 200, "all is kept")
        actions = [each["action"] for each in self.changed("GET", "/api/admin/audit")["entries"]]
        for action in ("emergency.on", "token.revoke", "override.set", "policies.replace"):
            self.assertIn(action, actions)
        wait_until(lambda: {"database_down", "database_up"} <= self.alerts(), "alerts of both")

        self.server.stop(how=9)
        self.server = self.start()
        self.assertEqual(self.changed("GET", "/api/admin/emergency")["reason"], "runaway", "the later one")
        self.assertEqual(self.server.call("POST", "/v1/check", asked, token=secret).status, 401)
        self.assertIn("B", self.changed("GET", "/api/admin/rate-limits")["overrides"])
        self.assertEqual(self.changed("GET", "/api/admin/policies")["version"], put["version"])

    def test_nothing_that_was_not_kept_is_there_after_a_crash_and_the_answer_had_said_so(self):
        self.fill()
        self.assertIs(self.changed("PUT", "/api/admin/emergency", {"reason": "lost"})["kept"], False)
        self.server.stop(how=9)
        self.filler.unlink()
        self.server = self.start()
        self.assertFalse(self.changed("GET", "/api/admin/emergency")["active"])
        self.assertNotIn("kept", self.changed("PUT", "/api/admin/emergency", {"reason": "kept"}))


if __name__ == "__main__":
    in_own_mounts()
    harness.main()
