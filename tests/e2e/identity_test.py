#!/usr/bin/env python3
"""Which cell is charged: names that are similar or made to collide, and keys of limits that callers name."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import unittest

import harness
import redis

POLICIES = """
policies:
  - {id: few, key: [agent, session], limit: {strategy: fixed_window, limit: 3, window: 24h}}
exempt: [monitoring]
"""


class Identity(unittest.TestCase):
    def serve(self, *arguments, policies=POLICIES):
        server = harness.Server(*arguments, policies=policies)
        self.addCleanup(server.__exit__)
        return server

    @contextlib.contextmanager
    def resp(self, server, **options):
        client = redis.Redis("127.0.0.1", server.ports["resp"], socket_timeout=harness.PATIENCE, **options)
        try:
            yield client
        finally:
            client.close()

    def test_names_that_are_made_of_the_same_words(self):
        server = self.serve()
        twins = (("agent-42", "agent-42agent-4*"), ("tenant-007", "tenant-0nant-001"),
                 ("alice@ex.com", "alice@exe@ex.coi"), ("premium-user-42", "premium--user-41"))
        for name, twin in twins:
            for _ in range(3):
                self.assertTrue(server.check(agent=twin)["allowed"])
            self.assertFalse(server.check(agent=twin)["allowed"])
            self.assertEqual(server.check(agent=name)["remaining"], 2, f"{name} pays for {twin}")
        server.manage("PUT", "/api/admin/rate-limits/premium-user-42",
                      {"normal": {"capacity": 1000, "refill_per_minute": 1000}})
        for name, exempt in (("monitoring", True), ("monitorinitorina", False)):
            with self.subTest(name=name):
                self.assertEqual(server.check(agent=name)["reason"] == "The agent is exempt", exempt)

    def test_ordinary_names_one_after_the_other_on_several_threads(self):
        """Against what a map of strings would say: each pair is asked for at once by a connection of its own."""
        server = self.serve("--threads", "2")

        def ask(letter):
            wrong = []
            with self.resp(server) as client:
                asked = {}
                pipe = client.pipeline(transaction=False)
                expected = []
                for n in range(1500):
                    for name in (f"{letter}{n:04}", f"{letter}{n:04}", f"{letter}{n:04}{n % 10}", f"{letter}{n}"):
                        asked[name] = asked.get(name, 0) + 1
                        expected.append((name, asked[name] <= 3, 3 - asked[name]))
                        pipe.execute_command("HG.CHECK", name, "run")
                for (name, allowed, remaining), answer in zip(expected, pipe.execute()):
                    if answer[0] != int(allowed) or (allowed and answer[1] != remaining):
                        wrong.append((name, answer))
            return wrong

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for wrong in pool.map(ask, "saxwhotz"):
                self.assertEqual(wrong, [])

    def test_each_token_of_an_agent_has_throttle_keys_of_its_own(self):
        server = self.serve("--auth", "required")
        secrets = {}
        for agent in ("A", "B"):
            made = server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": agent, "name": agent})
            secrets[agent] = made.json["secret"]
        with self.resp(server, password=secrets["A"]) as a, self.resp(server, password=secrets["B"]) as b, \
                self.resp(server, password=server.token) as admin:
            self.assertEqual([a.execute_command("CL.THROTTLE", "k", 0, 1, 3600)[0] for _ in range(2)], [0, 1])
            self.assertEqual(b.execute_command("CL.THROTTLE", "k", 0, 1, 3600)[0], 0)
            self.assertEqual(admin.execute_command("CL.THROTTLE", "k", 0, 1, 3600)[0], 0)

    def test_keys_of_callers_do_not_keep_others_out(self):
        server = harness.Server(policies=POLICIES, env={"HEADGATE_STORE_MAX_CELLS": "1200"})
        self.addCleanup(server.__exit__)
        with self.resp(server) as client:
            pipe = client.pipeline(transaction=False)
            for n in range(2000):
                pipe.execute_command("CL.THROTTLE", f"k{n}", 0, 1, 315360000)
            refused = sum(answer[0] for answer in pipe.execute())
            self.assertGreater(refused, 0, "the callers' share is not the whole store")
        cells = server.manage("GET", "/api/overview").json["cells"]
        self.assertLessEqual(cells["count"], 600)
        harness.wait_until(lambda: any(alert["kind"] == "cells_full"
                                       for alert in server.manage("GET", "/api/alerts").json["alerts"]), "an alert")
        for n in range(900):
            self.assertTrue(server.check(agent=f"new-{n}")["allowed"], n)
        self.assertEqual(server.manage("PUT", "/api/admin/emergency", {"reason": "test"}).status, 200)
        self.assertEqual(server.manage("DELETE", "/api/admin/emergency").status, 200)
        cleared = server.manage("DELETE", "/api/admin/cells?space=throttle")
        self.assertEqual((cleared.status, cleared.json["space"]), (200, "throttle"))
        self.assertEqual(server.manage("DELETE", "/api/admin/cells?space=throttle").json["cells"], 0)
        self.assertEqual(server.manage("DELETE", "/api/admin/cells").status, 400)
        self.assertEqual(server.call("DELETE", "/api/admin/cells?space=throttle", token="hgt_none").status, 401)
        actions = [entry["action"] for entry in server.manage("GET", "/api/admin/audit").json["entries"]]
        self.assertIn("cells.clear", actions)

    def test_ended_leases_are_bounded_and_still_known(self):
        server = self.serve(policies="policies: [{id: p, limit: {strategy: fixed_window, limit: 1000000, window: 24h}}]")
        connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=harness.PATIENCE)
        with contextlib.closing(connection):
            def call(method, path, body=None):
                connection.request(method, path, json.dumps(body) if body else None)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())

            _, held = call("POST", "/v1/check", {"agent": "A", "operation": "run", "hold": True})
            for _ in range(2):
                status, _ = call("DELETE", f"/v1/leases/{held['lease']}")
                self.assertEqual(status, 200, "ended twice, done once")

    @unittest.skipIf(os.environ.get("HEADGATE_SANITIZED"), "a sanitizer keeps freed memory for a while")
    def test_ended_leases_take_no_more_memory_however_many_they_were(self):
        """Of ended leases 65,536 are remembered: once as many have ended, memory stays as it is."""
        server = self.serve(policies="policies: [{id: p, limit: {strategy: fixed_window, limit: 1000000, window: 24h}}]\n"
                                     "leases: {ttl: 24h}")

        def hold_and_release(client, count):
            for _ in range(count // 1000):
                pipe = client.pipeline(transaction=False)
                for _ in range(1000):
                    pipe.execute_command("HG.CHECK", "A", "run", "HOLD")
                leases = [answer[6] for answer in pipe.execute()]
                for lease in leases:
                    pipe.execute_command("HG.RELEASE", lease)
                self.assertEqual(sum(pipe.execute()), 1000)

        def resident():
            return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{server.process.pid}/status").read_text()).group(1))

        with self.resp(server) as client:
            hold_and_release(client, 70_000)
            before = resident()
            hold_and_release(client, 80_000)
            # What is remembered of each is about 350 bytes: of all of them 27 MiB.
            self.assertLess(resident() - before, 8 * 1024)


if __name__ == "__main__":
    harness.main()
