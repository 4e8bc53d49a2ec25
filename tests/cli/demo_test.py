#!/usr/bin/env python3
"""The command line in a pipe and on a terminal. Usage: demo_test.py path/to/headgate

What each strategy should have admitted is worked out again here, slowly and in plain words, and compared call by call.
"""
import datetime
import decimal
import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios
import unicodedata
import unittest
import zoneinfo
from fractions import Fraction

BINARY = ""
ROOT = pathlib.Path(__file__).resolve().parents[2]
STRATEGIES = ["token_bucket", "gcra", "sliding_window", "sliding_window_counter", "fixed_window", "leaky_bucket",
              "concurrency", "quota"]
SECOND = 1_000_000_000
MARKS = {"o": "admitted", "~": "delayed", "+": "burst", "x": "refused"}
UNICODE_MARKS = {"●": "o", "◐": "~", "◆": "+", "×": "x"}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def environment(**changes):
    names = ("NO_COLOR", "LANG", "LC_ALL", "LC_CTYPE", "COLUMNS", "TERM")
    return {**{k: v for k, v in os.environ.items() if k not in names}, "TERM": "xterm-256color", **changes}


def run(*arguments, **changes):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, env=environment(**changes), timeout=60)


def run_on_terminal(*arguments, columns=80, **changes):
    """What the program writes when its output is a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen([BINARY, *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
                               env=environment(**changes))
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    if process.wait(timeout=60) != 0:
        raise AssertionError(f"{arguments} on a terminal ended with {process.returncode}: {written!r}")
    return written.decode("utf-8").replace("\r\n", "\n")


def columns_of(line):
    line = COLOUR.sub("", line)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line if not unicodedata.combining(c))


def nanos(milliseconds):
    return int(decimal.Decimal(str(milliseconds)) * 1_000_000)


def demo_calls(*arguments):
    """The calls of each strategy, as --json tells them."""
    result = run("demo", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    calls = {}
    for line in result.stdout.splitlines():
        call = json.loads(line, parse_float=decimal.Decimal)
        calls.setdefault(call["strategy"], []).append(call)
    return calls


# What each strategy promises. Each takes the instants of the calls, in nanoseconds from the start of the picture, and
# answers for each whether it is admitted ("admitted", "burst", "refused" or a delay in nanoseconds).

def token_bucket(instants, capacity=8, per_second=2):
    tokens, last = Fraction(capacity), 0
    for at in instants:
        tokens = min(Fraction(capacity), tokens + Fraction(at - last, SECOND) * per_second)
        last = at
        if tokens >= 1:
            tokens -= 1
            yield "admitted"
        else:
            yield "refused"


def gcra(instants):
    return token_bucket(instants, capacity=4)  # max_burst 3 means 4 at once


def sliding_window(instants):
    admitted = []
    for at in instants:
        if sum(1 for earlier in admitted if at - earlier < 4 * SECOND) < 8:
            admitted.append(at)
            yield "admitted"
        else:
            yield "refused"


def windows(instants):
    """Each instant's window of 4 s and how far into it the instant is; the picture begins halfway through one."""
    for at in instants:
        yield divmod(at + 2 * SECOND, 4 * SECOND)


def sliding_window_counter(instants):
    counts = {}
    for window, elapsed in windows(instants):
        share = Fraction(4 * SECOND - elapsed, 4 * SECOND)
        if counts.get(window - 1, 0) * share + counts.get(window, 0) + 1 <= 8:
            counts[window] = counts.get(window, 0) + 1
            yield "admitted"
        else:
            yield "refused"


def fixed_window(instants):
    counts = {}
    for window, _ in windows(instants):
        counts[window] = counts.get(window, 0) + 1
        yield "admitted" if counts[window] <= 8 else "refused"


def leaky_bucket(instants):
    last = None  # when the call admitted last acts
    for at in instants:
        act = at if last is None else max(at, last + SECOND // 2)
        if act - at > 6 * SECOND // 2:  # more than 6 would be waiting
            yield "refused"
            continue
        last = act
        yield act - at


def concurrency(instants):
    ends = []
    for at in instants:
        if sum(1 for end in ends if end > at) < 4:
            # The first holder is lost, so only its lease's end frees the slot; the others are done after 800 ms.
            ends.append(at + (4 * SECOND if not ends else 800_000_000))
            yield "admitted"
        else:
            yield "refused"


def quota(instants):
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    start = datetime.datetime(2026, 3, 28, 16, 0, tzinfo=berlin).timestamp()
    counts = {}
    for at in instants:
        day = datetime.datetime.fromtimestamp(start + at // SECOND, berlin).date()
        if counts.get(day, 0) < 10:
            counts[day] = counts.get(day, 0) + 1
            yield "burst" if counts[day] > 8 else "admitted"
        else:
            yield "refused"


def told(call):
    """The same words for what the program says about a call."""
    if not call["allowed"]:
        return "refused"
    if call["strategy"] == "leaky_bucket":
        return nanos(call["delay_ms"])
    return "burst" if call["burst"] else "admitted"


def blocks(text):
    """The plain text of each strategy's part of the picture."""
    text = COLOUR.sub("", text)
    found = {}
    for part in re.split(r"\n(?=[a-z_]+ \d)", text)[1:]:
        found[part.split()[0]] = part
    return found


def drawn_marks(block):
    """How often each mark is drawn above the axis. The rows above it begin after the first empty line."""
    marks = dict.fromkeys(MARKS, 0)
    for line in block.split("\n\n")[1].splitlines():
        plot = line[12:]
        if plot and set(plot) <= set("+-|─┴┼"):
            break
        for character in plot:
            character = UNICODE_MARKS.get(character, character)
            if character in marks:
                marks[character] += 1
    return marks


class Demo(unittest.TestCase):
    maxDiff = None

    def assert_fits(self, text, columns):
        for line in text.splitlines():
            self.assertLessEqual(columns_of(line), columns, line)
            self.assertEqual(line.rstrip(), line, "trailing blanks")

    def assert_shows_all(self, text):
        self.assertEqual(list(blocks(text)), STRATEGIES)

    def test_every_strategy_admits_exactly_what_it_promises(self):
        calls = demo_calls()
        self.assertEqual(list(calls), STRATEGIES)
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                instants = [nanos(call["at_ms"]) for call in calls[strategy]]
                self.assertEqual(len(instants), 44)
                self.assertEqual(instants, sorted(instants))
                expected = list(globals()[strategy](instants))
                self.assertEqual([told(call) for call in calls[strategy]], expected)
                self.assertIn("refused", expected)

    def test_json_is_complete_and_consistent(self):
        for strategy, calls in demo_calls().items():
            for number, call in enumerate(calls, 1):
                self.assertEqual(call["call"], number)
                self.assertEqual(set(call), {"strategy", "call", "at_ms", "allowed", "reason", "burst", "limit",
                                             "remaining", "retry_after_ms", "delay_ms", "reset_after_ms"})
                self.assertEqual(call["reason"], "ok" if call["allowed"] else "limited")
                self.assertEqual(call["retry_after_ms"] > 0, not call["allowed"])
                self.assertLessEqual(0, call["remaining"])
                self.assertLess(call["remaining"], call["limit"])
                if strategy != "leaky_bucket":
                    self.assertEqual(call["delay_ms"], 0)

    def test_json_of_one_strategy_is_its_part_of_all(self):
        everything = demo_calls()
        for strategy in STRATEGIES:
            self.assertEqual(demo_calls("--strategy", strategy), {strategy: everything[strategy]})

    def test_json_is_the_same_on_a_terminal(self):
        self.assertEqual(run_on_terminal("demo", "--json", LANG="C.UTF-8"), run("demo", "--json").stdout)

    def test_a_pipe_gets_plain_ascii_within_80_columns(self):
        result = run("demo", LANG="C.UTF-8")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stderr, "")
        self.assertTrue(result.stdout.isascii())
        self.assertNotIn("\x1b", result.stdout)
        self.assert_fits(result.stdout, 80)
        self.assert_shows_all(result.stdout)

    def test_a_terminal_gets_colour_and_blocks_within_80_columns(self):
        text = run_on_terminal("demo", LANG="C.UTF-8")
        self.assertIn("\x1b[32m●", text)
        self.assertIn("\x1b[31m×", text)
        self.assertIn("█", text)
        self.assert_fits(text, 80)
        self.assert_shows_all(text)

    def test_a_terminal_without_utf8_gets_colour_but_ascii(self):
        text = run_on_terminal("demo", LANG="C")
        self.assertIn("\x1b[32mo", text)
        self.assertTrue(text.isascii())
        self.assertEqual(COLOUR.sub("", text), run("demo").stdout)

    def test_colour_is_left_out_when_nobody_wants_it(self):
        for text in (run_on_terminal("demo", "--no-color", LANG="C.UTF-8"),
                     run_on_terminal("demo", LANG="C.UTF-8", NO_COLOR="1")):
            self.assertNotIn("\x1b", text)
            self.assertIn("●", text)
        self.assertEqual(run_on_terminal("demo", LANG="C.UTF-8", TERM="dumb"), run("demo").stdout)
        self.assertIn("\x1b", run_on_terminal("demo", LANG="C.UTF-8", NO_COLOR=""))

    def test_pictures_count_what_json_tells(self):
        calls = demo_calls()
        for text in (run("demo").stdout, run("demo", "--width", "40").stdout,
                     run_on_terminal("demo", columns=57, LANG="C.UTF-8")):
            for strategy, block in blocks(text).items():
                with self.subTest(strategy):
                    expected = dict.fromkeys(MARKS, 0)
                    for call in calls[strategy]:
                        mark = ("x" if not call["allowed"] else "+" if call["burst"]
                                else "~" if call["delay_ms"] > 0 else "o")
                        expected[mark] += 1
                    self.assertEqual(drawn_marks(block), expected)
                    totals = " ".join(block.split("\n\n")[2].split())
                    admitted = 44 - expected["x"]
                    self.assertRegex(totals, rf"^{admitted} of 44 admitted.*, {expected['x']} refused, first retry_after")

    def test_remaining_is_drawn_for_every_column(self):
        for strategy, block in blocks(run("demo").stdout).items():
            (row,) = [line for line in block.splitlines() if line.startswith("  remaining ")]
            self.assertRegex(row[12:], r"^\d{60}$", strategy)

    def test_a_leaky_bucket_acts_at_even_intervals(self):
        (row,) = [line for line in blocks(run("demo").stdout)["leaky_bucket"].splitlines() if line.startswith("  acts")]
        acts = [column for column, character in enumerate(row[12:]) if character == "|"]
        # Half a second is two and a half columns, from the first call at one second on.
        self.assertEqual(acts, [5 + 5 * n // 2 for n in range(len(acts))])
        self.assertGreaterEqual(len(acts), 20)

    def test_every_width_is_kept(self):
        for width in (40, 41, 50, 60, 71, 72, 79, 81, 100, 132, 400):
            text = run("demo", "--width", str(width)).stdout
            self.assert_fits(text, width)
            self.assert_shows_all(text)
        for columns in (40, 64, 120):
            self.assert_fits(run_on_terminal("demo", columns=columns, LANG="C.UTF-8"), columns)
        self.assert_fits(run_on_terminal("demo", "--width", "60", columns=80, LANG="C.UTF-8"), 60)

    def test_the_introduction_tells_the_width_of_a_column(self):
        self.assertIn("A column is 200ms", run("demo").stdout)
        self.assertIn("A column is 600ms", " ".join(run("demo", "--width", "40").stdout.split()))

    def test_one_strategy_alone(self):
        for strategy in STRATEGIES:
            result = run("demo", "--strategy", strategy)
            self.assertEqual(result.returncode, 0)
            self.assertEqual(list(blocks(result.stdout)), [strategy])
            self.assertLessEqual(len(result.stdout.splitlines()), 24)  # a screenful


class CommandLine(unittest.TestCase):
    def assert_refused(self, arguments, message):
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, arguments)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.splitlines()[0], "headgate: " + message)
        self.assertRegex(result.stderr.splitlines()[1], r'^See "headgate( demo)? --help"\.$')

    def test_unknown_commands_are_refused_with_a_suggestion(self):
        self.assert_refused(["dmeo"], 'there is no command "dmeo", did you mean "demo"?')
        self.assert_refused(["vers"], 'there is no command "vers", did you mean "version"?')
        self.assert_refused(["help", "dem"], 'there is no command "dem", did you mean "demo"?')
        self.assert_refused(["frobnicate"], 'there is no command "frobnicate"')
        self.assert_refused([""], 'there is no command ""')
        self.assert_refused(["x" * 5000], f'there is no command "{"x" * 5000}"')

    def test_unknown_options_are_refused_with_a_suggestion(self):
        self.assert_refused(["demo", "--widht", "80"], 'there is no option "--widht", did you mean "--width"?')
        self.assert_refused(["demo", "--no-colour"], 'there is no option "--no-colour", did you mean "--no-color"?')
        self.assert_refused(["demo", "--frobnicate=3"], 'there is no option "--frobnicate"')
        self.assert_refused(["--verison"], 'there is no option "--verison", did you mean "--version"?')
        self.assert_refused(["demo", "extra"], 'unexpected argument "extra"')
        self.assert_refused(["version", "extra"], 'unexpected argument "extra"')

    def test_bad_values_are_refused_by_range(self):
        for width in ("39", "401", "0", "-1", "80x", "99999999999999999999", ""):
            self.assert_refused(["demo", f"--width={width}"] if width else ["demo", "--width", ""],
                                f'--width: must be between 40 and 400, got "{width}"')
        names = ", ".join(STRATEGIES)
        self.assert_refused(["demo", "--strategy", "tokenbucket"],
                            f'--strategy must be one of {names}, got "tokenbucket", did you mean "token_bucket"?')
        self.assert_refused(["demo", "--strategy", "zzz"], f'--strategy must be one of {names}, got "zzz"')
        self.assertEqual(run("demo", "--strategy").returncode, 2)

    def test_help_reads_well_everywhere(self):
        top = run("--help")
        self.assertEqual((top.returncode, top.stderr), (0, ""))
        for same in (["-h"], ["help"], ["help", "version"]):
            self.assertEqual(run(*same).stdout, top.stdout)
        about_demo = run("demo", "--help")
        self.assertEqual(about_demo.returncode, 0)
        self.assertEqual(run("help", "demo").stdout, about_demo.stdout)
        for word in ("demo", "version", "help", "Usage:"):
            self.assertIn(word, top.stdout)
        for word in (*STRATEGIES, "--json", "--width", "--no-color", "--strategy"):
            self.assertIn(word, about_demo.stdout)
        for line in (top.stdout + about_demo.stdout).splitlines():
            self.assertLessEqual(len(line), 80)

    def test_no_command_is_a_usage_error_that_helps(self):
        result = run()
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr, run("--help").stdout)

    def test_the_version_is_the_headers(self):
        header = (ROOT / "include/headgate/version.h").read_text()
        version = ".".join(re.search(rf"VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))
        self.assertIn(f'HEADGATE_VERSION "{version}"', header)
        self.assertEqual(run("version").stdout, f"headgate {version}\n")
        self.assertEqual(run("--version").stdout, f"headgate {version}\n")

    def test_output_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([BINARY, "demo"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard output cannot be written", result.stderr)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
