#!/usr/bin/env python3
"""The commands for quotas, against a fake server that answers as the contract says. Usage: quota_test.py path/to/headgate"""
import datetime
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
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
from fake_server import COLOUR, TOKEN, FakeHttp, environment, run  # noqa: E402
from waiting import avoid_midnight  # noqa: E402

BINARY = ""
HOUR = 3_600_000
DAY = 24 * HOUR
LIMITS = {"shell": (500, 3000, 10000), "code": (300, 1500, 5000), "other": (500, 3000, 10000)}


def now():
    return int(time.time() * 1000)


def status(used=None, plan="free", unlimited=False, **more):
    used = used or {"shell": (333, 800, 9000), "code": (3, 20, 20)}
    answer = {"user": "ana", "plan": plan, "timezone": "Europe/Berlin", "mode": "enforce", "rule": None}
    for i, (period, left) in enumerate((("daily", 5 * HOUR), ("weekly", 2 * DAY), ("monthly", 15 * DAY))):
        answer[period] = {}
        for name, limits in LIMITS.items():
            count = used.get(name, (0, 0, 0))[i]
            answer[period][name] = {"limit": None if unlimited else limits[i], "used": count,
                                    "remaining": None if unlimited else max(limits[i] - count, 0),
                                    "resets_at": now() + left + 30_000}
    return {**answer, "throttle_factor": 1.0, "system_load": 0.42, "warning": "", **more}


PLANS = {"default_plan": "free", "timezone": "UTC", "mode": "enforce", "plans": {
    "free": {"timezone": "", "mode": "enforce", "weight": 1, "types": {
        name: {"daily": day, "weekly": week, "monthly": month, "session": None, "estimated_cpu": 10, "estimated_mem": 100}
        for name, (day, week, month) in LIMITS.items()}},
    "enterprise": {"timezone": "UTC", "mode": "monitor", "weight": 16, "types": {
        "other": {"daily": None, "weekly": None, "monthly": None, "session": 7, "estimated_cpu": 5, "estimated_mem": 50}}}}}


avoid_midnight()
TODAY = datetime.datetime.now(datetime.timezone.utc).date()


def usage(user, kind, days_ago, commands, **more):
    date = TODAY - datetime.timedelta(days=days_ago)
    start = datetime.datetime(date.year, date.month, date.day, tzinfo=datetime.timezone.utc)
    return {"user_id": user, "command_type": kind, "day": date.isoformat(), "day_start": int(start.timestamp() * 1000),
            "commands": commands, "refused": 0, "would_refuse": 0, "throttled": 0, "runs": commands, "failures": 0,
            "duration_ms": 10, "cpu_ms": 5, "memory_mb": 3, **more}


def execution(number, **more):
    return {"id": number, "user_id": "ana", "session_id": None, "command_type": "shell", "command_hash": "ab" * 32,
            "duration_ms": 1234, "cpu_usage_percent": 98.6, "memory_usage_mb": 12.4, "exit_code": 0,
            "error_message": None, "executed_at": 1_794_808_051_588, **more}


class WithServer(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.server = FakeHttp()
        self.addCleanup(self.server.close)
        self.answer("/api/quotas/user/ana", status())
        self.answer("/api/quotas/commands", PLANS)

    def answer(self, path, body, method="GET", code=200):
        self.server.answers[method, path] = (code, body)

    def ask(self, *arguments):
        return run(*arguments, HEADGATE_URL=self.server.url, HEADGATE_TOKEN=TOKEN)

    def told(self, *arguments, code=0):
        result = self.ask(*arguments)
        self.assertEqual((result.returncode, result.stderr), (code, ""), result.stdout)
        if not {"--json", "--csv", "--commands"} & set(arguments):
            self.assertTrue(result.stdout.isascii())
            width = int(arguments[arguments.index("--width") + 1]) if "--width" in arguments else 80
            for line in result.stdout.splitlines():
                self.assertLessEqual(len(line), width, line)
                self.assertEqual(line, line.rstrip())
        return result.stdout

    def on_terminal(self, *arguments, columns=80):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        done = subprocess.Popen([BINARY, *arguments], stdout=theirs, stdin=theirs, stderr=subprocess.PIPE,
                                env=environment(HEADGATE_TOKEN=TOKEN, HEADGATE_URL=self.server.url, LANG="C.UTF-8"))
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 65536):
                seen += piece
        except OSError:
            pass  # the other end is closed
        os.close(ours)
        done.stderr.close()
        self.assertEqual(done.wait(30), 0)
        text = seen.decode().replace("\r\n", "\n")
        for line in COLOUR.sub("", text).splitlines():
            self.assertLessEqual(len(line), columns, line)
        return text

    def misused(self, *arguments, message):
        result = self.ask(*arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        self.assertEqual(result.stderr.splitlines()[0], "headgate: " + message)

    def refused(self, *arguments, message):
        result = self.ask(*arguments)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (1, "", f"headgate: {message}\n"))


class Status(WithServer):
    def test_each_type_has_a_bar_for_each_period(self):
        text = self.told("quota", "status", "--user", "ana")
        self.assertEqual(text, """\
user        ana
plan        free
time zone   Europe/Berlin
mode        enforce
speed       full, load 0.42

TYPE   TODAY                  THIS WEEK              THIS MONTH
shell  ######... 333/500      ##....... 800/3000     ########. 9000/10000
code   #........ 3/300        #........ 20/1500      #........ 20/5000
other  ......... 0/500        ......... 0/3000       ......... 0/10000

resets      today in 5h00m, week in 2d00h, month in 15d00h, at midnight in
            Europe/Berlin
""")

    def test_colours_say_how_much_is_used(self):
        text = self.on_terminal("quota", "status", "--user", "ana")
        self.assertIn("\x1b[33m██████░░░\x1b[0m 333/500", text)
        self.assertIn("\x1b[31m████████░\x1b[0m 9000/10000", text)
        self.assertIn("\x1b[32m█░░░░░░░░\x1b[0m 3/300", text)

    def test_no_limit_is_told_in_words(self):
        self.answer("/api/quotas/user/ana", status(plan="enterprise", unlimited=True))
        self.assertIn("shell  333, no limit          800, no limit          9k, no limit",
                      self.told("quota", "status", "--user", "ana"))

    def test_a_narrow_terminal_has_the_periods_below_each_other(self):
        text = self.told("quota", "status", "--user", "ana", "--width", "40")
        self.assertIn("shell\n  today  ########.... 333/500\n  week   ###......... 800/3000\n", text)

    def test_what_is_out_of_the_ordinary_is_told(self):
        self.answer("/api/quotas/user/ana", status(
            throttle_factor=0.6, system_load=0.85, warning="Only 9 shell commands left today", mode="monitor",
            rule={"plan": "premium", "types": {"shell": {"daily": 50}}}))
        text = self.told("quota", "status", "--user", "ana")
        for line in ("own rule    plan premium, shell daily 50", "speed       60 % of full, load 0.85",
                     "mode        monitor: commands are counted, none is refused",
                     "warning     Only 9 shell commands left today"):
            self.assertIn(line + "\n", text)

    def test_a_server_that_blocks_all_says_so(self):
        self.answer("/api/quotas/user/ana", status(throttle_factor=0))
        self.assertIn("speed       none: no command starts until the load is lower",
                      self.told("quota", "status", "--user", "ana"))

    def test_names_that_need_it_are_encoded_and_errors_are_told(self):
        self.answer("/api/quotas/user/a%2Fb%20c", {"error": "unknown_user", "message": "there is no rule for it"},
                    code=404)
        self.refused("quota", "status", "--user", "a/b c", message="unknown_user: there is no rule for it")
        self.misused("quota", "status", message="--user is needed: whose quotas?")

    def test_json_is_as_the_server_answers(self):
        self.assertEqual(json.loads(self.told("quota", "status", "--user", "ana", "--json"))["plan"], "free")


class Set(WithServer):
    def set(self, *arguments, rule):
        self.answer("/api/quotas/user/ana", {"user": "ana", "rule": rule}, "PUT")
        return self.told("quota", "set", "--user", "ana", *arguments)

    def test_what_changed_is_told_before_and_after(self):
        self.answer("/api/quotas/user/ana", status(rule={"types": {"code": {"daily": 7}}}))
        text = self.set("--plan", "premium", "--type", "shell", "--daily", "50", "--weekly", "unlimited",
                        rule={"plan": "premium", "types": {"code": {"daily": 7},
                                                           "shell": {"daily": 50, "weekly": "unlimited"}}})
        self.assertEqual(text, """\
user ana
  FIELD         BEFORE                  AFTER
  plan          the default: free   ->  premium
  shell daily   as the plan: 500    ->  50
  shell weekly  as the plan: 3,000  ->  unlimited
""")
        self.assertEqual(self.server.requests[-1][3],
                         {"plan": "premium", "types": {"shell": {"daily": 50, "weekly": "unlimited"}}})

    def test_words_take_fields_back_to_the_plan(self):
        self.answer("/api/quotas/user/ana", status(rule={"mode": "monitor", "weight": 2,
                                                         "types": {"shell": {"daily": 50}}}))
        text = self.set("--plan", "default", "--mode", "plan", "--timezone", "plan", "--weight", "plan", "--type", "shell",
                        "--daily", "plan", "--session", "3", rule={"types": {"shell": {"session": 3}}})
        self.assertEqual(self.server.requests[-1][3], {"plan": None, "timezone": None, "mode": None, "weight": None,
                                                       "types": {"shell": {"daily": None, "session": 3}}})
        self.assertRegex(text, r"mode +monitor +-> +as the plan\n")
        self.assertRegex(text, r"shell session +as the plan +-> +3\n")

    def test_a_rule_can_be_taken_away_whole(self):
        self.answer("/api/quotas/user/ana", status(rule={"weight": 2.5}))
        self.answer("/api/quotas/user/ana", {"user": "ana", "rule": {}}, "DELETE")
        self.assertRegex(self.told("quota", "set", "--user", "ana", "--clear"), r"weight +2\.5 +-> +as the plan\n")

    def test_nothing_new_is_told_as_such(self):
        self.answer("/api/quotas/user/ana", status(rule={"mode": "monitor"}, mode="monitor"))
        self.assertEqual(self.set("--mode", "monitor", rule={"mode": "monitor"}), "user ana: all was so already\n")

    def test_a_user_that_the_server_does_not_know_yet_can_get_a_rule(self):
        self.answer("/api/quotas/user/ana", {"error": "unknown_user", "message": "no rule"}, code=404)
        self.assertIn("premium", self.set("--plan", "premium", rule={"plan": "premium"}))

    def test_what_the_server_refuses_is_told(self):
        self.answer("/api/quotas/user/ana", {"error": "invalid_rule", "message": "timezone must be one"}, "PUT", 400)
        self.refused("quota", "set", "--user", "ana", "--timezone", "Europe/Berlim",
                     message="invalid_rule: timezone must be one")

    def test_mistakes_are_told_before_anything_is_sent(self):
        for arguments, message in (
                ([], '--user is needed; "headgate quota set-plan" changes a plan'),
                (["--user", "ana"], "what is to change? name at least one option, or --clear"),
                (["--user", "ana", "--daily", "5"], "--type is needed: daily of which type of command?"),
                (["--user", "ana", "--type", "shell"],
                 "--type says what --daily, --weekly, --monthly or --session is for: at least one of them is needed"),
                (["--user", "ana", "--type", "shell", "--daily", "-1"],
                 '--daily must be a whole number, plan or unlimited, got "-1"'),
                (["--user", "ana", "--type", "shell", "--daily", "1.5"],
                 '--daily must be a whole number, plan or unlimited, got "1.5"'),
                (["--user", "ana", "--mode", "strict"], '--mode must be enforce, monitor, off or plan, got "strict"'),
                (["--user", "ana", "--weight", "x"], '--weight must be a number or plan, got "x"'),
                (["--user", "ana", "--clear", "--plan", "free"],
                 "--clear takes everything away: it cannot go with --plan")):
            self.misused("quota", "set", *arguments, message=message)
        self.assertEqual(self.server.requests, [])


class Plans(WithServer):
    def test_all_plans_are_shown(self):
        text = self.told("quota", "plans")
        self.assertIn("free (default): enforce, UTC, weight 1\n", text)
        self.assertIn("  shell    500   3,000   10,000          -     10  100\n", text)
        self.assertIn("enterprise: monitor, UTC, weight 16\n", text)

    def test_a_change_is_told_before_and_after(self):
        before, after = json.loads(json.dumps(PLANS)), json.loads(json.dumps(PLANS))
        after["plans"]["free"]["types"]["shell"]["daily"] = 600
        answers = [before, after]
        # The second look shows what was changed.
        class Each(dict):
            def get(self, key, default=None):
                if key == ("GET", "/api/quotas/commands"):
                    return (200, answers.pop(0))
                return super().get(key, default)
        self.answer("/api/quotas/plans/free", {"plan": "free"}, "PUT")
        self.server.answers = Each(self.server.answers)
        self.assertEqual(self.told("quota", "set-plan", "--plan", "free", "--type", "shell", "--daily", "600",
                                   "--estimate-cpu", "12.5"),
                         "plan free\n  FIELD        BEFORE      AFTER\n  shell daily  500     ->  600\n")
        sent = [body for method, _, _, body in self.server.requests if method == "PUT"]
        self.assertEqual(sent, [{"types": {"shell": {"daily": 600, "estimated_cpu": 12.5}}}])

    def test_mistakes_are_told(self):
        self.misused("quota", "set-plan", "--mode", "off", message="--plan is needed: which plan?")
        self.misused("quota", "set-plan", "--plan", "free", "--mode", "plan",
                     message='--mode must be enforce, monitor or off, got "plan"')


class History(WithServer):
    def setUp(self):
        super().setUp()
        self.answer("/api/quotas/usage", {"usage": [
            usage("ana", "shell", 1, 200), usage("ana", "code", 1, 12, refused=3), usage("ana", "shell", 0, 50, failures=2)]})
        self.answer("/api/quotas/executions", {"executions": [
            execution(2, exit_code=1, error_message="killed\x1b[2J"), execution(1)], "next_cursor": None})

    def test_a_graph_and_the_latest_commands(self):
        text = self.told("quota", "history", "--user", "ana")
        self.assertTrue(text.startswith("user ana: 262 commands, 3 refused, 2 failed\n\n"))
        days = re.findall(r"^  (?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d\d-\d\d  (#*) ?(.*)$", text, re.MULTILINE)
        self.assertEqual(len(days), 8)
        self.assertEqual(days[-2], ("#" * 40, "212, 3 refused"))
        self.assertEqual(days[-1], ("#" * 9, "50"))
        self.assertEqual(days[0], ("", "0"))
        self.assertIn("TIME (UTC)           TYPE    TOOK  CPU %  MB  EXIT  ERROR\n", text)
        self.assertIn("2026-11-16 05:47:31  shell  1.23s     99  12     1  killed?[2J\n", text)

    def test_many_days_become_columns(self):
        text = self.told("quota", "history", "--user", "ana", "--since", "60d")
        self.assertRegex(text, r"(?m)^  commands +@:$")
        self.assertRegex(text, r"(?m)^  refused +\.$")

    def test_what_is_asked_for_is_passed_on(self):
        self.told("quota", "history", "--user", "a&b", "--type", "shell", "--failed", "--limit", "7", "--since",
                  "2026-01-01")
        paths = [path for _, path, _, _ in self.server.requests]
        self.assertEqual(paths, ["/api/quotas/usage?user_id=a%26b&since=1767175200000&command_type=shell",
                                 "/api/quotas/executions?user_id=a%26b&since=1767225600000&command_type=shell"
                                 "&failed=true&limit=7"])

    def test_csv_is_all_pages_with_one_line_of_names(self):
        pages = {"": ("id,user\n3,ana\n2,ana\n", "c1"), "c1": ("id,user\n1,ana\n", None)}
        outer = self

        class Paged(dict):
            def get(self, key, default=None):
                if key[1].startswith("/api/quotas/executions?"):
                    outer.assertIn("&format=csv&limit=10000", key[1])
                    cursor = key[1].partition("&cursor=")[2]
                    text, following = pages[cursor]
                    return (200, text.encode(), *([("X-Next-Cursor", following)] if following else []))
                return super().get(key, default)
        self.server.answers = Paged(self.server.answers)
        self.assertEqual(self.told("quota", "history", "--user", "ana", "--csv"), "id,user\n3,ana\n2,ana\n1,ana\n")

    def test_nothing_recorded_is_told(self):
        self.answer("/api/quotas/usage", {"usage": []})
        self.answer("/api/quotas/executions", {"executions": [], "next_cursor": None})
        self.assertIn("no failed commands were recorded", self.told("quota", "history", "--user", "ana", "--failed"))

    def test_mistakes_are_told(self):
        self.misused("quota", "history", message="--user is needed: whose history?")
        self.misused("quota", "history", "--user", "ana", "--since", "tomorrow", message=(
            '--since must be a span such as 7d, up to ten years, or a past day such as 2026-11-01, got "tomorrow"'))
        self.misused("quota", "history", "--user", "ana", "--csv", "--json",
                     message="--csv and --json cannot go together")


class Report(WithServer):
    def test_who_was_refused_is_told(self):
        self.answer("/api/quotas/report", {"since": 1_794_808_051_588, "until": 1_794_808_051_589, "users": [
            {"user_id": "ana", "command_type": "shell", "commands": 1234, "refused": 0, "would_refuse": 56, "throttled": 7,
             "days": 3, "worst_day": {"day": "2026-11-15", "commands": 612}}]})
        text = self.told("quota", "report")
        self.assertTrue(text.startswith("Since 2026-11-16T05:47:31Z: 0 commands refused for want of quota, 56 more would"))
        self.assertIn("ana   shell     1,234        0        56       7     3  2026-11-15: 612\n", text)
        self.assertNotIn("--since", text)

    def test_that_not_all_was_read_is_told(self):
        self.answer("/api/quotas/report", {"since": 1_794_808_051_588, "until": 1_794_808_051_589, "users": [],
                                           "truncated": True})
        text = self.told("quota", "report").replace("\n", " ")
        self.assertIn("There was more than is read at once: --since a later day counts all of it.", text)


class Queue(WithServer):
    QUEUE = {"concurrent": 4, "factor": 0.6, "running": 2, "waiting": 12, "line": [
        {"run": "r1", "user": "ana", "type": "shell", "session": None, "priority": 5, "position": 1, "waited_ms": 3200,
         "estimated_start_ms": 1500},
        {"run": "r2", "user": "bob", "type": "test", "session": "s9", "priority": 0, "position": 2, "waited_ms": 1000,
         "estimated_start_ms": None}],
        "runs": [{"run": "r0", "user": "eve", "type": "code", "session": None, "running_ms": 65_000}]}

    def test_who_runs_and_who_waits(self):
        self.answer("/api/quotas/queue", self.QUEUE)
        self.assertEqual(self.told("quota", "queue"), """\
2 running of 4, 12 waiting, at 60 % of full speed

waiting
  #  USER  TYPE   SESSION  PRIORITY  WAITED   STARTS IN
  1  ana   shell                  5    3.2s  about 1.5s
  2  bob   test   s9              0      1s     unknown

running
  USER  TYPE  SESSION  RUNNING FOR
  eve   code                 1m05s
""")

    def test_top_shows_the_line(self):
        self.answer("/api/quotas/queue", self.QUEUE)
        text = self.told("top", "--once")
        self.assertIn("commands 2 running of 4, 12 waiting, at 60 % of full speed\n", text)
        self.assertIn("in line  1 ana shell (3.2s), 2 bob test (1s)\n", text)

    def test_top_says_nothing_where_there_are_no_quotas(self):
        self.assertNotIn("running", self.told("top", "--once"))


class Tune(WithServer):
    def setUp(self):
        super().setUp()
        # Yesterday may not be over yet: where clocks were set back, a day has 25 hours.
        days = range(2, 16)
        rows = [usage(f"u{user}", "shell", day, 10 * user) for user in range(1, 21) for day in days]
        rows += [usage("rich", "shell", day, 10_000) for day in days]
        self.answer("/api/quotas/usage", {"usage": rows})
        self.answer("/api/quotas/users", {"users": [{"user": "rich", "rule": {"plan": "enterprise"}}], "next": None})

    def test_proposals_are_by_plan_and_type_with_their_effect(self):
        told = json.loads(self.told("tune", "--json"))
        self.assertEqual([(one["plan"], one["type"], one["users"]) for one in told["types"]],
                         [("enterprise", "shell", 1), ("free", "shell", 20)])
        free = told["types"][1]
        self.assertEqual(free["daily"], {"samples": 280, "percentile": 190, "most": 200, "scaled": False, "limit": 500,
                                         "proposed": 230})
        self.assertEqual((free["weekly"]["percentile"], free["weekly"]["proposed"], free["weekly"]["samples"]),
                         (1330, 1600, 40))
        self.assertTrue(free["monthly"]["scaled"])
        self.assertEqual(free["would_refuse_now"], {"users": 0, "days": 0, "commands": 0})

    def test_the_table_says_the_same(self):
        text = self.told("tune", "--headroom", "0%", "--plan", "free")
        self.assertRegex(text, r"(?m)^free  shell  day +190 +200 +500 +190 +now no user$")
        self.assertRegex(text, r"(?m)^ +week +1,330 .* then 1 user, \d+ days$")
        self.assertIn("From 14 days.", text)

    def test_commands_can_be_pasted(self):
        self.assertEqual(self.told("tune", "--plan", "free", "--commands"),
                         "headgate quota set-plan --plan free --type shell --daily 230 --weekly 1600 --monthly 6900\n")

    def test_nothing_known_is_an_error(self):
        self.answer("/api/quotas/usage", {"usage": []})
        result = self.ask("tune")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("there is nothing to propose from", result.stderr)
        self.refused("tune", "--plan", "gold",
                     message='there is no plan "gold": "headgate quota plans" shows them')

    def test_mistakes_are_told(self):
        self.misused("tune", "--plan", "free", "--trace", "x", message="--plan and --commands cannot go with --trace")
        self.misused("tune", "--since", "500d", message="--since must be at most 400 days ago")


class Help(unittest.TestCase):
    def test_every_command_has_help_that_fits(self):
        for command in ("status", "set", "set-plan", "plans", "history", "report", "queue"):
            result = run("quota", command, "--help")
            self.assertEqual((result.returncode, result.stderr), (0, ""), command)
            self.assertTrue(result.stdout.startswith(f"headgate quota {command}: "))
            for line in result.stdout.splitlines():
                self.assertLessEqual(len(line), 80)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
