#!/usr/bin/env python3
"""Secrets do not leak: into the environment of commands, into --print-config, or into rows of the ledger."""

import sqlite3
import sys
import unittest

import harness
from harness import Server, headgate, wait_until

SECRETS = {"HEADGATE_STORE_URL": "redis://:pw@127.0.0.1:1", "HEADGATE_WEBHOOK_SECRET": "s",
           "HEADGATE_WEBHOOK_URL": "http://u:pw@127.0.0.1:1/", "HEADGATE_STORE_SENTINEL_PASSWORD": "pw",
           "HEADGATE_DATABASE": "postgres://u:pw@127.0.0.1:1/x"}


class Secrets(unittest.TestCase):
    def test_a_command_under_quotas_gets_no_token(self):
        with Server() as server:
            env = {**SECRETS, "HEADGATE_URL": server.url, "HEADGATE_TOKEN": server.token, "OTHER": "kept"}
            show = "import os; print(sorted(k for k in os.environ if k.startswith('HEADGATE_') or k == 'OTHER'))"
            done = headgate("run", "--user", "42", "--type", "shell", "--", sys.executable, "-c", show, env=env)
            self.assertEqual((done.returncode, done.stdout.strip()), (0, "['HEADGATE_URL', 'OTHER']"), done.stderr)

    def test_print_config_shows_no_password_of_the_webhook(self):
        shown = headgate("serve", "--print-config", env={"HEADGATE_WEBHOOK_URL": "https://ann:hunter2@example.org/x"})
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertNotIn("hunter2", shown.stdout)
        plain = headgate("serve", "--print-config", env={"HEADGATE_WEBHOOK_URL": "https://example.org/a@b"})
        self.assertIn("https://example.org/a@b", plain.stdout)

    def test_refused_checks_of_made_up_sessions_share_one_row(self):
        with Server() as server:
            put = server.manage("PUT", "/api/quotas/user/bob", {"types": {"shell": {"daily": 1, "session": 1}}})
            self.assertEqual(put.status, 200, put.body)
            ask = {"user": "bob", "type": "shell"}
            for i in range(50):
                server.manage("POST", "/api/quotas/check", {**ask, "session": f"made-up-{i}"})

            def refused():
                usage = server.manage("GET", "/api/quotas/usage?user_id=bob").json["usage"]
                return usage and usage[0]["refused"] == 49
            wait_until(refused, "all refusals are counted")
            path = next(file for file in server.data.glob("*.db") if "ledger" in file.name)
            with sqlite3.connect(path) as ledger:
                table = next(name for (name,) in ledger.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
                             if "usage" in name)
                self.assertEqual(ledger.execute(f"SELECT count(*) FROM {table}").fetchone()[0], 2)


if __name__ == "__main__":
    harness.main()
