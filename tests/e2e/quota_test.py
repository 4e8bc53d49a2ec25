#!/usr/bin/env python3
"""Quotas and the ledger: kill -9, an unreachable PostgreSQL, a full disk, several nodes."""

import csv
import http.client
import io
import json
import random
import signal
import sqlite3
import tempfile
import threading
import unittest

import harness
from cluster_harness import Redis, nodes
from postgres_harness import Postgres

SYNC = {"HEADGATE_DURABILITY": "sync"}


def check(server, user="42", kind="shell", **more):
    return server.manage("POST", "/api/quotas/check", {"user": user, "type": kind, **more})


def used(server, user="42", kind="shell", period="daily"):
    return server.manage("GET", f"/api/quotas/user/{user}").json[period][kind]["used"]


class Askers:
    """Clients that ask over connections of their own until they are told to stop, and count what was answered."""

    def __init__(self, server, count=4):
        self.server = server
        self.answered = 0
        self.lock = threading.Lock()
        self.ending = threading.Event()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _run(self):
        while not self.ending.is_set():
            try:
                answer = check(self.server)
            except OSError:
                return
            except Exception:  # the server is killed in the middle of an answer
                return
            if answer.status != 200 or not answer.json["allowed"]:
                return
            with self.lock:
                self.answered += 1

    def end(self):
        self.ending.set()
        for thread in self.threads:
            thread.join(harness.PATIENCE)


class Crash(unittest.TestCase):
    def test_every_answered_charge_survives_kill_9_with_durability_sync(self):
        chance = random.Random(20261116)
        with tempfile.TemporaryDirectory() as data:
            answered = 0
            for crash in range(20):
                server = harness.Server(data=data, env=SYNC)
                with server:
                    if crash == 0:
                        self.assertEqual(server.manage("PUT", "/api/quotas/user/42", {"plan": "enterprise"}).status, 200)
                    self.assertGreaterEqual(used(server), answered, f"after {crash} crashes")
                    base = used(server)
                    askers = Askers(server)
                    goal = chance.randrange(1, 60)
                    harness.wait_until(lambda: askers.answered >= goal, "answers")
                    server.stop(signal.SIGKILL)
                    askers.end()
                    answered = base + askers.answered
            with harness.Server(data=data, env=SYNC) as server:
                self.assertGreaterEqual(used(server), answered)
                self.assertLessEqual(used(server), answered + 20 * 4)  # one under way for each client, at most
                self.assertEqual(used(server, period="monthly"), used(server))

    def test_all_but_the_last_interval_survives_kill_9_with_durability_async(self):
        with tempfile.TemporaryDirectory() as data:
            env = {"HEADGATE_LEDGER_INTERVAL": "20ms"}
            with harness.Server(data=data, env=env) as server:
                for _ in range(50):
                    self.assertTrue(check(server).json["allowed"])
                # Whoever looks at the ledger has it written first; then nothing of these can be lost.
                usage = server.manage("GET", "/api/quotas/usage?user_id=42").json["usage"]
                self.assertEqual(usage[0]["commands"], 50)
                server.stop(signal.SIGKILL)
            with harness.Server(data=data, env=env) as server:
                self.assertEqual(used(server), 50)

    def test_a_clean_stop_keeps_everything(self):
        with tempfile.TemporaryDirectory() as data:
            with harness.Server(data=data) as server:
                for _ in range(7):
                    check(server)
                server.manage("POST", "/api/quotas/executions", {"user_id": "42", "command_type": "shell"})
                self.assertEqual(server.stop(), 0)
            with harness.Server(data=data) as server:
                self.assertEqual(used(server), 7)
                self.assertEqual(len(server.manage("GET", "/api/quotas/executions").json["executions"]), 1)

    def test_rules_and_plans_survive_a_restart(self):
        with tempfile.TemporaryDirectory() as data:
            with harness.Server(data=data) as server:
                plan = {"types": {"deploy": {"daily": 3, "weekly": None, "monthly": None}}, "timezone": "Asia/Tokyo"}
                self.assertEqual(server.manage("PUT", "/api/quotas/plans/team", plan).status, 200)
                self.assertEqual(server.manage("PUT", "/api/quotas/user/42", {"plan": "team"}).status, 200)
                server.stop(signal.SIGKILL)
            with harness.Server(data=data) as server:
                status = server.manage("GET", "/api/quotas/user/42").json
                self.assertEqual((status["plan"], status["timezone"]), ("team", "Asia/Tokyo"))
                self.assertEqual(status["daily"]["deploy"]["limit"], 3)
                self.assertIsNone(status["weekly"]["deploy"]["limit"])
                self.assertEqual(server.manage("DELETE", "/api/quotas/plans/team").status, 409)


class History(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()
        for i in range(25):
            answer = cls.server.manage("POST", "/api/quotas/executions", {
                "user_id": "u" if i % 5 else "v", "session_id": f"s{i % 2}", "command_type": "shell",
                "command_hash": "AB" * 32, "duration_ms": 100 + i, "cpu_usage_percent": 12.5, "memory_usage_mb": 64,
                "exit_code": 1 if i % 10 == 0 else 0, "error_message": '=bad, "very"' if i % 10 == 0 else None})
            assert answer.status == 200, answer.body

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def get(self, query):
        answer = self.server.manage("GET", "/api/quotas/executions" + query)
        self.assertEqual(answer.status, 200, answer.body)
        return answer

    def test_pages_hold_everything_once_newest_first(self):
        seen, cursor = [], ""
        while True:
            page = self.get(f"?limit=7{cursor}").json
            seen += page["executions"]
            if not page["next_cursor"]:
                break
            cursor = f"&cursor={page['next_cursor']}"
        self.assertEqual(len(seen), 25)
        self.assertEqual(len({each["id"] for each in seen}), 25)
        times = [each["executed_at"] for each in seen]
        self.assertEqual(times, sorted(times, reverse=True))
        self.assertEqual(seen[0]["command_hash"], "ab" * 32)

    def test_filters_narrow_it(self):
        self.assertEqual(len(self.get("?user_id=v").json["executions"]), 5)
        self.assertEqual(len(self.get("?failed=true").json["executions"]), 3)
        self.assertEqual(len(self.get("?user_id=u&session_id=s1").json["executions"]), 10)
        self.assertEqual(self.get("?since=2100-01-01").json["executions"], [])
        self.assertEqual(self.server.manage("GET", "/api/quotas/executions?since=soon").status, 400)
        self.assertEqual(self.server.manage("GET", "/api/quotas/executions?cursor=x").status, 400)

    def test_csv_reads_back_and_holds_no_formulas(self):
        answer = self.get("?format=csv&limit=10")
        self.assertTrue(answer.headers["Content-Type"].startswith("text/csv"))
        self.assertTrue(answer.headers["X-Next-Cursor"])
        rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
        self.assertEqual(len(rows), 10)
        failed = [row for row in rows if row["exit_code"] == "1"]
        self.assertEqual(failed[0]["error_message"], "'=bad, \"very\"")

    def test_bad_records_are_told_what_is_wrong(self):
        def wrong(**fields):
            answer = self.server.manage("POST", "/api/quotas/executions", {"user_id": "u", "command_type": "t", **fields})
            self.assertEqual(answer.status, 400, fields)
            return answer.json["message"]

        self.assertIn("64 hex digits", wrong(command_hash="xyz"))
        self.assertIn("executed_at must be", wrong(executed_at=5))
        self.assertIn("duration_ms must be", wrong(duration_ms=-1))
        self.assertIn("cpu_usage_percent must be a number", wrong(cpu_usage_percent="much"))
        self.assertIn("did you mean", wrong(exit_cod=1))


class BadFiles(unittest.TestCase):
    def start_error(self, data, **env):
        with self.assertRaises(AssertionError) as caught:
            harness.Server(data=data, env=env)
        return str(caught.exception)

    def test_a_corrupt_ledger_is_refused_and_left_alone(self):
        with tempfile.TemporaryDirectory() as data:
            with open(f"{data}/headgate.ledger.db", "wb") as file:
                file.write(b"this is no database" * 100)
            self.assertIn("headgate.ledger.db", self.start_error(data))
            with open(f"{data}/headgate.ledger.db", "rb") as file:
                self.assertTrue(file.read().startswith(b"this is no database"))

    def test_a_locked_ledger_is_named(self):
        with tempfile.TemporaryDirectory() as data:
            with harness.Server(data=data) as server:
                server.stop()
            lock = sqlite3.connect(f"{data}/headgate.ledger.db", isolation_level=None)
            lock.execute("PRAGMA locking_mode=EXCLUSIVE")
            lock.execute("BEGIN EXCLUSIVE")
            self.assertIn("headgate.ledger.db", self.start_error(data))
            lock.close()
            with harness.Server(data=data) as server:
                self.assertTrue(check(server).json["allowed"])

    def test_settings_that_cannot_be_are_told_at_start(self):
        with tempfile.TemporaryDirectory() as data:
            self.assertIn('did you mean "Europe/Berlin"?', self.start_error(data, HEADGATE_QUOTAS_TIMEZONE="Europe/Berlim"))
            self.assertIn('there is no plan "gold"', self.start_error(data, HEADGATE_QUOTAS_DEFAULT_PLAN="gold"))
            said = self.start_error(data, HEADGATE_DATABASE="postgres://me:hush@127.0.0.1:1/db?connect_timeout=2")
            self.assertNotIn("hush", said)


class InPostgres(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.postgres = Postgres()

    @classmethod
    def tearDownClass(cls):
        cls.postgres.__exit__()

    def test_charges_and_executions_are_there_after_a_restart(self):
        env = {**SYNC, "HEADGATE_DATABASE": self.postgres.url}
        with tempfile.TemporaryDirectory() as data:
            with harness.Server(data=data, env=env) as server:
                for _ in range(5):
                    self.assertTrue(check(server, "pg").json["allowed"])
                server.manage("POST", "/api/quotas/executions", {"user_id": "pg", "command_type": "shell"})
                server.stop(signal.SIGKILL)
            with harness.Server(data=data, env=env) as server:
                self.assertEqual(used(server, "pg"), 5)
                self.assertEqual(len(server.manage("GET", "/api/quotas/executions?user_id=pg").json["executions"]), 1)

    def test_postgres_gone_for_a_while_loses_nothing_that_was_answered(self):
        for durability in ("sync", "async"):
            with self.subTest(durability):
                user = f"gone-{durability}"
                env = {"HEADGATE_DURABILITY": durability, "HEADGATE_DATABASE": self.postgres.url}
                with harness.Server(env=env) as server:
                    answered = sum(check(server, user).status == 200 for _ in range(5))
                    self.postgres.crash()
                    during = [check(server, user) for _ in range(2)]
                    if durability == "sync":
                        self.assertEqual({answer.status for answer in during}, {503})
                        self.assertEqual(during[0].json["error"], "ledger_unavailable")
                    else:
                        self.assertEqual({answer.status for answer in during}, {200})
                        answered += 2
                    harness.wait_until(lambda: server.call("GET", "/readyz").status == 503, "it is not ready")
                    self.postgres.start()
                    harness.wait_until(lambda: server.call("GET", "/readyz").status == 200, "it is ready again")
                    answered += check(server, user).status == 200
                    self.assertEqual(used(server, user), answered)

                    def kinds():
                        return {alert["kind"] for alert in server.manage("GET", "/api/alerts").json["alerts"]}
                    harness.wait_until(lambda: {"ledger_down", "ledger_up"} <= kinds(), "alerts of both")
                    server.stop()
                kept = self.postgres.query(f"SELECT sum(commands) FROM usage WHERE user_id = '{user}'")
                self.assertEqual(int(kept), answered)


class SeveralNodes(unittest.TestCase):
    def test_nodes_share_counters_rules_and_the_ledger(self):
        with Redis() as redis, Postgres() as postgres:
            with nodes(2, redis.url, "policies: []\n", env={"HEADGATE_DATABASE": postgres.url}) as (one, two):
                self.assertEqual(one.manage("PUT", "/api/quotas/user/42", {"types": {"shell": {"daily": 10}}}).status, 200)
                harness.wait_until(lambda: two.manage("GET", "/api/quotas/user/42").json["rule"], "the rule on both")
                allowed = [check(node).json["allowed"] for _ in range(8) for node in (one, two)]
                self.assertEqual(sum(allowed), 10)
                self.assertEqual((used(one), used(two)), (10, 10))
                one.manage("POST", "/api/quotas/executions", {"user_id": "42", "command_type": "shell"})
                one.manage("GET", "/api/quotas/usage")  # has it written
                history = two.manage("GET", "/api/quotas/executions?user_id=42").json["executions"]
                self.assertEqual(len(history), 1)
                usage = two.manage("GET", "/api/quotas/usage?user_id=42").json["usage"]
                self.assertEqual((usage[0]["commands"], usage[0]["refused"]), (10, 6))
                self.assertEqual(two.manage("DELETE", "/api/quotas/user/42").status, 200)
                harness.wait_until(lambda: one.manage("GET", "/api/quotas/user/42").json["rule"] is None, "no rule on both")


class Fairness(unittest.TestCase):
    def test_one_who_asks_much_does_not_starve_one_who_asks_little(self):
        with harness.Server(env={"HEADGATE_QUOTAS_CONCURRENT": "1"}) as server:
            first = check(server, "busy").json
            order = []
            lock = threading.Lock()

            def wait(user):
                answer = check(server, user, max_wait_ms=400_000).json
                with lock:
                    order.append(user)
                server.manage("DELETE", f"/api/quotas/runs/{answer['run']}")

            threads = [threading.Thread(target=wait, args=("busy",)) for _ in range(10)]
            for thread in threads:
                thread.start()
            queue = "/api/quotas/queue"
            harness.wait_until(lambda: server.manage("GET", queue).json["waiting"] == 10, "ten in line")
            quiet = threading.Thread(target=wait, args=("quiet",))
            quiet.start()
            harness.wait_until(lambda: server.manage("GET", queue).json["waiting"] == 11, "eleven in line")
            server.manage("DELETE", f"/api/quotas/runs/{first['run']}")
            for thread in [*threads, quiet]:
                thread.join(harness.PATIENCE)
            self.assertEqual(len(order), 11)
            self.assertLess(order.index("quiet"), 3, order)

    def test_a_server_that_stops_tells_those_who_wait(self):
        with harness.Server(env={"HEADGATE_QUOTAS_CONCURRENT": "1", "HEADGATE_DRAIN": "10m"}) as server:
            self.assertTrue(check(server, "a").json["allowed"])
            answers = []
            waiting = threading.Thread(target=lambda: answers.append(check(server, "b", max_wait_ms=600_000)))
            waiting.start()
            harness.wait_until(lambda: server.manage("GET", "/api/quotas/queue").json["waiting"] == 1, "one in line")
            self.assertEqual(server.stop(), 0)
            waiting.join(harness.PATIENCE)
            self.assertEqual(answers[0].status, 503)
            self.assertIn("stopping", answers[0].json["message"])

    def test_a_client_that_closes_its_connection_leaves_the_line(self):
        with harness.Server(env={"HEADGATE_QUOTAS_CONCURRENT": "1"}) as server:
            self.assertTrue(check(server, "a").json["allowed"])
            connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=harness.PATIENCE)
            connection.request("POST", "/api/quotas/check", json.dumps({"user": "b", "type": "shell", "max_wait_ms": 60000}),
                               {"Authorization": f"Bearer {server.token}"})
            harness.wait_until(lambda: server.manage("GET", "/api/quotas/queue").json["waiting"] == 1, "one in line")
            connection.close()
            harness.wait_until(lambda: server.manage("GET", "/api/quotas/queue").json["waiting"] == 0, "nobody in line")


if __name__ == "__main__":
    harness.main()
