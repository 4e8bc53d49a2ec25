#!/usr/bin/env python3
"""While another program holds a write lock on the database, checks, /readyz and the emergency throttle are answered."""

import contextlib
import sqlite3
import unittest

import harness
from harness import Server, wait_until

POLICIES = """
policies:
  - {id: ten, limit: {strategy: fixed_window, limit: 10, window: 24h}, key: [agent]}
"""


class LockedDatabase(unittest.TestCase):
    def test_all_is_answered_while_another_program_holds_the_lock(self):
        with Server("--threads", "1", policies=POLICIES) as server:
            for _ in range(5):
                self.assertTrue(server.check()["allowed"])
            with contextlib.closing(sqlite3.connect(server.data / "headgate.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                # One thread serves all of them: each would wait for the one before it.
                for _ in range(20):
                    self.assertIn(server.call("GET", "/readyz").status, (200, 503))
                self.assertTrue(server.check()["allowed"])
                on = server.manage("PUT", "/api/admin/emergency", {"reason": "runaway"})
                self.assertEqual((on.status, on.json.get("active"), on.json.get("kept")), (200, True, False), on.body)
                self.assertIn("in use by another program", on.json["not_kept"])
                self.assertFalse(server.check()["allowed"])
                self.assertEqual(server.manage("GET", "/api/admin/audit").status, 200, "reading waits for no writer")
                self.assertEqual(server.call("GET", "/readyz").status, 503)
                self.assertTrue(other.in_transaction, "the lock is still held")
                other.execute("ROLLBACK")
            wait_until(lambda: server.call("GET", "/readyz").status == 200, "the change is kept")
            actions = [each["action"] for each in server.manage("GET", "/api/admin/audit").json["entries"]]
            self.assertIn("emergency.on", actions)


class FullStore(unittest.TestCase):
    def test_the_brake_works_when_there_is_no_room_for_another_cell(self):
        with Server(policies=POLICIES, env={"HEADGATE_STORE_MAX_CELLS": "1"}) as server:
            for _ in range(5):
                self.assertTrue(server.check()["allowed"])
            denied = [server.check(agent=f"other-{i}") for i in range(300)]
            self.assertIn(False, [each["allowed"] for each in denied], "the store is full")
            on = server.manage("PUT", "/api/admin/emergency", {"reason": "runaway"})
            self.assertEqual((on.status, on.json["active"]), (200, True))
            self.assertFalse(server.check()["allowed"])
            self.assertEqual(server.manage("DELETE", "/api/admin/emergency").status, 200)
            self.assertTrue(server.check()["allowed"])


if __name__ == "__main__":
    harness.main()
