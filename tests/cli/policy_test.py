#!/usr/bin/env python3
"""The commands that read policies and replay traces. Usage: policy_test.py path/to/headgate"""
import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import unicodedata
import unittest

BINARY = ""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

POLICIES = """\
policies:
  - id: ui-component-creation
    match:
      agents: ["A", "B*"]
      operations: [CREATE_COMPONENT, "ui.*"]
      contexts: [UI_DEVELOPMENT, UI_SANDBOX]
      attributes: {componentType: ["*"]}
    key: [agent, "attr:componentType"]
    limit: {strategy: sliding_window, limit: 5, window: 60s, burst_allowance: 1}
    message: Too many new components
  - {id: everyone, limit: {strategy: token_bucket, capacity: 8, refill_rate: 1}}
  - {id: watched, mode: monitor, key: [], limit: 3/10s}
  - {id: spend, unit: usd, limit: 0.5/1h}
"""


def environment(**changes):
    names = ("NO_COLOR", "LANG", "LC_ALL", "LC_CTYPE", "COLUMNS", "TERM")
    return {**{k: v for k, v in os.environ.items() if k not in names}, "TERM": "xterm-256color", **changes}


def run(*arguments, stdin=None, **changes):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, input=stdin,
                          env=environment(**changes), timeout=60)


def run_on_terminal(*arguments, columns=80, **changes):
    """What the program writes when its output is a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen([BINARY, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs,
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
    return sum(1 for c in COLOUR.sub("", line) if not unicodedata.combining(c))


def checks(*instants, agent="A", **fields):
    lines = [json.dumps({"t": t, "agent": agent, "operation": "CREATE_COMPONENT",
                         "context": {"type": "UI_DEVELOPMENT", "componentType": "Button"}, **fields}) for t in instants]
    return "".join(line + "\n" for line in lines)


class WithFiles(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.policies = self.file("p.yaml", POLICIES)
        self.trace = self.file("t.jsonl", checks(*range(0, 6000, 500)) + checks(6000, 7000, agent="B1"))

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def done(self, *arguments, **options):
        result = run(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""), arguments)
        return result.stdout

    def failing(self, *arguments, code, **options):
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def assert_fits(self, text, columns):
        for line in text.splitlines():
            self.assertLessEqual(columns_of(line), columns, line)
            self.assertEqual(line.rstrip(), line, "trailing blanks")

    def assert_presentable(self, *arguments):
        plain = self.done(*arguments, LANG="C.UTF-8")
        self.assertTrue(plain.isascii())
        self.assertNotIn("\x1b", plain)
        self.assert_fits(plain, 80)
        coloured = run_on_terminal(*arguments, LANG="C.UTF-8")
        self.assertIn("\x1b[", coloured)
        self.assert_fits(coloured, 80)
        for columns in (40, 57, 120):
            self.assert_fits(run_on_terminal(*arguments, columns=columns, LANG="C.UTF-8"), columns)
            self.assert_fits(self.done(*arguments, "--width", columns), columns)
        self.assertEqual(COLOUR.sub("", run_on_terminal(*arguments, LANG="C")), plain)
        self.assertNotIn("\x1b", run_on_terminal(*arguments, "--no-color", LANG="C.UTF-8"))
        return plain


class Validate(WithFiles):
    def test_good_policies_are_summed_up_in_one_line(self):
        self.assertEqual(self.done("policy", "validate", self.policies), "ok: 4 policies (3 enforce, 1 monitor)\n")

    def test_a_folder_is_one_document(self):
        self.file("q.yaml", "policies: [{id: more, limit: 1/s}]")
        self.assertEqual(self.done("policy", "validate", self.folder), "ok: 5 policies (4 enforce, 1 monitor)\n")

    def test_everything_wrong_is_told_with_its_place(self):
        bad = self.file("bad.yaml", "policies:\n  - id: p\n    limit: {strategy: sliding_window, limit: 0, window: 60s}\n"
                                    "  - {id: q, limitt: 5/s}\n")
        result = self.failing("policy", "validate", bad, code=1)
        self.assertEqual(result.stdout, "")
        lines = result.stderr.splitlines()
        self.assertGreaterEqual(len(lines), 2)
        for line in lines:
            self.assertRegex(line, rf"^{re.escape(str(bad))}:\d+:\d+: ")
        self.assertIn(":3:", lines[0])

    def test_json_tells_the_same(self):
        told = json.loads(self.done("policy", "validate", "--json", self.policies))
        self.assertEqual(told, {"ok": True, "policies": 4, "problems": [], "notes": []})
        bad = self.file("bad.yaml", "policies: [{id: p, limit: 0/s}]")
        told = json.loads(self.failing("policy", "validate", "--json", bad, code=1).stdout)
        self.assertFalse(told["ok"])
        self.assertEqual(told["problems"][0]["file"], str(bad))
        self.assertEqual(told["problems"][0]["line"], 1)

    def test_a_file_that_is_not_there_is_an_error(self):
        result = self.failing("policy", "validate", "/nowhere.yaml", code=1)
        self.assertEqual(result.stderr, "/nowhere.yaml: must be a file or a directory, is not there\n")


class List(WithFiles):
    def test_every_policy_has_a_row(self):
        text = self.assert_presentable("policy", "list", self.policies)
        self.assertTrue(text.startswith("ID"))
        for word in ("everyone", "monitor", "token_bucket", "(all)", "block"):
            self.assertIn(word, text)
        self.assertEqual(text, self.done("policy", "list", "--policies", self.policies))

    def test_without_paths_the_tier_limits_are_shown(self):
        result = run("policy", "list", HEADGATE_URL="http://127.0.0.1:1")
        self.assertEqual(result.returncode, 0)
        self.assertIn("The built-in limits, since no server answers", result.stderr)
        text = result.stdout
        for name in ("tier-light", "tier-normal", "tier-heavy", "unidentified", "registration"):
            self.assertIn(name, text)

    def test_json_has_everything(self):
        policies = {p["id"]: p for p in json.loads(self.done("policy", "list", "--json", self.policies))}
        ui = policies["ui-component-creation"]
        self.assertEqual(ui["match"]["agents"], ["A", "B*"])
        self.assertEqual(ui["key"], ["agent", "attr:componentType"])
        self.assertEqual(ui["limits"], ["sliding_window 5/60s, burst 1"])
        self.assertEqual(ui["message"], "Too many new components")
        self.assertEqual(policies["watched"]["mode"], "monitor")
        self.assertEqual(policies["spend"]["unit"], "usd")


class Explain(WithFiles):
    def explain(self, *arguments):
        return ["policy", "explain", "--policies", self.policies, "--agent", "A", *arguments]

    def test_each_policy_says_whether_it_matches_and_why_not(self):
        text = self.assert_presentable(*self.explain("--operation", "CREATE_COMPONENT", "--context", "UI_DEVELOPMENT"))
        self.assertTrue(text.startswith("allowed: All rate limit policies passed\n"))
        self.assertIn("no match  the check has no attribute componentType (missing: skip)", text)
        self.assertIn("token_bucket 8, refilled at 1/s: 7 of 8 left", text)
        self.assertIn("no match  the check has no cost in usd", text)
        self.assertIn("monitored", text)

    def test_attributes_and_costs_count(self):
        told = json.loads(self.done(*self.explain("--operation", "ui.x", "--context", "UI_SANDBOX", "--attr",
                                                  "componentType=Button", "--cost", "2", "--cost", "usd=0.1",
                                                  "--json")))
        self.assertTrue(told["decision"]["allowed"])
        policies = {p["id"]: p for p in told["policies"]}
        self.assertTrue(all(p["matches"] for p in policies.values()))
        self.assertEqual(policies["ui-component-creation"]["key"], "agent=A componentType=Button")
        self.assertEqual(policies["everyone"]["cells"][0]["remaining"], 6)
        self.assertEqual(policies["spend"]["cells"][0]["remaining"], 0.4)

    def test_a_cost_that_never_fits_is_told(self):
        text = self.done(*self.explain("--operation", "x", "--cost", "9"))
        self.assertTrue(text.startswith("denied: The cost is more than"), text)

    def test_mistakes_are_told(self):
        for arguments, message in (
                (["--operation", "x", "--attr", "novalue"], '--attr must be NAME=VALUE, got "novalue"'),
                (["--operation", "x", "--cost", "-1"], "cost must be between 0 and 1000000000000, got -1"),
                ([], "operation is required: what does the agent want to do?"),
                (["--operatoin", "x"], 'there is no option "--operatoin", did you mean "--operation"?')):
            result = self.failing(*self.explain(*arguments), code=2)
            self.assertEqual(result.stderr, f'headgate: {message}\nSee "headgate policy explain --help".\n')


class Simulate(WithFiles):
    def simulate(self, *arguments, **options):
        return self.done("simulate", "--policies", self.policies, "--trace", self.trace, *arguments, **options)

    def test_decisions_are_one_json_object_for_each_check(self):
        decisions = [json.loads(line) for line in self.simulate("--decisions").splitlines()]
        self.assertEqual(len(decisions), 14)
        self.assertEqual([d["allowed"] for d in decisions], [True] * 6 + [False] * 6 + [True] * 2)
        self.assertEqual([d["t"] for d in decisions], [*range(0, 6000, 500), 6000, 7000])
        self.assertEqual(decisions[0]["policy_ids"], ["ui-component-creation", "everyone", "watched"])
        denied = decisions[6]
        self.assertEqual(denied["policy_id"], "ui-component-creation")
        self.assertEqual(denied["reason"], "Sliding window limit 5/60s exceeded")
        self.assertEqual(denied["message"], "Too many new components")
        self.assertEqual((denied["limit"], denied["remaining"], denied["retry_after_ms"]), (5, 0, 57000))
        self.assertEqual([w["kind"] for w in decisions[5]["warnings"]], ["burst", "monitor"])

    def test_the_summary_counts_what_decisions_tell(self):
        told = json.loads(self.simulate("--json"))
        self.assertEqual((told["checks"], told["allowed"], told["denied"]), (14, 8, 6))
        self.assertEqual(told["agents"][0], {"agent": "A", "checks": 12, "denied": 6})
        self.assertEqual(told["first_denial"]["t"], 3000)
        self.assertEqual(sum(told["over_time"]["allowed"]), 8)
        policies = {p["id"]: p for p in told["policies"]}
        self.assertEqual(policies["ui-component-creation"]["denied"], 6)
        self.assertEqual(policies["everyone"]["limits"][0]["peak"]["capacity"], 8)
        self.assertIsNone(policies["spend"]["limits"][0]["peak"])

    def test_the_summary_for_people_says_the_same(self):
        text = self.assert_presentable("simulate", "--policies", self.policies, "--trace", self.trace)
        self.assertTrue(text.startswith("14 checks over 7s: 8 allowed, 6 denied (42.9 %)\n"), text)
        self.assertRegex(text, r"\nui-component-creation +14 +6 +0 +5 of 5 \(100 %\) at 2s\n")
        self.assertRegex(text, r"\nA +12 +6\n")
        self.assertIn("First denied at 3s: A, CREATE_COMPONENT, by ui-component-creation:", text)
        drawn = run_on_terminal("simulate", "--policies", self.policies, "--trace", self.trace, LANG="C.UTF-8")
        self.assertRegex(COLOUR.sub("", drawn), "allowed .*[▁▂▃▄▅▆▇█]")

    def test_csv_and_standard_input_read_the_same(self):
        rows = ["t,agent,operation,context.type,attr.componentType"]
        for line in self.trace.read_text().splitlines():
            check = json.loads(line)
            rows.append(f"{check['t']},{check['agent']},CREATE_COMPONENT,UI_DEVELOPMENT,Button")
        table = self.file("t.csv", "\r\n".join(rows) + "\r\n")
        expected = self.simulate("--decisions")
        self.assertEqual(self.done("simulate", "--policies", self.policies, "--trace", table, "--decisions"), expected)
        self.assertEqual(self.done("simulate", "--policies", self.policies, "--trace", "-", "--decisions",
                                   stdin=self.trace.read_text()), expected)

    def test_without_policies_the_tier_limits_apply(self):
        trace = self.file("h.jsonl", "".join(f'{{"t":0,"agent":"A","operation":"task_submit"}}\n' for _ in range(12)))
        told = json.loads(self.done("simulate", "--trace", trace, "--json"))
        self.assertEqual(told["denied"], 2)
        self.assertEqual(told["first_denial"]["policy_id"], "tier-heavy")

    def test_policies_are_reloaded_where_the_trace_says(self):
        self.file("tight.yaml", "policies: [{id: tight, limit: 1/60s}]")
        trace = self.file("r.jsonl", checks(0, 1) + '{"t": 2, "event": "policies", "file": "tight.yaml"}\n' + checks(3, 4))
        decisions = [json.loads(line) for line in
                     self.done("simulate", "--policies", self.policies, "--trace", trace, "--decisions").splitlines()]
        self.assertEqual([d["allowed"] for d in decisions], [True, True, True, False])
        self.assertEqual(decisions[3]["policy_id"], "tight")

    def test_start_sets_the_wall_clock(self):
        decisions = self.simulate("--decisions", "--start", "2023-01-01T00:00:00Z").splitlines()
        self.assertEqual(json.loads(decisions[0])["reset_time"], 1672531260000)
        self.assertEqual(self.simulate("--decisions", "--start", "1672531200000").splitlines(), decisions)
        for command in "simulate", "tune":
            result = self.failing(command, "--trace", self.trace, "--start", "noon", code=2)
            self.assertIn('--start must be an instant such as 2026-03-28T15:00:00Z, or epoch milliseconds, got "noon"',
                          result.stderr)

    def test_start_is_refused_where_the_lines_have_a_time_of_their_own(self):
        trace = self.file("abs.jsonl", '{"time": 1672531200000, "agent": "A", "operation": "ping"}\n')
        for command in "simulate", "tune":
            self.done(command, "--trace", trace)
            result = self.failing(command, "--trace", trace, "--start", "2023-01-01T00:00:00Z", code=2)
            self.assertIn("--start must go with a trace whose lines have t, milliseconds from the start; the lines of "
                          "this one have time", result.stderr)

    def test_a_bad_trace_is_told_with_its_line(self):
        trace = self.file("bad.jsonl", checks(5) + checks(4))
        result = self.failing("simulate", "--policies", self.policies, "--trace", trace, code=1)
        self.assertEqual(result.stderr, f"headgate: {trace}:2: time must not go backwards: 4 comes after 5\n")
        result = self.failing("simulate", "--trace", "/nowhere", code=1)
        self.assertEqual(result.stderr, "headgate: /nowhere: cannot be read: No such file or directory\n")
        self.assertIn("--trace is needed", self.failing("simulate", code=2).stderr)

    def test_names_cannot_steer_the_terminal(self):
        trace = self.file("e.jsonl", checks(0, agent="\x1b[31mred\x1b[0m"))
        self.assertNotIn("\x1b", self.done("simulate", "--policies", self.policies, "--trace", trace))

    def test_output_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([BINARY, "simulate", "--trace", self.trace, "--decisions"], stdout=full,
                                    stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard output cannot be written", result.stderr)


class Tune(WithFiles):
    def test_proposals_come_with_their_effect(self):
        told = json.loads(self.done("tune", "--policies", self.policies, "--trace", self.trace, "--json", "--percentile",
                                    "100", "--headroom", "1"))
        limits = {limit["policy_id"]: limit for limit in told["limits"]}
        ui = limits["ui-component-creation"]
        self.assertEqual((ui["keys"], ui["peak"]["most"], ui["proposed_limit"]), (2, 12, 12))
        self.assertEqual((ui["denied_before"], ui["denied_after"]), (6, 0))
        self.assertEqual(ui["proposed"], "sliding_window 12/60s, burst 1")
        self.assertIsNone(limits["spend"]["proposed"])
        self.assertEqual((told["denied_before"], told["denied_after"]), (6, 0))

    def test_the_table_says_the_same(self):
        text = self.assert_presentable("tune", "--policies", self.policies, "--trace", self.trace)
        self.assertIn("6 -> 0", text)
        self.assertIn("not used", text)

    def test_mistakes_are_told(self):
        for arguments, message in (
                (["--trace", self.trace, "--since", "24h"],
                 "--since asks a server for its history: a trace is always taken whole"),
                (["--policies", self.policies], "--policies goes with --trace: of checks a server keeps only counts, so their "
                                                "limits are tuned from recorded traffic"),
                (["--start", "2026-03-28T15:00:00Z"], "--start goes with --trace"),
                (["--trace", "-"], "--trace must be a file, since it is read three times, got standard input"),
                (["--trace", self.trace, "--percentile", "0"], "--percentile must be over 0 and up to 100, got 0"),
                (["--trace", self.trace, "--headroom", "0.5"],
                 "--headroom must be between 1 and 100, or a share such as 20%, got 0.5"),
                (["--trcae", self.trace], 'there is no option "--trcae", did you mean "--trace"?')):
            result = self.failing("tune", *arguments, code=2)
            self.assertEqual(result.stderr, f'headgate: {message}\nSee "headgate tune --help".\n')


class Help(unittest.TestCase):
    def test_every_command_has_help_that_fits(self):
        for command in (["policy"], ["policy", "validate"], ["policy", "list"], ["policy", "explain"], ["simulate"],
                        ["tune"]):
            result = run(*command, "--help")
            self.assertEqual((result.returncode, result.stderr), (0, ""), command)
            self.assertEqual(run("help", *command).stdout, result.stdout)
            self.assertTrue(result.stdout.startswith(f"headgate {' '.join(command)}: "))
            self.assertIn("Usage: headgate " + " ".join(command), result.stdout)
            for line in result.stdout.splitlines():
                self.assertLessEqual(len(line), 80)

    def test_unknown_commands_get_a_suggestion(self):
        result = run("policy", "validat", "x")
        self.assertEqual(result.returncode, 2)
        self.assertIn('there is no command "policy validat", did you mean "policy validate"?', result.stderr)
        self.assertIn('did you mean "simulate"?', run("simulat").stderr)
        result = run("policy")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("Usage: headgate policy COMMAND", result.stderr)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
