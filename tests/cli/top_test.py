#!/usr/bin/env python3
"""The live view, on a real terminal. Usage: top_test.py path/to/headgate"""
import copy
import os
import pathlib
import signal
import subprocess
import sys
import termios
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
from fake_server import OVERVIEW, TOKEN, FakeHttp, environment, run  # noqa: E402
from terminal import STEERING, Terminal  # noqa: E402

BINARY = ""
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


class Live(Terminal):
    def __init__(self, url, *arguments, columns=80, rows=24):
        super().__init__([BINARY, "top", "--url", url, "--interval", "100ms", *arguments],
                         environment(HEADGATE_TOKEN=TOKEN, LANG="C.UTF-8"), (columns, rows), subprocess.PIPE)

    def wait_for(self, text, fresh=True):
        """Until the screen shows it; what was seen before does not count if fresh."""
        if fresh:
            self.forget()
        super().wait_for(text)


class Top(unittest.TestCase):
    def setUp(self):
        self.server = FakeHttp()
        self.addCleanup(self.server.close)

    def live(self, *arguments, **more):
        live = Live(self.server.url, *arguments, **more)
        self.addCleanup(live.close)
        live.wait_for("builder")
        return live

    def assert_restored(self, live):
        self.assertEqual(live.wait_for_end(), 0)
        self.assertTrue(live.seen.rstrip().endswith(LEAVE))
        self.assertEqual(termios.tcgetattr(live.theirs), live.before)

    def test_it_takes_the_screen_and_gives_it_back_on_q(self):
        live = self.live()
        self.assertIn(ENTER, live.seen)
        self.assertNotEqual(termios.tcgetattr(live.theirs), live.before)
        live.press("q")
        self.assert_restored(live)

    def test_it_gives_the_screen_back_on_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            live = self.live()
            live.process.send_signal(number)
            self.assert_restored(live)
        live = self.live()
        live.press("\x03")  # Ctrl-C
        self.assert_restored(live)

    def test_it_gives_the_screen_back_while_it_is_stopped(self):
        live = self.live()
        live.process.send_signal(signal.SIGTSTP)
        deadline = time.monotonic() + 30
        while "State:\tT" not in pathlib.Path(f"/proc/{live.process.pid}/status").read_text():
            self.assertLess(time.monotonic(), deadline)
            live.read(0.01)
        live.read(0)
        self.assertTrue(live.seen.rstrip().endswith(LEAVE))
        self.assertEqual(termios.tcgetattr(live.theirs), live.before)
        live.process.send_signal(signal.SIGCONT)
        live.wait_for("builder")
        live.press("q")
        self.assert_restored(live)

    def test_keys_sort_pause_and_explain(self):
        live = self.live()
        for key, words in (("d", "(by denied)"), ("n", "(by name)"), ("a", "(by allowed)"), ("p", "paused"),
                           ("?", "sort by allowed")):
            live.press(key)
            live.wait_for(words)
        live.press("?pq")
        self.assert_restored(live)

    def test_numbers_follow_the_server(self):
        live = self.live()
        overview = copy.deepcopy(OVERVIEW)
        overview["rates"]["denied_per_second"] = 77
        overview["emergency"] = {"active": True, "reason": "runaway"}
        self.server.answers["GET", "/api/overview"] = (200, overview)
        live.wait_for("77/s")
        live.wait_for("emergency ON: runaway")
        live.press("q")
        self.assert_restored(live)

    def test_it_fits_again_after_a_resize(self):
        live = self.live()
        live.resize(40, 20)
        live.process.send_signal(signal.SIGWINCH)
        live.wait_for("a/d/n sort")  # the footer of a narrow terminal
        live.press("q")
        self.assert_restored(live)

    def test_a_server_that_goes_away_is_told_and_tried_again(self):
        live = self.live()
        self.server.answers["GET", "/api/overview"] = (503, {"error": "draining", "message": "the server is going away"})
        live.wait_for("no answer: draining: the server is going away; trying again")
        live.wait_for("builder")  # what was known is still there
        self.server.answers["GET", "/api/overview"] = (200, OVERVIEW)
        deadline = time.monotonic() + 30
        while True:
            live.seen = b""
            live.wait_for("builder")
            if b"no answer" not in live.seen:
                break
            self.assertLess(time.monotonic(), deadline)
        live.press("q")
        self.assert_restored(live)

    def test_keys_are_heard_while_the_server_is_silent(self):
        silent = Live("http://127.0.0.1:9", columns=80)  # no server there: it says so and goes on
        self.addCleanup(silent.close)
        silent.wait_for("no answer")
        silent.press("q")
        self.assert_restored(silent)


class Once(unittest.TestCase):
    def setUp(self):
        self.server = FakeHttp()
        self.addCleanup(self.server.close)

    def once(self, *arguments, token=TOKEN):
        return run("top", "--once", *arguments, HEADGATE_URL=self.server.url, HEADGATE_TOKEN=token)

    def test_a_pipe_gets_one_plain_picture(self):
        for width in (40, 60, 80, 132):
            result = self.once("--width", width)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(result.stdout.isascii())
            self.assertNotIn("\x1b", result.stdout)
            for line in result.stdout.splitlines():
                self.assertLessEqual(len(line), width)
            for word in ("builder", "alpha", "everyone", "532/s", "12.5/s", "0.85 high", "emergency off"):
                self.assertIn(word, result.stdout)

    def test_nothing_to_show_is_an_error(self):
        result = self.once(token="wrong")
        self.assertEqual((result.returncode, result.stdout, result.stderr),
                         (1, "", "headgate: unauthorized: a token is needed\n"))

    def test_without_a_terminal_only_once_works(self):
        result = run("top", HEADGATE_URL=self.server.url, HEADGATE_TOKEN=TOKEN)
        self.assertEqual((result.returncode, result.stderr),
                         (1, "headgate: a terminal is needed; --once prints one picture anywhere\n"))

    def test_the_interval_has_bounds(self):
        for interval in ("99ms", "2h", "often"):
            result = self.once("--interval", interval)
            self.assertEqual(result.returncode, 2)
            self.assertIn(f'--interval must be between 100ms and 1h, got "{interval}"', result.stderr)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
