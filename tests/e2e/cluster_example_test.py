#!/usr/bin/env python3
"""examples/cluster/run: three servers that count together, started and ended by one command."""

import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import unittest

import harness

RUN = harness.ROOT / "examples/cluster/run"


class Example:
    """The command, running, in a folder for what it leaves."""

    def __init__(self, *arguments):
        self.folder = tempfile.TemporaryDirectory()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE")}
        self.process = subprocess.Popen(
            [RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**environment, "HEADGATE": harness.BINARY, "HEADGATE_STORE_DEADLINE": "2s",
                 "TMPDIR": self.folder.name})
        self.said = []
        self.reader = threading.Thread(target=lambda: self.said.extend(self.process.stdout), daemon=True)
        self.reader.start()
        harness.wait_until(lambda: self.process.poll() is not None or "Ctrl-C" in self.text, "the example's last words")
        self.ports = [int(port) for port in re.findall(r"^  node-\d  http://127\.0\.0\.1:(\d+)$", self.text, re.MULTILINE)]

    @property
    def text(self):
        return "".join(self.said)

    def check(self, node, **check):
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[node], timeout=harness.PATIENCE)
        connection.request("POST", "/v1/check", json.dumps(check))
        body = connection.getresponse().read()
        connection.close()
        return json.loads(body)

    def command(self, after):
        """What it says to type, below a line that begins so."""
        return re.search(rf"^{after}[^\n]*\n  ([^\n]+)", self.text, re.MULTILINE).group(1)

    def stop(self, how=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(harness.PATIENCE)
        self.reader.join(harness.PATIENCE)
        self.process.stdout.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.returncode is None:
            self.stop()
        self.folder.cleanup()


class Cluster(unittest.TestCase):
    def test_three_servers_admit_ten_searches_between_them(self):
        with Example() as example:
            self.assertEqual(len(example.ports), 3, example.text)
            answers = [example.check(i % 3, agent="A", operation="search")["allowed"] for i in range(15)]
            self.assertEqual(answers, [True] * 10 + [False] * 5)

    def test_the_emergency_throttle_of_one_reaches_the_last_as_the_text_says(self):
        with Example() as example:
            told = subprocess.run(["bash", "-c", example.command("What one is told")], capture_output=True, text=True,
                                  timeout=harness.PATIENCE)
            self.assertEqual(told.returncode, 0, told.stderr)
            status = re.search(r"^  (\S+ status .*)$", example.text, re.MULTILINE).group(1)
            harness.wait_until(lambda: "trying" in subprocess.run(
                ["bash", "-c", status], capture_output=True, text=True, timeout=harness.PATIENCE).stdout,
                "the third server knows of the emergency")

    def test_searches_are_denied_while_redis_is_away_and_allowed_when_it_is_back(self):
        with Example() as example:
            for node in range(3):
                self.assertTrue(example.check(node, agent="B", operation="search")["allowed"])
            redis = int(re.search(r"kill -STOP (\d+)", example.text).group(1))
            os.kill(redis, signal.SIGSTOP)
            try:
                self.assertFalse(example.check(1, agent="C", operation="search")["allowed"])
                harness.wait_until(lambda: example.check(1, agent="C", operation="call")["allowed"],
                                   "Redis counts as away, and this server stands in for it")
            finally:
                os.kill(redis, signal.SIGCONT)
            harness.wait_until(lambda: example.check(1, agent="D", operation="search")["allowed"], "Redis is back")

    def test_ctrl_c_ends_everything_and_leaves_nothing(self):
        with Example() as example:
            redis = int(re.search(r"kill -STOP (\d+)", example.text).group(1))
            self.assertEqual(example.stop(), 0)
            self.assertFalse(pathlib.Path(f"/proc/{redis}").exists())
            self.assertEqual(list(pathlib.Path(example.folder.name).iterdir()), [])
            for port in example.ports:
                self.assertFalse(harness.listens(port))

    def test_a_port_that_is_none_is_refused(self):
        for port in ("x", "65534", "-1", "123456"):
            done = subprocess.run([RUN, port], capture_output=True, text=True, timeout=harness.PATIENCE)
            self.assertEqual(done.returncode, 2)
            self.assertIn("usage", done.stderr)


if __name__ == "__main__":
    harness.main()
