#!/usr/bin/env python3
"""headgate run with a real server: what is charged, recorded, queued, slowed down and refused."""

import hashlib
import os
import pty
import signal
import subprocess
import sys
import unittest

import harness


class RunCase(unittest.TestCase):
    def serve(self, *arguments):
        server = harness.Server(*arguments)
        self.addCleanup(server.__exit__)
        return server

    def words(self, *command, user="42", options=()):
        return [harness.BINARY, "run", "--user", user, "--type", "shell", *options, "--", *command]

    def env(self, server, token=None):
        plain = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE_")}
        return {**plain, "HEADGATE_URL": server.url, "HEADGATE_TOKEN": token or server.token}

    def run_it(self, server, *command, token=None, **more):
        return subprocess.run(self.words(*command, **more), capture_output=True, text=True, timeout=harness.PATIENCE,
                              env=self.env(server, token))

    def start(self, server, *command, **more):
        process = subprocess.Popen(self.words(*command, **more), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=self.env(server))

        def end():
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def history(self, server, user, count):
        """What the ledger has, once it has so many."""
        def enough():
            found = server.manage("GET", f"/api/quotas/executions?user_id={user}").json["executions"]
            return found if len(found) >= count else None
        return harness.wait_until(enough, f"{count} executions of {user}")

    def queue(self, server):
        return server.manage("GET", "/api/quotas/queue").json


class Quota(RunCase):
    def test_a_run_is_charged_once_and_recorded_with_what_it_used(self):
        server = self.serve()
        done = self.run_it(server, "sh", "-c", "echo out; exit 3", options=["--session", "s1"])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (3, "out\n", ""))
        record = self.history(server, "42", 1)[0]
        whole = hashlib.sha256(b"sh\0-c\0echo out; exit 3").hexdigest()
        self.assertEqual((record["user_id"], record["session_id"], record["command_type"], record["command_hash"]),
                         ("42", "s1", "shell", whole))
        self.assertEqual((record["exit_code"], record["error_message"] or ""), (3, ""))
        self.assertEqual(server.manage("GET", "/api/quotas/user/42").json["daily"]["shell"]["used"], 1)
        self.assertEqual(self.queue(server)["running"], 0, "recording has ended the run")

    def test_a_used_up_quota_is_75_and_names_when_it_resets(self):
        server = self.serve()
        server.manage("PUT", "/api/quotas/user/42", {"types": {"shell": {"daily": 2}}})
        self.assertEqual(self.run_it(server, "true").returncode, 0)
        self.assertEqual(self.run_it(server, "true").returncode, 0)
        done = self.run_it(server, "echo", "ran", options=["--on-failure", "open"])
        self.assertEqual((done.returncode, done.stdout), (75, ""))
        self.assertRegex(done.stderr, r"^headgate: not run: .+; try again in \S+")
        self.assertEqual(self.run_it(server, "true", user="43").returncode, 0, "others have their own")
        self.assertEqual(len(self.history(server, "42", 2)), 2, "what did not run is not recorded")

    def test_few_left_is_told_on_a_terminal(self):
        server = self.serve()
        server.manage("PUT", "/api/quotas/user/42", {"types": {"shell": {"daily": 4}}})
        for _ in range(2):
            self.assertEqual(self.run_it(server, "true").stderr, "")
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        done = subprocess.run(self.words("true"), stdin=subprocess.DEVNULL, stderr=theirs, env=self.env(server),
                              timeout=harness.PATIENCE)
        os.close(theirs)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(os.read(ours, 65536).decode(), r"^headgate: .*1 shell command left today")

    def test_a_wrong_token_or_another_user_is_refused_and_nothing_runs(self):
        server = self.serve()
        done = self.run_it(server, "echo", "ran", token="hg_wrong", options=["--on-failure", "open"])
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("unauthorized", done.stderr)
        agent = server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "builder"}).json["secret"]
        self.assertEqual(self.run_it(server, "true", user="builder", token=agent).returncode, 0)
        other = self.run_it(server, "echo", "ran", user="42", token=agent)
        self.assertEqual((other.returncode, other.stdout), (1, ""))
        self.assertIn("wrong_agent", other.stderr)

    def test_a_server_that_stops_meanwhile_does_not_change_the_exit_code(self):
        server = self.serve()
        process = self.start(server, "sh", "-c", "echo ready; read line; exit 9", options=["--warn", "always"])
        self.assertEqual(process.stdout.readline(), "ready\n")
        server.stop(signal.SIGKILL)
        _, told = process.communicate("go\n", timeout=harness.PATIENCE)
        self.assertEqual(process.returncode, 9)
        self.assertIn("headgate: not recorded: ", told)
        self.assertEqual(self.run_it(server, "true", token="hg_x").returncode, 75)


class Load(RunCase):
    def test_load_slows_commands_down_and_says_so(self):
        server = self.serve("--set", "load.sensors=false")
        self.assertEqual(server.manage("PUT", "/api/admin/load", {"load": 0.85}).status, 200)
        factor = server.manage("GET", "/api/quotas/user/42").json["throttle_factor"]
        self.assertLess(factor, 1)
        self.assertGreater(factor, 0)
        busy = "import time\nwhile time.process_time() < 0.6: pass"
        done = self.run_it(server, sys.executable, "-c", busy, options=["--warn", "always"])
        self.assertEqual(done.returncode, 0)
        self.assertIn(f"{factor * 100:g}", done.stderr)
        record = self.history(server, "42", 1)[0]
        self.assertLess(record["cpu_usage_percent"], factor * 100 + 25)
        self.assertGreater(record["cpu_usage_percent"] * record["duration_ms"], 0.55 * 100_000)


class Line(RunCase):
    def setUp(self):
        self.server = self.serve("--set", "quotas.concurrent=1")
        self.first = self.start(self.server, "sh", "-c", "echo ready; read line")
        self.assertEqual(self.first.stdout.readline(), "ready\n")

    def waiting(self, count):
        return harness.wait_until(lambda: self.queue(self.server)["waiting"] == count, f"{count} wait in line")

    def test_without_waiting_it_is_75(self):
        done = self.run_it(self.server, "echo", "ran")
        self.assertEqual((done.returncode, done.stdout), (75, ""))

    def test_they_run_in_turn(self):
        second = self.start(self.server, "echo", "second", user="43", options=["--wait", "--warn", "always"])
        self.waiting(1)
        self.assertEqual(second.stderr.readline(), "headgate: waiting in line\n")
        self.first.communicate("go\n", timeout=harness.PATIENCE)
        out, told = second.communicate(timeout=harness.PATIENCE)
        self.assertEqual((second.returncode, out, told), (0, "second\n", ""))
        self.assertEqual(self.history(self.server, "43", 1)[0]["exit_code"], 0)

    def test_a_terminal_shows_the_position(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        process = subprocess.Popen(self.words("true", options=["--wait"]), stdin=subprocess.DEVNULL, stderr=theirs,
                                   env=self.env(self.server))
        os.close(theirs)
        seen = b""
        while b"waiting in line: position 1 of 1" not in seen:
            seen += os.read(ours, 65536)
        self.first.communicate("go\n", timeout=harness.PATIENCE)
        self.assertEqual(process.wait(harness.PATIENCE), 0)

    def test_an_interrupt_leaves_the_line(self):
        second = self.start(self.server, "echo", "ran", options=["--wait"])
        self.waiting(1)
        second.send_signal(signal.SIGINT)
        self.assertEqual(second.wait(harness.PATIENCE), -signal.SIGINT)
        self.waiting(0)

    def test_one_that_is_killed_leaves_the_line(self):
        second = self.start(self.server, "echo", "ran", options=["--wait"])
        self.waiting(1)
        second.kill()
        self.waiting(0)

    def test_too_long_a_wait_is_75(self):
        done = self.run_it(self.server, "echo", "ran", options=["--wait=100ms"])
        self.assertEqual((done.returncode, done.stdout), (75, ""))
        self.assertIn("headgate: not run: ", done.stderr)


if __name__ == "__main__":
    harness.main()
