#!/usr/bin/env python3
"""What the server does with its folder: whose mode it changes, what it takes for a first start, how much one user may fill."""

import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

import harness


def start_refused(data):
    """The words of a server that does not start."""
    done = subprocess.run([harness.BINARY, "serve", "--data", str(data), "--http", "127.0.0.1:0", "--resp", "off", "--grpc",
                           "off"], capture_output=True, text=True, timeout=harness.PATIENCE)
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


if __name__ == "__main__":
    harness.main()
