#!/usr/bin/env python3
"""Start and end of a server: its output, what survives a restart, signals, and configurations that it refuses."""

import contextlib
import os
import pathlib
import signal
import socket
import stat
import subprocess
import tempfile
import unittest

import harness

POLICIES = """
policies:
  - {id: runs, match: {operations: [run]}, limit: 5/1h}
"""


class Lifecycle(unittest.TestCase):
    def test_it_says_where_it_listens_and_how_to_try_it(self):
        with harness.Server() as server:
            text = "".join(server.banner)
            for name in ("http", "resp", "grpc"):
                self.assertGreater(server.ports[name], 0, text)
            self.assertIn("/?code=", text)
            self.assertIn("curl", text)
            self.assertNotIn(server.token, text + "".join(server.log), "secrets are not printed")
            token = server.data / "admin.token"
            self.assertEqual(stat.S_IMODE(token.stat().st_mode), 0o600)
            self.assertEqual(server.call("GET", "/healthz").status, 200)
            self.assertEqual(server.call("GET", "/readyz").status, 200)

    def test_cells_and_settings_survive_a_restart(self):
        with tempfile.TemporaryDirectory() as data:
            with harness.Server(policies=POLICIES, data=data) as server:
                for _ in range(3):
                    self.assertTrue(server.check("A")["allowed"])
                self.assertEqual(server.manage("PUT", "/api/admin/rate-limits/B",
                                               {"heavy": {"capacity": 3, "refill_per_minute": 3}}).status, 200)
                self.assertEqual(server.manage("POST", "/api/admin/rate-limits/whitelist", {"agent": "vip"}).status, 200)
                self.assertEqual(server.manage("PUT", "/api/admin/emergency", {"reason": "drill"}).status, 200)
                token = server.token
                self.assertEqual(server.stop(), 0)
            with harness.Server(policies=POLICIES, data=data) as server:
                self.assertEqual(server.token, token)
                emergency = server.manage("GET", "/api/admin/emergency").json
                self.assertEqual((emergency["active"], emergency["reason"]), (True, "drill"))
                self.assertIn("vip", server.manage("GET", "/api/admin/rate-limits/whitelist").json["agents"])
                self.assertIn("B", str(server.manage("GET", "/api/admin/rate-limits").json))
                self.assertEqual(server.manage("DELETE", "/api/admin/emergency").status, 200)
                self.assertEqual(server.check("A", peek=True)["remaining"], 1, "three of five were used before")
                self.assertEqual(server.stop(), 0)

    def test_a_killed_server_starts_again(self):
        with tempfile.TemporaryDirectory() as data:
            with harness.Server(policies=POLICIES, data=data) as server:
                self.assertEqual(server.manage("PUT", "/api/admin/emergency", {"reason": "drill"}).status, 200)
                server.stop(signal.SIGKILL)
            with harness.Server(policies=POLICIES, data=data) as server:
                self.assertTrue(server.manage("GET", "/api/admin/emergency").json["active"])

    def test_a_torn_snapshot_is_put_aside(self):
        with tempfile.TemporaryDirectory() as data:
            pathlib.Path(data, "cells.snapshot").write_bytes(b"torn")
            with harness.Server(data=data) as server:
                self.assertTrue(server.check()["allowed"])
                self.assertIn("snapshot", "".join(server.log))
            self.assertEqual(pathlib.Path(data, "cells.snapshot.refused").read_bytes(), b"torn")

    def test_hangup_and_a_changed_file_reload_policies(self):
        with harness.Server(policies=POLICIES) as server:
            path = server.data / "policies.yaml"
            path.write_text(POLICIES.replace("5/1h", "7/1h"))
            harness.wait_until(lambda: server.check("A", peek=True)["limit"] == 7, "the file is watched")
            path.write_text("policies: [{id: broken")
            server.process.send_signal(signal.SIGHUP)
            harness.wait_until(lambda: "not reloaded" in "".join(server.log), "the mistake is told")
            self.assertIn("policies.yaml:", "".join(server.log))
            self.assertEqual(server.check("A", peek=True)["limit"], 7, "the old ones serve on")
            path.write_text(POLICIES.replace("5/1h", "9/1h"))
            server.process.send_signal(signal.SIGHUP)
            harness.wait_until(lambda: server.check("A", peek=True)["limit"] == 9, "reloaded")

    def test_usr1_toggles_the_emergency_throttle(self):
        with harness.Server() as server:
            for active in (True, False):
                server.process.send_signal(signal.SIGUSR1)
                harness.wait_until(lambda: server.manage("GET", "/api/admin/emergency").json["active"] == active,
                                   f"emergency {active}")

    def test_term_lets_what_was_asked_finish(self):
        queue = """
policies:
  - {id: q, match: {operations: [q]}, limit: {strategy: concurrency, max: 1, lease_ttl: 6s}, behavior: queue, max_wait: 60s}
"""
        with harness.Server(policies=queue) as server:
            self.assertTrue(server.check(operation="q", hold=True)["allowed"])
            with socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=harness.PATIENCE) as waiting:
                body = b'{"agent": "A", "operation": "q"}'
                waiting.sendall(b"POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s" %
                                (len(body), body))
                harness.wait_until(lambda: server.manage("GET", "/api/overview").json["waiting"] == 1, "it waits")
                server.process.send_signal(signal.SIGTERM)
                answer = b""
                while piece := waiting.recv(65536):
                    answer += piece
                self.assertIn(b'"allowed":true', answer.replace(b" ", b""))
            self.assertEqual(server.process.wait(harness.PATIENCE), 0)

    def test_two_servers_do_not_share_a_folder(self):
        with harness.Server() as server:
            with self.assertRaisesRegex(AssertionError, "another server is using this folder"):
                harness.Server(data=str(server.data))

    def refuses(self, *arguments, env=None):
        with tempfile.TemporaryDirectory() as data:
            listeners = [part for name in ("--http", "--resp", "--grpc") if name not in arguments
                         for part in (name, "127.0.0.1:0")]
            done = harness.headgate("serve", "--data", data, *listeners, *arguments, env=env)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return done.stderr

    def test_it_does_not_listen_openly_without_auth(self):
        self.assertIn("auth: required", self.refuses("--http", "0.0.0.0:0"))

    def test_it_says_what_it_cannot_start_with(self):
        self.assertIn("policies", self.refuses("--policies", "/nowhere/at-all.yaml"))
        self.assertIn("did you mean", self.refuses("--set", "thread=1"))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            message = self.refuses("--resp", f"127.0.0.1:{taken.getsockname()[1]}")
            self.assertIn("in use", message)
            self.assertIn("resp", message)
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder, "bad.yaml")
            bad.write_text("policies:\n  - {id: x, limit: 0/60s}\n")
            self.assertIn("bad.yaml:2:", self.refuses("--policies", str(bad)))

    def test_variables_win_over_the_file_and_flags_over_both(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "headgate.yaml")
            file.write_text("threads: 1\ndrain: 3s\nlisten: {http: \"127.0.0.1:1\"}\n")
            done = harness.headgate("serve", "--config", file, "--http", "127.0.0.1:3", "--print-config",
                                    env={"HEADGATE_THREADS": "2", "HEADGATE_LISTEN_HTTP": "127.0.0.1:2"})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"http: \"?127\.0\.0\.1:3")
            self.assertRegex(done.stdout, r"(?m)^threads: 2")
            self.assertRegex(done.stdout, r"(?m)^drain: 3s")
            again = pathlib.Path(folder, "again.yaml")
            again.write_text(done.stdout)
            self.assertEqual(harness.headgate("serve", "--config", again, "--print-config").stdout, done.stdout)

    def test_it_tells_the_service_manager_and_takes_its_sockets(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.closing(
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager, contextlib.closing(
                    socket.socket()) as listener:
            manager.bind(f"{folder}/notify")
            manager.settimeout(harness.PATIENCE)
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            # As systemd does it: descriptor 3, and our own pid in LISTEN_PID.
            script = 'exec 3<&%d; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=http; exec "$@"' % listener.fileno()
            process = subprocess.Popen(
                ["bash", "-c", script, "bash", harness.BINARY, "serve", "--data", folder, "--resp", "off", "--grpc", "off"],
                env={**os.environ, "NOTIFY_SOCKET": f"{folder}/notify"}, pass_fds=[listener.fileno()],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                self.assertIn(b"READY=1", manager.recv(4096))
                with contextlib.closing(__import__("http.client").client.HTTPConnection("127.0.0.1", port)) as connection:
                    connection.request("GET", "/healthz")
                    self.assertEqual(connection.getresponse().status, 200)
                process.terminate()
                self.assertIn(b"STOPPING=1", manager.recv(4096))
                self.assertEqual(process.wait(harness.PATIENCE), 0)
            finally:
                process.kill()
                process.wait()


if __name__ == "__main__":
    harness.main()
