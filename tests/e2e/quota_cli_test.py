#!/usr/bin/env python3
"""The quota commands against a real server: what they set holds, and what they show is what happened."""

import csv
import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import harness

ROOMY = """
policies:
  - {id: roomy, match: {operations: ["*"]}, limit: 1000000/s}
"""
EXAMPLE = harness.ROOT / "examples/quotas/run"


class WithServer(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        # One test records thousands for one user.
        self.server = harness.Server(policies=ROOMY, env={"HEADGATE_LEDGER_RECORDS_PER_SECOND": "1000"})
        self.addCleanup(self.server.__exit__)

    def run_cli(self, *arguments, token=None):
        return harness.headgate(*arguments, env={"HEADGATE_URL": self.server.url,
                                                 "HEADGATE_TOKEN": token or self.server.token})

    def told(self, *arguments, **more):
        done = self.run_cli(*arguments, **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        if "--csv" not in arguments and "--json" not in arguments and "--commands" not in arguments:
            for line in done.stdout.splitlines():
                self.assertLessEqual(len(line), 80, line)
        return done.stdout

    def refused(self, *arguments, **more):
        done = self.run_cli(*arguments, **more)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        return done.stderr

    def check(self, user="ana", kind="shell", **more):
        answer = self.server.manage("POST", "/api/quotas/check", {"user": user, "type": kind, **more})
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json

    def record(self, user="ana", kind="shell", **more):
        answer = self.server.manage("POST", "/api/quotas/executions", {"user_id": user, "command_type": kind, **more})
        self.assertEqual(answer.status, 200, answer.body)

    def usage(self, **wanted):
        """Once the ledger has written it."""
        def found():
            rows = self.server.manage("GET", "/api/quotas/usage?user_id=ana").json["usage"]
            return rows and all(sum(row[name] for row in rows) == count for name, count in wanted.items())
        harness.wait_until(found, f"usage of {wanted}")


class Rules(WithServer):
    def test_a_rule_holds_from_the_next_command_on_until_it_is_cleared(self):
        text = self.told("quota", "set", "--user", "ana", "--type", "shell", "--daily", "2")
        self.assertRegex(text, r"shell daily +as the plan: 500 +-> +2\n")
        self.assertEqual([self.check()["allowed"] for _ in range(3)], [True, True, False])
        self.assertRegex(self.told("quota", "status", "--user", "ana"), r"(?m)^shell +######### 2/2 ")
        self.assertRegex(self.told("quota", "set", "--user", "ana", "--clear"), r"shell daily +2 +-> +as the plan\n")
        self.assertEqual(self.told("quota", "set", "--user", "ana", "--clear"), "user ana: all was so already\n")
        self.assertTrue(self.check()["allowed"])
        self.assertRegex(self.told("quota", "status", "--user", "ana"), r"(?m)^shell +#\.+ 3/500 ")

    def test_all_fields_can_be_set_and_taken_back(self):
        text = self.told("quota", "set", "--user", "ana", "--plan", "enterprise", "--timezone", "Asia/Tokyo", "--mode",
                         "monitor", "--weight", "2.5", "--type", "test", "--monthly", "9", "--session", "unlimited")
        for words in ("plan +the default: free +-> +enterprise", "time zone +as the plan: UTC +-> +Asia/Tokyo",
                      "mode +as the plan: enforce +-> +monitor", "weight +as the plan +-> +2.5",
                      "test monthly +as the plan: 20,000 +-> +9", "test session +as the plan +-> +unlimited"):
            self.assertRegex(text, words)
        status = self.told("quota", "status", "--user", "ana")
        for words in ("plan        enterprise\n", "time zone   Asia/Tokyo\n", "mode        monitor", "0, no limit",
                      "......... 0/9\n", "at midnight in"):
            self.assertIn(words, status)
        self.told("quota", "set", "--user", "ana", "--plan", "default", "--timezone", "plan", "--mode", "plan", "--weight",
                  "plan", "--type", "test", "--monthly", "plan", "--session", "plan")
        self.assertIsNone(json.loads(self.told("quota", "status", "--user", "ana", "--json"))["rule"])

    def test_a_plan_is_changed_made_and_taken_back(self):
        self.assertRegex(self.told("quota", "set-plan", "--plan", "free", "--type", "shell", "--daily", "1"),
                         r"shell daily +500 +-> +1\n")
        self.assertEqual([self.check("eve")["allowed"] for _ in range(2)], [True, False])
        self.assertIn("plan trial is new\n", self.told("quota", "set-plan", "--plan", "trial", "--mode", "monitor",
                                                       "--type", "deploy", "--daily", "3", "--estimate-cpu", "50"))
        plans = self.told("quota", "plans")
        self.assertIn("free (default): enforce, UTC, weight 1\n", plans)
        self.assertRegex(plans, r"trial: monitor, UTC, weight 1\n")
        self.assertRegex(plans, r"(?m)^  deploy +3 .* 50 ")
        self.assertEqual(self.told("quota", "set-plan", "--plan", "trial", "--clear"), "plan trial is gone\n")
        self.assertRegex(self.told("quota", "set-plan", "--plan", "free", "--clear"), r"shell daily +1 +-> +500\n")

    def test_what_the_server_refuses_is_told(self):
        for arguments, message in (
                (["set", "--user", "ana", "--timezone", "Europe/Berlim"], "Europe/Berlin"),
                (["set", "--user", "ana", "--plan", "gold"], 'unknown_plan: there is no plan "gold"'),
                (["set", "--user", "ana", "--weight", "0"], "weight must be"),
                (["set-plan", "--plan", "gold", "--clear"], "unknown_plan"),
                (["set-plan", "--plan", "a b", "--mode", "off"], "plan")):
            self.assertIn(message, self.refused("quota", *arguments))

    def test_a_mode_that_does_not_hold_is_told(self):
        note = "note: mode monitor still holds, the laxest of server, plan and user\n"
        self.assertNotIn("note", self.told("quota", "set-plan", "--plan", "free", "--mode", "monitor"))
        self.assertTrue(self.told("quota", "set", "--user", "ana", "--mode", "enforce").endswith(note))
        self.assertNotIn("note", self.told("quota", "set", "--user", "ana", "--mode", "off"))
        with harness.Server(policies=ROOMY, env={"HEADGATE_QUOTAS_MODE": "monitor"}) as self.server:
            self.assertTrue(self.told("quota", "set-plan", "--plan", "free", "--mode", "enforce").endswith(note))

    def test_an_agent_sees_itself_and_changes_nothing(self):
        token = self.told("token", "create", "--role", "agent", "--agent", "ana", "--json")
        secret = json.loads(token)["secret"]
        self.assertIn("user        ana\n", self.told("quota", "status", "--user", "ana", token=secret))
        self.assertIn("wrong_agent", self.refused("quota", "status", "--user", "bob", token=secret))
        self.refused("quota", "set", "--user", "ana", "--plan", "enterprise", token=secret)


class History(WithServer):
    def test_what_was_run_is_shown(self):
        self.told("quota", "set", "--user", "ana", "--type", "shell", "--daily", "3")
        for _ in range(4):
            self.check()
        self.record(duration_ms=1500, cpu_usage_percent=80, memory_usage_mb=12.6, exit_code=0, session_id="s1")
        self.record(duration_ms=61_000, exit_code=9, error_message="killed by signal 9")
        self.usage(commands=3, refused=1, runs=2)
        text = self.told("quota", "history", "--user", "ana")
        self.assertTrue(text.startswith("user ana: 3 commands, 1 refused, 1 failed\n"), text)
        self.assertRegex(text, r"#+ 3, 1 refused\n")
        self.assertRegex(text, r"shell +s1 +1.5s +80 +13 +0\n")
        self.assertRegex(text, r"shell +1m01s +0 +0 +9 +killed by signal 9\n")
        self.assertNotIn("s1", self.told("quota", "history", "--user", "ana", "--failed"))
        self.assertIn("no commands were recorded", self.told("quota", "history", "--user", "ana", "--type", "test"))
        told = json.loads(self.told("quota", "history", "--user", "ana", "--json"))
        self.assertEqual((len(told["executions"]), told["usage"][0]["commands"]), (2, 3))

    def test_csv_goes_on_over_all_pages(self):
        count = 10_050  # more than a page
        body = json.dumps({"user_id": "ana", "command_type": "shell", "error_message": 'a "quoted"\nline, and =more'})
        request = (f"POST /api/quotas/executions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {self.server.token}\r\n"
                   f"Content-Length: {len(body)}\r\n\r\n{body}").encode()
        self.pipelined(request, count)
        self.usage(runs=count)
        def exported(*more):
            return list(csv.DictReader(io.StringIO(self.told("quota", "history", "--user", "ana", "--csv", *more))))
        rows = exported()
        self.assertEqual(len(rows), count)
        self.assertEqual(len({row["id"] for row in rows}), count)
        self.assertEqual({row["error_message"] for row in rows}, {'a "quoted"\nline, and =more'})
        self.assertEqual(exported("--limit", "3"), rows[:3])

    def pipelined(self, request, count):
        """Many requests over one connection, a hundred at a time."""
        with harness.socket.create_connection(("127.0.0.1", self.server.ports["http"]), harness.PATIENCE) as connection:
            while count > 0:
                batch = min(count, 100)
                connection.sendall(request * batch)
                seen = b""
                while seen.count(b"HTTP/1.1 ") < batch or not seen.endswith(b"}"):
                    seen += connection.recv(1 << 20)
                self.assertEqual(seen.count(b"HTTP/1.1 200"), batch, seen[:300])
                count -= batch


class Report(WithServer):
    def test_monitor_mode_reports_what_would_have_been_refused(self):
        self.told("quota", "set", "--user", "ana", "--mode", "monitor", "--type", "shell", "--daily", "2")
        self.assertEqual([self.check()["allowed"] for _ in range(5)], [True] * 5)
        self.check("bob")
        self.usage(commands=5, would_refuse=3)
        text = self.told("quota", "report")
        self.assertIn("0 commands refused for want of quota, 3 more", text.replace("\n", " "))
        self.assertRegex(text, r"(?m)^ana +shell +5 +0 +3 ")
        self.assertNotIn("bob", text)

    def test_tune_proposes_from_the_ledger(self):
        for user, count in (("ana", 30), ("bob", 10), ("eve", 4)):
            for _ in range(count):
                self.check(user)
        self.told("quota", "set", "--user", "eve", "--plan", "enterprise")
        harness.wait_until(lambda: sum(row["commands"] for row in self.server.manage(
            "GET", "/api/quotas/usage").json["usage"]) == 44, "the ledger knows all")
        told = json.loads(self.told("tune", "--json", "--headroom", "50%"))
        self.assertTrue(told["only_today"])
        self.assertEqual([(one["plan"], one["users"], one["daily"]["most"], one["daily"]["limit"]) for one in told["types"]],
                         [("enterprise", 1, 4, None), ("free", 2, 30, 500)])
        self.assertEqual(told["types"][1]["daily"]["proposed"], 45)
        self.assertIn("come back tomorrow", self.told("tune").replace("\n", " "))
        commands = self.told("tune", "--headroom", "50%", "--commands")
        self.assertEqual(commands.count("\n"), 1, "the plan without limits keeps none")
        self.told(*commands.split()[1:])
        self.assertRegex(self.told("quota", "status", "--user", "ana"), r"(?m)^shell +\S+ 30/45 ")


class Line(unittest.TestCase):
    def test_the_line_is_shown(self):
        with harness.Server(policies=ROOMY, env={"HEADGATE_QUOTAS_CONCURRENT": "1"}) as server:
            def told(*arguments):
                done = harness.headgate(*arguments, env={"HEADGATE_URL": server.url, "HEADGATE_TOKEN": server.token})
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                return done.stdout
            first = server.manage("POST", "/api/quotas/check", {"user": "ana", "type": "shell", "run": "one"}).json
            self.assertTrue(first["allowed"], first)
            answers = []
            waiting = harness.threading.Thread(target=lambda: answers.append(server.manage(
                "POST", "/api/quotas/check", {"user": "bob", "type": "test", "run": "two", "max_wait_ms": 60_000}).json))
            waiting.start()
            text = harness.wait_until(lambda: (lambda t: t if "bob" in t else "")(told("quota", "queue")), "bob waits")
            self.assertTrue(text.startswith("1 running of 1, 1 waiting\n"), text)
            self.assertRegex(text, r"(?m)^  1  bob +test ")
            self.assertRegex(text, r"(?m)^  ana +shell ")
            top = told("top", "--once")
            self.assertIn("commands 1 running of 1, 1 waiting\n", top)
            self.assertRegex(top, r"(?m)^in line  1 bob test \(")
            self.assertEqual(server.manage("DELETE", "/api/quotas/runs/one").status, 200)
            waiting.join(harness.PATIENCE)
            self.assertTrue(answers[0]["allowed"], answers)


class Example(unittest.TestCase):
    def test_the_example_refuses_the_fourth_command_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE")}
            done = subprocess.run([EXAMPLE], capture_output=True, text=True, timeout=harness.PATIENCE,
                                  env={**environment, "HEADGATE": harness.BINARY, "TMPDIR": folder})
            self.assertEqual(done.returncode, 0, done.stderr)
            for words in ("\none\n", "\nthree\n", "(exit code 4)", "(exit code 75)", "3/3", "\nfour, after all\n"):
                self.assertIn(words, done.stdout)
            self.assertNotIn("\nfour, which is never printed\n", done.stdout)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])


if __name__ == "__main__":
    harness.main()
