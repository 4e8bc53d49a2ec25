#!/usr/bin/env python3
"""Load and memory: reports that expire, emergencies that end, sensors, and an alert when memory runs short."""

import unittest

import harness

DEFAULT_SENSORS = {"HEADGATE_LOAD_SENSORS": None}
RUNS = "{id: runs, match: {operations: [run]}, limit: 100/1h}"
AUTO_THROTTLE = """
emergency: {autoThrottle: true, loadThreshold: 0.9, throttleFactor: 0.1}
globalPolicies:
  - {id: all, strategy: SLIDING_WINDOW, operations: ["*"], maxRequests: 1000, timeWindow: 60}
"""


def emergency(server):
    return server.manage("GET", "/api/admin/emergency").json["active"]


def load(server):
    return server.manage("GET", "/api/admin/load").json


class Reported(unittest.TestCase):
    def test_an_automatic_emergency_ends_when_its_report_expires(self):
        with harness.Server(policies=f"adaptive: {{dwell: 0s}}\npolicies: [{RUNS}]",
                            env={"HEADGATE_LOAD_REPORT_TTL": "1s"}) as server:
            self.assertEqual(server.manage("PUT", "/api/admin/load", {"load": 0.95}).status, 200)
            harness.wait_until(lambda: load(server)["load"] is None, "the end of the report")
            harness.wait_until(lambda: not emergency(server), "the end of the emergency")
            harness.wait_until(lambda: load(server)["factor"] == 1, "limits at their base")

    def test_it_ends_at_once_when_the_report_is_deleted(self):
        with harness.Server() as server:
            self.assertEqual(server.manage("PUT", "/api/admin/load", {"load": 0.95}).status, 200)
            self.assertTrue(emergency(server))
            self.assertEqual(server.manage("DELETE", "/api/admin/load").status, 200)
            self.assertFalse(emergency(server))

    def test_what_a_person_turned_on_stays_on(self):
        with harness.Server(env={"HEADGATE_LOAD_REPORT_TTL": "1s"}) as server:
            self.assertEqual(server.manage("PUT", "/api/admin/emergency", {"reason": "drill"}).status, 200)
            self.assertEqual(server.manage("PUT", "/api/admin/load", {"load": 0.95}).status, 200)
            self.assertEqual(server.manage("DELETE", "/api/admin/load").status, 200)
            self.assertTrue(emergency(server))


class Sensors(unittest.TestCase):
    def test_they_are_read_by_default_and_limits_do_not_follow_them(self):
        with harness.Server(policies=f"policies: [{RUNS}]", env=DEFAULT_SENSORS) as server:
            known = harness.wait_until(lambda: load(server)["load"] is not None and load(server), "a load")
            self.assertIs(known["sensors"], False)
            self.assertEqual((known["reported"], known["factor"]), (None, 1))
            self.assertEqual(server.check()["limit"], 100)
            status = server.manage("GET", "/api/quotas/user/42").json
            self.assertIsInstance(status["system_load"], (int, float))

    def test_limits_follow_them_where_the_document_says_so(self):
        for document in (AUTO_THROTTLE, f"adaptive: {{sensors: true}}\npolicies: [{RUNS}]"):
            with harness.Server(policies=document) as server:
                self.assertIs(load(server)["sensors"], True)


class Memory(unittest.TestCase):
    def test_there_is_an_alert_when_the_server_has_most_of_its_memory(self):
        with harness.Server(env={"HEADGATE_LIMITS_PROCESS_MEMORY": "1000000"}) as server:
            def told():
                return [a for a in server.manage("GET", "/api/alerts").json["alerts"] if a["kind"] == "memory"]

            (alert,) = harness.wait_until(told, "an alert")
            self.assertGreater(alert["value"], 0.8)
            self.assertRegex(alert["text"], "^the server uses [0-9]+ of 1 MiB of memory")


if __name__ == "__main__":
    harness.main()
