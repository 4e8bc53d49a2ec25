#!/usr/bin/env python3
"""headgate run: signals, exit codes, pace, measures and the terminal, against a fake server.
Usage: run_test.py path/to/headgate"""
import hashlib
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
from fake_server import TOKEN, FakeHttp, environment  # noqa: E402
from terminal import STEERING, Terminal  # noqa: E402
from waiting import PATIENCE, wait_until  # noqa: E402

BINARY = ""
CHECK, RECORD = ("POST", "/api/quotas/check"), ("POST", "/api/quotas/executions")


def stat_of(pid):
    """State and parent; nothing if it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else (fields[0], int(fields[1]))


def is_there(pid):
    return stat_of(pid) is not None


class Shell(Terminal):
    def wait_for(self, text):
        """Until it shows; what was seen up to then is forgotten."""
        super().wait_for(text)
        return self.forget()


class RunCase(unittest.TestCase):
    def setUp(self):
        self.server = FakeHttp()
        self.addCleanup(self.server.close)
        self.decide()
        self.server.answers[RECORD] = (200, {"recorded": True, "id": None})

    def decide(self, **more):
        def answer(asked):
            return 200, {"allowed": True, "reason": "", "throttle_factor": 1.0, "warning": "", "retry_after_ms": 0,
                         "delay_ms": 0, "run": asked["run"], "run_ttl_ms": 60000, **more}
        self.server.answers[CHECK] = answer

    def words(self, *command, options=()):
        return [BINARY, "run", "--url", self.server.url, "--user", "42", "--type", "shell", *options, "--", *command]

    def env(self, **more):
        return environment(HEADGATE_TOKEN=TOKEN, **more)

    def run_it(self, *command, options=(), stdin=None, **more):
        return subprocess.run(self.words(*command, options=options), capture_output=True, text=True, timeout=PATIENCE,
                              input=stdin, env=self.env(), **more)

    def start(self, *command, options=(), **more):
        process = subprocess.Popen(self.words(*command, options=options), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=self.env(), **more)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()
        self.addCleanup(end)
        return process

    def asked(self, what):
        return [body for method, path, _, body in self.server.requests if (method, path) == what]

    def recorded(self):
        records = self.asked(RECORD)
        self.assertEqual(len(records), 1, self.server.requests)
        return records[0]


class Passing(RunCase):
    def test_the_exit_code_is_that_of_the_command(self):
        for code in (0, 1, 7, 75, 255):
            self.assertEqual(self.run_it("sh", "-c", f"exit {code}").returncode, code)
        self.assertEqual([record["exit_code"] for record in self.asked(RECORD)], [0, 1, 7, 75, 255])

    def test_standard_input_output_and_error_are_those_of_the_command(self):
        text = "line\n" * 50_000
        done = self.run_it("sh", "-c", "cat; echo problem >&2", stdin=text)
        self.assertEqual((done.stdout, done.stderr, done.returncode), (text, "problem\n", 0))

    def test_the_command_gets_the_files_we_were_given_and_no_others(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        # Over TLS too.
        for make_options in (list, self.over_tls):
            done = self.run_it("ls", "/proc/self/fd", options=make_options(), pass_fds=(writer,))
            self.assertEqual(done.returncode, 0, done.stderr)
            others = set(map(int, done.stdout.split())) - {0, 1, 2, writer}
            self.assertEqual(len(others), 1, "the one that ls reads the list with")

    def over_tls(self):
        here = tempfile.TemporaryDirectory()
        self.addCleanup(here.cleanup)
        key, cert = f"{here.name}/key.pem", f"{here.name}/cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
                        "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        plain, self.server = self.server, FakeHttp(tls=context)
        self.addCleanup(self.server.close)
        self.server.answers.update(plain.answers)
        return ["--cacert", cert]

    def test_ten_thousand_words_arrive_as_they_are(self):
        words = [f"word {i}" for i in range(10_000)] + ["--help", "--", "[a,b]", "", "{}", "%%", "status", "\n"]
        done = self.run_it(sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words)
        self.assertEqual(__import__("json").loads(done.stdout), words)
        whole = "\0".join([sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words])
        self.assertEqual(self.recorded()["command_hash"], hashlib.sha256(whole.encode()).hexdigest())
        self.assertEqual(self.asked(CHECK)[0]["size"], len(whole))

    def test_a_command_that_is_not_there_is_127_and_not_charged(self):
        for name, code in (("no-such-command", 127), ("/no/such/command", 127), ("/etc/passwd", 126), ("/tmp", 126)):
            done = self.run_it(name)
            self.assertEqual(done.returncode, code, name)
            self.assertRegex(done.stderr, f"headgate: cannot run {name}: (No such file|Permission denied)")
        self.assertEqual(self.server.requests, [])

    def test_a_command_that_cannot_be_executed_after_all_is_recorded(self):
        with tempfile.TemporaryDirectory() as here:
            script = pathlib.Path(here, "script")
            script.write_text("#!/no/such/interpreter\n")
            script.chmod(0o755)
            self.assertEqual(self.run_it(str(script)).returncode, 127)
        record = self.recorded()
        self.assertEqual((record["exit_code"], record["error_message"]), (127, "No such file or directory"))

    def test_a_death_by_signal_is_passed_on_as_one(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE):
            self.assertEqual(self.run_it("sh", "-c", f"kill -{int(number)} $$").returncode, -number)
        self.assertEqual(self.asked(RECORD)[0]["error_message"], "killed by signal 9 (Killed)")
        self.assertEqual(self.asked(RECORD)[0]["exit_code"], 137)

    def test_signals_sent_to_us_reach_the_command_once(self):
        for factor in (1.0, 0.5):
            self.decide(throttle_factor=factor)
            # It sleeps in its own loop: with no signal to come it would never end.
            script = ("trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo hup' HUP; trap 'echo int' INT\n"
                      "trap 'echo quit' QUIT; trap 'echo winch' WINCH; trap 'echo term; exit 5' TERM\n"
                      "trap 'echo alrm' ALRM; trap 'echo rtmin' RTMIN\n"
                      "echo ready; while :; do sleep 0.02; done")
            process = self.start("bash", "-c", script)
            self.assertEqual(process.stdout.readline(), "ready\n")
            for name in ("USR1", "USR2", "HUP", "INT", "QUIT", "WINCH", "ALRM", "RTMIN", "TERM"):
                process.send_signal(getattr(signal, f"SIG{name}"))
                self.assertEqual(process.stdout.readline(), f"{name.lower()}\n")
            self.assertEqual(process.wait(PATIENCE), 5)
            self.assertEqual(process.stdout.read(), "")

    def test_what_was_ignored_and_blocked_before_is_so_for_the_command(self):
        done = self.run_it("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status",
                           preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN), restore_signals=True)
        blocked, ignored = (int(line.split()[1], 16) for line in done.stdout.splitlines())
        self.assertEqual(blocked, 0)
        self.assertEqual(ignored & 1, 1, "nohup must go on working")


class Asking(RunCase):
    def test_the_question_says_all_that_was_told(self):
        self.run_it("true", options=["--session", "s", "--plan", "premium", "--estimate-cpu", "12.5", "--estimate-mem",
                                     "300", "--priority", "-3", "--wait=90s"])
        asked = self.asked(CHECK)[0]
        run = asked.pop("run")
        self.assertRegex(run, "^[0-9a-f]{32}$")
        self.assertEqual(asked, {"user": "42", "type": "shell", "session": "s", "plan": "premium", "size": 4,
                                 "estimated_cpu": 12.5, "estimated_mem": 300, "max_wait_ms": 90000, "priority": -3})
        record = self.recorded()
        self.assertEqual((record["user_id"], record["session_id"], record["command_type"], record["run"]),
                         ("42", "s", "shell", run))

    def test_one_connection_carries_both_calls(self):
        ports = []
        plain = self.server.answers[CHECK]
        self.server.answers[CHECK] = lambda asked: (ports.append(threading.get_ident()), plain(asked))[1]
        self.server.answers[RECORD] = lambda asked: (ports.append(threading.get_ident()), (200, {}))[1]
        self.assertEqual(self.run_it("true").returncode, 0)
        self.assertEqual(len(ports), 2)
        self.assertEqual(len(set(ports)), 1, "the server has a thread for each connection")

    def test_denied_is_75_with_reason_and_time_and_nothing_runs(self):
        self.decide(allowed=False, error="quota_exceeded", reason="Daily quota of 500 shell commands is used up",
                    retry_after_ms=90_000)
        done = self.run_it("echo", "ran")
        self.assertEqual((done.returncode, done.stdout), (75, ""))
        self.assertEqual(done.stderr, "headgate: not run: Daily quota of 500 shell commands is used up; "
                                      "try again in 1m30s\n")
        self.assertEqual(self.asked(RECORD), [])

    def test_a_refused_question_is_1_whatever_on_failure_says(self):
        self.server.answers[CHECK] = (404, {"error": "unknown_user", "message": "there is no user 42"})
        done = self.run_it("echo", "ran", options=["--on-failure", "open"])
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, "headgate: unknown_user: there is no user 42\n")

    def test_without_a_server_closed_does_not_run_and_open_does(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            self.server.url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            closed = self.run_it("echo", "ran")
            self.assertEqual((closed.returncode, closed.stdout), (75, ""))
            self.assertIn("connection refused", closed.stderr)
            self.assertIn("--on-failure open", closed.stderr)
            opened = self.run_it("sh", "-c", "echo ran; exit 3", options=["--on-failure", "open"])
            self.assertEqual((opened.returncode, opened.stdout, opened.stderr), (3, "ran\n", ""))
            told = self.run_it("true", options=["--on-failure", "open", "--warn", "always"])
            self.assertIn("running it all the same", told.stderr)
            self.assertIn("not recorded", told.stderr)

    def test_a_server_that_cannot_answer_is_as_good_as_none(self):
        for answer in ((503, {"error": "ledger_unavailable", "message": "the disk is full"}), (200, b"<html>"),
                       (200, {"hello": 1})):
            self.server.answers[CHECK] = answer
            self.assertEqual(self.run_it("echo", "ran").returncode, 75)
            opened = self.run_it("echo", "ran", options=["--on-failure", "open"])
            self.assertEqual((opened.returncode, opened.stdout), (0, "ran\n"))
            self.assertNotIn("run", self.asked(RECORD)[-1], "no server knows of that run")

    def test_a_server_that_goes_away_meanwhile_changes_nothing(self):
        process = self.start("sh", "-c", "echo ready; read line; exit 9", stdin=subprocess.PIPE,
                             options=["--warn", "always"])
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.readline(), "ready\n")
        self.server.answers[RECORD] = (500, {"error": "internal", "message": "no"})
        process.stdin.write("go\n")
        process.stdin.flush()
        self.assertEqual(process.wait(PATIENCE), 9)
        self.assertEqual(process.stderr.read(), "headgate: not recorded: internal: no\n")

    def test_what_is_not_understood_is_2(self):
        for arguments, message in (
                (["--type", "shell", "--", "true"], "--user is needed"),
                (["--user", "42", "--", "true"], "--type is needed"),
                (["--user", "42", "--type", "shell"], "a command is needed"),
                (["--user", "42", "--type", "shell", "--"], "a command is needed"),
                (["--user", "42", "--type", "shell", "true"], 'the command must stand after "--"'),
                (["--user", "42", "--type", "shell", "--wait=soon", "--", "true"], "--wait must be a duration"),
                (["--user", "42", "--type", "shell", "--on-failure", "x", "--", "true"], "must be open or closed"),
                (["--user", "42", "--type", "shell", "--warn", "x", "--", "true"], "must be auto or always or never"),
                (["--user", "42", "--type", "shell", "--estimate-cpu", "-1", "--", "true"], "not less than 0"),
                (["--user", "42", "--type", "shell", "--sesion", "x", "--", "true"], 'did you mean "--session"')):
            done = subprocess.run([BINARY, "run", *arguments], capture_output=True, text=True, env=self.env())
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(message, done.stderr)

    def test_a_run_is_renewed_while_it_lasts(self):
        renewed = threading.Event()
        plain = self.server.answers[CHECK]

        def answer(asked):
            self.server.answers["POST", f"/api/quotas/runs/{asked['run']}/renew"] = lambda _: (renewed.set(), (200, {}))[1]
            status, decision = plain(asked)
            return status, {**decision, "run_ttl_ms": 100}
        self.server.answers[CHECK] = answer
        process = self.start("sh", "-c", "read line", stdin=subprocess.PIPE)
        self.addCleanup(process.stdin.close)
        self.assertTrue(renewed.wait(PATIENCE))
        process.stdin.write("go\n")
        process.stdin.flush()
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual(self.recorded()["exit_code"], 0)


class Measuring(RunCase):
    def test_cpu_of_the_whole_tree_is_counted(self):
        # Two children, one of which is left to itself by its parent, use 0.3 s each.
        busy = "import time\nwhile time.process_time() < 0.3: pass"
        script = (f"import subprocess, sys\n"
                  f"one = subprocess.Popen([sys.executable, '-c', {busy!r}])\n"
                  f"subprocess.run(['sh', '-c', '{sys.executable} -c \"$1\" & echo $! >&2', 'sh', {busy!r}])\n"
                  f"one.wait()\n")
        # The orphan's end is seen only if it is waited for: the command ends after it.
        done = self.run_it("bash", "-c", f'"$0" -c "$1" 2>pid; while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done',
                           sys.executable, script, cwd=self.folder())
        self.assertEqual(done.returncode, 0, done.stderr)
        record = self.recorded()
        seconds = record["cpu_usage_percent"] / 100 * record["duration_ms"] / 1000
        self.assertGreater(seconds, 0.55)
        self.assertLess(seconds, 3)

    def folder(self):
        here = tempfile.TemporaryDirectory()
        self.addCleanup(here.cleanup)
        return here.name

    def test_the_peak_of_memory_is_counted(self):
        done = self.run_it(sys.executable, "-c", "b = bytearray(200 << 20)")
        self.assertEqual(done.returncode, 0)
        self.assertGreater(self.recorded()["memory_usage_mb"], 195)
        self.assertLess(self.recorded()["memory_usage_mb"], 300)

    def test_memory_of_several_processes_adds_up(self):
        hold = "b = bytearray(60 << 20); print('held', flush=True); import sys; sys.stdin.read(1)"
        script = ("import subprocess, sys\n"
                  f"all = [subprocess.Popen([sys.executable, '-c', {hold!r}], stdin=subprocess.PIPE,"
                  " stdout=subprocess.PIPE) for _ in range(3)]\n"
                  "for one in all: one.stdout.readline()\n"
                  "import time; time.sleep(2.5)\n"  # at least two looks are taken in that time
                  "for one in all: one.communicate(b'x')\n")
        self.assertEqual(self.run_it(sys.executable, "-c", script).returncode, 0)
        self.assertGreater(self.recorded()["memory_usage_mb"], 175)

    def test_what_the_command_leaves_behind_is_not_waited_for(self):
        with tempfile.TemporaryDirectory() as here:
            done = self.run_it("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $! >pid", cwd=here)
            self.assertEqual(done.returncode, 0)
            left = int(pathlib.Path(here, "pid").read_text())
            self.addCleanup(os.kill, left, signal.SIGKILL)
            self.assertTrue(is_there(left))


class Pacing(RunCase):
    def test_a_busy_command_gets_its_share_of_the_cpu(self):
        self.decide(throttle_factor=0.3)
        busy = "import time\nwhile time.process_time() < 0.6: pass"
        self.assertEqual(self.run_it(sys.executable, "-c", busy).returncode, 0)
        record = self.recorded()
        self.assertLess(record["cpu_usage_percent"], 60)
        self.assertGreater(record["cpu_usage_percent"] * record["duration_ms"], 0.55 * 100_000)

    def test_processes_below_the_command_are_slowed_too(self):
        self.decide(throttle_factor=0.3)
        busy = "import time\nwhile time.process_time() < 0.6: pass"
        self.assertEqual(self.run_it("sh", "-c", f"'{sys.executable}' -c '{busy}' & wait").returncode, 0)
        self.assertLess(self.recorded()["cpu_usage_percent"], 60)

    def test_whoever_watches_its_jobs_does_not_see_them_stop(self):
        self.decide(throttle_factor=0.3)
        busy = "import time\nwhile time.process_time() < 0.3: pass"
        done = self.run_it("bash", "-c", f"set -m; '{sys.executable}' -c '{busy}'; echo status $?")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout.strip(), "status 0")

    def test_slower_is_nicer(self):
        for factor, more in ((1.0, 0), (0.8, 5), (0.4, 10)):
            self.decide(throttle_factor=factor)
            self.assertEqual(int(self.run_it("nice").stdout), os.nice(0) + more)

    def test_nothing_stays_stopped_after_the_command(self):
        self.decide(throttle_factor=0.1)
        with tempfile.TemporaryDirectory() as here:
            done = self.run_it("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $! >pid; sleep 0.3", cwd=here)
            self.assertEqual(done.returncode, 0)
            left = int(pathlib.Path(here, "pid").read_text())
            self.addCleanup(os.kill, left, signal.SIGKILL)
            self.assertEqual(stat_of(left)[0], "S")

    def test_nothing_stays_stopped_if_we_are_killed(self):
        self.decide(throttle_factor=0.1)
        for _ in range(5):
            process = self.start("sh", "-c", "sleep 600 & echo $! $$; wait")
            pids = [int(pid) for pid in process.stdout.readline().split()]
            for pid in pids:
                self.addCleanup(lambda pid=pid: is_there(pid) and os.kill(pid, signal.SIGKILL))
            wait_until(lambda: all(stat_of(pid)[0] == "T" for pid in pids), "both are stopped")
            process.kill()
            process.wait(PATIENCE)
            wait_until(lambda: all(stat_of(pid)[0] != "T" for pid in pids), "both go on")

    def test_without_its_watchdog_nothing_is_stopped_any_more(self):
        self.decide(throttle_factor=0.1)
        process = self.start("sh", "-c", "echo $$; exec sleep 600")
        pid = int(process.stdout.readline())
        watchdog = wait_until(lambda: next((int(each.name) for each in pathlib.Path("/proc").glob("[0-9]*")
                                            if (stat_of(each.name) or ("", 0))[1] == process.pid and int(each.name) != pid),
                                           None), "a watchdog")
        wait_until(lambda: stat_of(pid)[0] == "T", "it is stopped")
        os.kill(watchdog, signal.SIGKILL)
        wait_until(lambda: not is_there(watchdog) and stat_of(pid)[0] == "S", "it goes on")
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), -signal.SIGTERM)

    def test_what_somebody_else_stopped_stays_stopped(self):
        self.decide(throttle_factor=0.5)
        process = self.start("sh", "-c", "sleep 600 & echo $!; wait")
        pid = int(process.stdout.readline())
        wait_until(lambda: stat_of(pid)[0] == "T", "it is stopped now and then")
        # Stopped while it runs, at some moment; then it is not ours to continue.
        deadline = time.monotonic() + PATIENCE
        steady = 0
        while steady < 40 and time.monotonic() < deadline:
            if stat_of(pid)[0] != "T":
                steady = 0
                os.kill(pid, signal.SIGSTOP)
            steady += 1
            time.sleep(0.01)
        self.assertEqual(steady, 40)
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(process.wait(PATIENCE), 0)

    def test_a_control_group_that_cannot_be_had_is_told(self):
        self.decide(throttle_factor=0.5)
        with tempfile.TemporaryDirectory() as here:
            done = self.run_it("echo", "ran", options=["--cgroup", here])
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertEqual(done.stderr, f"headgate: {here} does not hand the cpu controller down\n")


class OnATerminal(RunCase):
    def terminal(self, *arguments, **more):
        terminal = Shell(list(arguments), self.env(TERM="xterm", **more))
        self.addCleanup(terminal.close)
        return terminal

    def test_warnings_are_for_terminals_unless_asked_for(self):
        self.decide(warning="Only 9 shell commands left today")
        line = "headgate: Only 9 shell commands left today"
        self.assertEqual(self.run_it("true").stderr, "")
        self.assertEqual(self.run_it("true", options=["--warn", "always"]).stderr, line + "\n")
        terminal = self.terminal(*self.words("true"))
        terminal.wait_for(line)
        self.assertEqual(terminal.wait_for_end(), 0)
        terminal = self.terminal(*self.words("echo", "quiet", options=["--warn", "never"]))
        self.assertNotIn(b"headgate", terminal.wait_for("quiet"))

    def test_ctrl_c_ends_the_command_and_is_recorded(self):
        for factor in (1.0, 0.3):
            self.decide(throttle_factor=factor)
            self.server.requests.clear()
            terminal = self.terminal(*self.words("sh", "-c", "echo ready; exec sleep 600"))
            terminal.wait_for("ready")
            terminal.press(b"\x03")
            self.assertEqual(terminal.wait_for_end(), -signal.SIGINT)
            self.assertEqual(self.recorded()["error_message"], "killed by signal 2 (Interrupt)")

    def test_ctrl_c_reaches_the_command_once(self):
        # Every delivery writes a byte, also those that come before the handler has run.
        script = ("import os, signal\n"
                  "reader, writer = os.pipe()\n"
                  "os.set_blocking(writer, False)\n"
                  "signal.set_wakeup_fd(writer)\n"
                  "signal.signal(signal.SIGINT, lambda *_: print('handled', flush=True))\n"
                  "print('ready', flush=True)\n"
                  "input()\n"
                  "print('deliveries:', len(os.read(reader, 100)))\n")
        terminal = self.terminal(*self.words(sys.executable, "-c", script))
        terminal.wait_for("ready")
        terminal.press(b"\x03")
        terminal.wait_for("handled")
        terminal.press(b"on\n")
        terminal.wait_for("deliveries: 1")
        self.assertEqual(terminal.wait_for_end(), 0)

    def test_ctrl_z_stops_the_job_and_fg_continues_it(self):
        for factor in (1.0, 0.5):
            self.decide(throttle_factor=factor)
            self.server.requests.clear()
            shell = self.terminal("bash", "--norc", "-i", PS1="prompt> ")
            shell.wait_for("prompt>")
            words = " ".join(f"'{word}'" for word in self.words("cat"))
            shell.press(words.encode() + b"\n")
            # Before that the shell may still have the terminal, and lose what is typed.
            wait_until(lambda: self.asked(CHECK), "it runs")
            shell.press(b"one\n")
            shell.wait_for("one\r\none")
            shell.press_until(b"\x1a", "Stopped")  # the kernel drops it where a paced command is just being continued
            shell.press(b"echo in the sh''ell\n")
            shell.wait_for("in the shell")
            shell.press(b"fg\n")
            shell.wait_for("'--url'")
            shell.press(b"two\n")
            shell.wait_for("two\r\ntwo")
            shell.press(b"\x04")
            shell.wait_for("prompt>")
            shell.press(b"echo code $?\n")
            shell.wait_for("code 0")
            shell.press(b"exit\n")
            shell.wait_for_end()
            self.assertEqual(self.recorded()["exit_code"], 0)

    def test_pipelines_share_the_terminal(self):
        shell = self.terminal("bash", "--norc", "-i", PS1="prompt> ")
        shell.wait_for("prompt>")
        words = " ".join(f"'{word}'" for word in self.words("echo", "through"))
        # The other end reads the terminal, which only the foreground may.
        shell.press(f"{words} | bash -c 'read a; read b </dev/tty; echo $a-$b'\n".encode())
        wait_until(lambda: self.asked(RECORD), "the first part is done")
        shell.press(b"typed\n")
        shell.wait_for("through-typed")
        shell.press(b"exit\n")
        shell.wait_for_end()


class Waiting(RunCase):
    def setUp(self):
        super().setUp()
        self.waiting, self.go = threading.Event(), threading.Event()
        self.addCleanup(self.go.set)
        plain = self.server.answers[CHECK]

        def answer(asked):
            self.server.answers["GET", "/api/quotas/queue"] = (200, {
                "waiting": 7, "line": [{"run": asked["run"], "position": 3, "estimated_start_ms": 11_500}]})
            self.waiting.set()
            self.go.wait(PATIENCE)
            return plain(asked)
        self.server.answers[CHECK] = answer

    def left(self):
        return [path for method, path, _, _ in self.server.requests if method == "DELETE"]

    def test_a_terminal_shows_the_place_in_line_and_then_forgets_it(self):
        terminal = Shell(self.words("echo", "ran", options=["--wait"]), self.env(TERM="xterm"))
        self.addCleanup(terminal.close)
        terminal.wait_for("headgate: waiting in line: position 3 of 7, about 12s")
        self.go.set()
        self.assertIn(b"\r\x1b[Kran", terminal.wait_for("ran"))
        self.assertEqual(terminal.wait_for_end(), 0)
        self.assertEqual(self.asked(CHECK)[0]["max_wait_ms"], 3_600_000)

    def test_elsewhere_it_is_told_once_if_asked_for(self):
        process = self.start("echo", "ran", options=["--wait=10m", "--warn", "always"])
        self.assertEqual(process.stderr.readline(), "headgate: waiting in line\n")
        self.go.set()
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual((process.stdout.read(), process.stderr.read()), ("ran\n", ""))

    def test_elsewhere_nothing_is_told_unless_asked_for(self):
        quiet = self.start("echo", "ran", options=["--wait"])
        self.assertTrue(self.waiting.wait(PATIENCE))
        self.waiting.clear()
        # Began later: once it tells, the first has had the time to.
        telling = self.start("echo", "ran", options=["--wait", "--warn", "always"])
        self.assertEqual(telling.stderr.readline(), "headgate: waiting in line\n")
        self.go.set()
        self.assertEqual((quiet.wait(PATIENCE), telling.wait(PATIENCE)), (0, 0))
        self.assertEqual((quiet.stdout.read(), quiet.stderr.read()), ("ran\n", ""))

    def test_ctrl_c_leaves_the_line(self):
        terminal = Shell(self.words("echo", "ran", options=["--wait"]), self.env(TERM="xterm"))
        self.addCleanup(terminal.close)
        terminal.wait_for("position 3 of 7")
        terminal.press(b"\x03")
        self.assertEqual(terminal.wait_for_end(), -signal.SIGINT)
        self.assertNotIn(b"ran", terminal.seen)
        self.assertEqual(self.left(), [f"/api/quotas/runs/{self.asked(CHECK)[0]['run']}"])

    def test_a_signal_leaves_the_line(self):
        process = self.start("echo", "ran", options=["--wait"])
        self.assertTrue(self.waiting.wait(PATIENCE))
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), -signal.SIGTERM)
        self.assertEqual(process.stdout.read(), "")
        self.assertEqual(len(self.left()), 1)

    def test_a_delay_is_kept_and_a_signal_ends_it(self):
        self.go.set()
        self.decide(delay_ms=600_000)
        process = self.start("echo", "ran")
        wait_until(lambda: self.asked(CHECK), "it has asked")
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), -signal.SIGTERM)
        self.assertEqual((process.stdout.read(), len(self.left())), ("", 1))


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
