#!/usr/bin/env python3
"""The data folder: its mode, what counts as a first start, and how much of the disk one user may fill."""

import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

import harness


def start_refused(data, before=()):
    """The words of a server that does not start."""
    done = subprocess.run([*before, harness.BINARY, "serve", "--data", str(data), "--http", "127.0.0.1:0", "--resp", "off",
                           "--grpc", "off"], capture_output=True, text=True, timeout=harness.PATIENCE)
    return done.returncode, done.stderr


class DataFolder(unittest.TestCase):
    def test_a_folder_that_was_there_keeps_its_mode(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            with harness.Server(data=folder):
                self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o755)
                for name in ("admin.token", "headgate.db"):
                    self.assertEqual(stat.S_IMODE((pathlib.Path(folder) / name).stat().st_mode) & 0o077, 0, name)

    def test_a_folder_that_is_made_is_closed_to_others(self):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder) / "new"
            with harness.Server(data=data):
                self.assertEqual(stat.S_IMODE(data.stat().st_mode), 0o700)

    def test_too_few_open_files_are_no_start(self):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder) / "new"
            status, words = start_refused(data, before=("sh", "-c", 'ulimit -n 63 && exec "$@"', "sh"))
            self.assertEqual(status, 1, words)
            self.assertIn("open files: needs at least 64, has 63", words)
            self.assertFalse(data.exists(), "nothing is made")

    def test_an_empty_or_missing_database_beside_other_files_is_no_first_start(self):
        for lose in (lambda path: path.write_bytes(b""), lambda path: path.unlink()):
            with tempfile.TemporaryDirectory() as folder:
                with harness.Server(data=folder):
                    pass
                token = (pathlib.Path(folder) / "admin.token").read_text()
                for file in pathlib.Path(folder).glob("headgate.db*"):
                    lose(file)
                status, words = start_refused(folder)
                self.assertEqual(status, 1, words)
                self.assertIn("headgate.db: is ", words)
                self.assertIn("admin.token", words)
                self.assertEqual((pathlib.Path(folder) / "admin.token").read_text(), token)


class Records(unittest.TestCase):
    def test_one_user_fills_the_ledger_no_faster_than_it_may(self):
        env = {"HEADGATE_LEDGER_RECORDS_PER_SECOND": "1", "HEADGATE_LEDGER_RECORDS_PER_DAY": "70"}
        with harness.Server(env=env) as server:
            record = {"user_id": "alice", "command_type": "shell"}
            answers = [server.manage("POST", "/api/quotas/executions", record) for _ in range(80)]
            statuses = [answer.status for answer in answers]
            self.assertEqual(statuses[:60], [200] * 60)
            self.assertIn(429, statuses)
            refused = answers[statuses.index(429)]
            self.assertEqual(refused.json["error"], "too_many_records")
            self.assertGreaterEqual(int(refused.headers["Retry-After"]), 1)
            other = server.manage("POST", "/api/quotas/executions", {"user_id": "bob", "command_type": "shell"})
            self.assertEqual(other.status, 200)

    def test_a_token_that_makes_up_users_fills_the_ledger_no_faster_either(self):
        env = {"HEADGATE_LEDGER_TOKEN_RECORDS_PER_SECOND": "1", "HEADGATE_LEDGER_TOKEN_RECORDS_PER_DAY": "70"}
        with harness.Server(env=env) as server:
            def token(role, **bound):
                return server.manage("POST", "/api/admin/tokens", {"role": role, **bound}).json["secret"]

            def record(secret, user):
                return server.call("POST", "/api/quotas/executions", {"user_id": user, "command_type": "shell"},
                                   token=secret)
            for role in "agent", "gateway":
                loose = token(role)
                answers = [record(loose, f"{role}-{i}") for i in range(80)]
                statuses = [answer.status for answer in answers]
                self.assertEqual(statuses[:60], [200] * 60, role)
                refused = answers[statuses.index(429)]
                self.assertEqual(refused.json["error"], "too_many_records")
                self.assertIn("ledger.token_records_per_second", refused.json["message"])
                self.assertGreaterEqual(int(refused.headers["Retry-After"]), 1)
            bound = token("agent", user="alice")
            for _ in range(80):
                self.assertEqual(record(bound, "alice").status, 200, "who speaks for one user is bounded by the user")
                self.assertEqual(record(server.token, "bob").status, 200, "an admin may record for all")

    def test_a_token_that_makes_up_users_adds_no_row_with_every_refusal(self):
        env = {"HEADGATE_LEDGER_TOKEN_RECORDS_PER_SECOND": "1", "HEADGATE_LEDGER_INTERVAL": "1ms"}
        with harness.Server(env=env) as server:
            plan = {"types": {"shell": {"daily": 0}}}
            self.assertEqual(server.manage("PUT", "/api/quotas/plans/none", plan).status, 200)
            secret = server.manage("POST", "/api/admin/tokens", {"role": "gateway", "plan": "none"}).json["secret"]
            for i in range(100):
                answer = server.call("POST", "/api/quotas/check", {"user": f"u{i}", "type": "shell"}, token=secret).json
                self.assertEqual((answer["allowed"], answer["error"]), (False, "quota_exceeded"))

            def rows():
                usage = server.manage("GET", "/api/quotas/usage?limit=1000").json["usage"]
                return len([row for row in usage if row["refused"]])
            harness.wait_until(lambda: rows() >= 60, "the rows of a minute")
            self.assertLess(rows(), 90)


if __name__ == "__main__":
    harness.main()
