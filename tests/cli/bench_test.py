#!/usr/bin/env python3
"""The load generator, against servers that count. Usage: bench_test.py path/to/headgate"""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_server import DENIED, TOKEN, FakeHttp, FakeResp, environment, run  # noqa: E402

BINARY = ""


class Bench(unittest.TestCase):
    def http(self):
        server = FakeHttp()
        self.addCleanup(server.close)
        return server

    def resp(self, **more):
        server = FakeResp(**more)
        self.addCleanup(server.close)
        return server

    def report(self, *arguments, **more):
        result = run("bench", "--json", *arguments, **more)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return json.loads(result.stdout)

    def assert_adds_up(self, report):
        self.assertEqual(report["requests"],
                         report["allowed"] + report["denied"] + report["other"] + report["errors"])
        latency = report["latency_us"]
        order = [latency[name] for name in ("p50", "p90", "p99", "p99_9", "max")]
        self.assertEqual(order, sorted(order))
        self.assertGreater(latency["p50"], 0)

    def test_http_makes_exactly_the_requests_it_is_told(self):
        server = self.http()
        report = self.report("--url", server.url, "--requests", 101, "--connections", 4, "--pipeline", 3, "--keys", 10,
                             HEADGATE_TOKEN=TOKEN)
        self.assert_adds_up(report)
        self.assertEqual((report["requests"], report["allowed"], report["errors"], report["unanswered"]),
                         (101, 101, 0, 0))
        self.assertEqual(len(server.requests), 101)
        self.assertEqual({(m, p, h["Authorization"]) for m, p, h, _ in server.requests},
                         {("POST", "/v1/check", "Bearer " + TOKEN)})
        agents = {body["agent"] for _, _, _, body in server.requests}
        self.assertLessEqual(agents, {f"bench-{n:08}" for n in range(10)})
        self.assertGreater(len(agents), 5)
        self.assertEqual({body["operation"] for _, _, _, body in server.requests}, {"bench"})

    def test_denials_and_errors_are_told_apart(self):
        server = self.http()
        server.answers["POST", "/v1/check"] = (200, DENIED)
        report = self.report("--url", server.url, "--requests", 20, "--connections", 2)
        self.assertEqual((report["denied"], report["errors"]), (20, 0))
        server.answers["POST", "/v1/check"] = (400, {"error": "invalid_check", "message": "no"})
        result = run("bench", "--json", "--url", server.url, "--requests", 20, "--connections", 2)
        self.assertEqual(result.returncode, 1)  # nothing was decided
        report = json.loads(result.stdout)
        self.assertEqual((report["errors"], report["allowed"]), (20, 0))
        self.assertIn("invalid_check", report["first_error"])

    def test_resp_speaks_cl_throttle_and_hg_check(self):
        server = self.resp()
        report = self.report("--resp", server.address, "--requests", 200, "--connections", 5, "--pipeline", 8,
                             "--threads", 2, "--limit", "1,2,3")
        self.assert_adds_up(report)
        self.assertEqual(report["requests"], 200)
        even = sum(int(words[1][-1]) % 2 == 0 for words in server.commands)
        self.assertEqual((report["allowed"], report["denied"]), (even, 200 - even))
        self.assertEqual({(words[0], *words[2:]) for words in server.commands}, {("CL.THROTTLE", "1", "2", "3")})
        server.commands.clear()
        report = self.report("--resp", server.address, "--check", "--operation", "OP", "--requests", 30,
                             "--connections", 1)
        self.assertEqual((report["allowed"], report["denied"], report["kind"]), (20, 10, "hg.check"))
        self.assertEqual({(words[0], words[2]) for words in server.commands}, {("HG.CHECK", "OP")})

    def test_resp_signs_in_or_says_why_not(self):
        server = self.resp(token=TOKEN)
        report = self.report("--resp", server.address, "--requests", 20, "--connections", 2, HEADGATE_TOKEN=TOKEN)
        self.assertEqual((report["requests"], report["errors"]), (20, 0))
        result = run("bench", "--resp", server.address, "--requests", 20, HEADGATE_TOKEN="wrong")
        self.assertEqual((result.returncode, result.stdout, result.stderr),
                         (1, "", "headgate: WRONGPASS no such token\n"))

    def test_lost_connections_are_errors_and_made_again(self):
        server = self.resp()
        server.close_after = 5
        report = self.report("--resp", server.address, "--requests", 100, "--connections", 2, "--pipeline", 3)
        self.assertEqual(report["requests"], 100)
        self.assertGreater(report["errors"], 0)
        self.assertGreater(report["allowed"] + report["denied"], 10)
        # Reset or closed, as the moment has it.
        self.assertRegex(report["first_error"], "closed|reset|pipe")

    def test_a_rate_is_kept_and_late_answers_are_not_hidden(self):
        server = self.resp()
        report = self.report("--resp", server.address, "--rate", 500, "--requests", 250, "--connections", 4)
        self.assertEqual((report["requests"], report["rate"]), (250, 500))
        # 250 at 500 a second cannot be done earlier than they are due.
        self.assertGreaterEqual(report["duration_ms"], 490)

    def test_what_is_due_while_a_connection_is_busy_counts_from_then(self):
        server = self.http()
        slow = {"left": 1}
        answers = server.answers

        class Slow(dict):
            def get(self, key, otherwise=None):
                if slow["left"]:
                    slow["left"] = 0
                    time.sleep(0.5)  # the stall whose shadow the report must show
                return dict.get(self, key, otherwise)

        server.answers = Slow(answers)
        report = self.report("--url", server.url, "--rate", 100, "--requests", 50, "--connections", 1)
        self.assertEqual(report["requests"], 50)
        # Half of them were due during the stall; asked one after the other, all but one would have looked quick.
        self.assertGreater(report["latency_us"]["p50"], 100_000)

    def test_a_duration_ends_it(self):
        server = self.resp()
        report = self.report("--resp", server.address, "--duration", "1s", "--warmup", "200ms", "--connections", 2)
        self.assert_adds_up(report)
        self.assertGreater(report["requests"], 0)
        self.assertGreater(len(server.commands), report["requests"])  # the warm-up does not count

    def test_an_interrupt_ends_it_with_a_report(self):
        server = self.resp()
        process = subprocess.Popen([BINARY, "bench", "--json", "--resp", server.address, "--duration", "1h",
                                    "--warmup", "0s", "--connections", "2"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        deadline = time.monotonic() + 30
        while len(server.commands) < 100 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
        self.assertEqual((process.returncode, stderr), (0, ""))
        self.assertGreater(json.loads(stdout)["requests"], 50)

    def test_people_get_a_report_that_fits(self):
        server = self.resp()
        result = run("bench", "--resp", server.address, "--requests", 100, "--connections", 3, "--rate", 5000)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(result.stdout.isascii())
        lines = result.stdout.splitlines()
        self.assertEqual(lines[0], f"CL.THROTTLE at {server.address}")
        self.assertTrue(lines[1].startswith("3 connections, 1 deep, 1 thread, 100,000 keys, at 5,000/s, "))
        for word in ("requests   100, ", "allowed", "denied", "errors     0", "p50", "p99.9", "bytes"):
            self.assertIn(word, result.stdout)
        for line in lines:
            self.assertLessEqual(len(line), 80)

    def test_mistakes_are_told(self):
        for arguments, message in (
                (["--check"], "--check goes with --resp: HTTP checks anyway"),
                (["--resp", "x:1", "--url", "http://x"], "--url and --resp cannot both be loaded"),
                (["--requests", "5", "--duration", "1s"], "--requests and --duration cannot both say when it ends"),
                (["--keys", "0"], "--keys must be between 1 and 100000000, got 0"),
                (["--pipeline", "0"], '--pipeline: must be between 1 and 4096, got "0"'),
                (["--duration", "long"], '--duration must be a duration of at most 24h such as 10s, got "long"'),
                (["--resp", "nowhere"], 'an address must be host:port, got "nowhere"'),
                (["--resp", "127.0.0.1:1", "--limit", "1,2"], '--limit must be three numbers, got "1,2"'),
                (["--url", "https://127.0.0.1:1"], "bench speaks plain HTTP: it cannot load https://127.0.0.1:1")):
            result = run("bench", *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)
            self.assertEqual(result.stderr.splitlines()[0], "headgate: " + message)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
