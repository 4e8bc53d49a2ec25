#!/usr/bin/env python3
"""The Redis protocol, tested with Redis's own programs and with Debian's Python client."""

import contextlib
import socket
import subprocess
import unittest

import harness
import redis

POLICIES = """
policies:
  - {id: runs, match: {operations: [run]}, limit: 3/60s}
  - {id: tokens, match: {operations: [llm]}, unit: tokens, limit: {strategy: token_bucket, capacity: 1000, refill_rate: 1/min}}
  - id: line
    match: {operations: [line]}
    limit: {strategy: concurrency, max: 1, lease_ttl: 60s}
    behavior: queue
    max_wait: 120s
  - {id: typed, match: {operations: [typed], contexts: [UI], attributes: {kind: [button]}}, limit: 1/60s}
"""


class Resp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(policies=POLICIES)
        cls.port = cls.server.ports["resp"]

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def cli(self, *arguments, stdin=None):
        done = subprocess.run(["redis-cli", "-p", str(self.port), *arguments], capture_output=True, text=True,
                              timeout=harness.PATIENCE, input=stdin)
        return done.stdout

    @contextlib.contextmanager
    def client(self, **options):
        client = redis.Redis("127.0.0.1", self.port, **options)
        try:
            yield client
        finally:
            client.close()

    def raw(self, sent, closes=False):
        """What comes back until the peer closes, or until as many bytes as were expected."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=harness.PATIENCE) as connection:
            connection.sendall(sent)
            if not closes:
                connection.shutdown(socket.SHUT_WR)
            got = b""
            while piece := connection.recv(65536):
                got += piece
            return got

    def test_redis_cli_gets_redis_cells_known_answers(self):
        self.assertEqual(self.cli("CL.THROTTLE", "user123", "15", "30", "60").split(), ["0", "16", "15", "-1", "2"])
        # Both in one run of redis-cli: within the second in which the answer to the second one is 2.
        self.assertEqual(self.cli(stdin="CL.THROTTLE e 0 1 2 1\n" * 2).split(),
                         ["0", "1", "0", "-1", "2", "1", "1", "0", "2", "2"])

    def test_redis_cli_speaks_inline_and_version_three(self):
        self.assertEqual(self.cli("-3", "PING").strip(), "PONG")
        self.assertEqual(self.raw(b"PING\r\nECHO \"a b\"\r\n"), b"+PONG\r\n$3\r\na b\r\n")
        self.assertTrue(self.raw(b"HELLO 3\r\n").startswith(b"%7\r\n$6\r\nserver\r\n$8\r\nheadgate\r\n"))
        self.assertEqual(self.raw(b"HELLO 4\r\n"), b"-NOPROTO unsupported protocol version\r\n")

    def test_redis_benchmark_runs_pipelined_without_an_error(self):
        done = subprocess.run(["redis-benchmark", "-p", str(self.port), "-n", "20000", "-c", "20", "-P", "16", "-r",
                               "1000", "--csv", "CL.THROTTLE", "key:__rand_int__", "100", "100", "60"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("CL.THROTTLE", done.stdout)
        self.assertNotIn("rror", done.stdout + done.stderr)
        for command in ("PING_INLINE", "PING_MBULK"):
            done = subprocess.run(["redis-benchmark", "-p", str(self.port), "-n", "1000", "-q", "-t", command],
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_python_redis_checks_by_policy(self):
        with self.client() as client:
            self.assertTrue(client.ping())
            for left in (2, 1, 0):
                allowed, remaining, retry, reset, policy, action = client.execute_command("HG.CHECK", "py", "run")
                self.assertEqual((allowed, remaining, retry, policy, action), (1, left, 0, b"runs", b"allow"))
                self.assertGreater(reset, 1_600_000_000_000)
            allowed, remaining, retry, _, policy, action = client.execute_command("HG.CHECK", "py", "run")
            self.assertEqual((allowed, remaining, policy, action), (0, 0, b"runs", b"block"))
            self.assertGreater(retry, 0)
            self.assertEqual(client.execute_command("HG.CHECK", "other", "run", "PEEK")[:2], [1, 2])
            self.assertEqual(client.execute_command("HG.CHECK", "other", "run")[1], 2)

    def test_every_option_of_a_check_is_read(self):
        with self.client() as client:
            self.assertEqual(client.execute_command("HG.CHECK", "a", "dance")[:3], [1, -1, 0], "no policy")
            typed = ("HG.CHECK", "a", "typed", "SESSION", "s", "USER", "u", "CONTEXT", "UI", "RESOURCE", "r", "CHANNEL",
                     "c", "ATTR", "kind", "button")
            self.assertEqual(client.execute_command(*typed)[0], 1)
            self.assertEqual(client.execute_command(*typed)[0], 0)
            self.assertEqual(client.execute_command("HG.CHECK", "a", "typed", "CONTEXT", "UI", "ATTR", "kind", "box")[0], 1)
            self.assertEqual(client.execute_command("HG.CHECK", "a", "llm", "COST", "tokens=900")[1], 100)
            self.assertEqual(client.execute_command("HG.CHECK", "a", "llm", "COST", "tokens=200")[0], 0)
            never = client.execute_command("HG.CHECK", "a", "llm", "COST", "tokens=2000")
            self.assertEqual((never[0], never[2]), (0, -1))

    def test_a_hold_is_settled_or_released(self):
        with self.client() as client:
            held = client.execute_command("HG.CHECK", "h", "llm", "COST", "tokens=800", "HOLD")
            self.assertEqual(len(held), 7)
            self.assertEqual(client.execute_command("HG.SETTLE", held[6], "tokens=100"), 1)
            self.assertEqual(client.execute_command("HG.SETTLE", held[6], "tokens=100"), 0, "once")
            self.assertEqual(client.execute_command("HG.CHECK", "h", "llm", "COST", "tokens=0", "PEEK")[1], 900)
            with self.assertRaisesRegex(redis.ResponseError, "no lease"):
                client.execute_command("HG.RENEW", "nothing")

    def test_a_check_that_may_queue_waits_for_its_turn(self):
        with self.client() as first, contextlib.closing(
                socket.create_connection(("127.0.0.1", self.port), timeout=harness.PATIENCE)) as second:
            lease = first.execute_command("HG.CHECK", "q", "line", "HOLD")[6]
            second.sendall(b"HG.CHECK q line\r\nPING\r\n")
            harness.wait_until(lambda: b"waiting_checks:1" in self.raw(b"INFO\r\n"), "the second one waits")
            self.assertEqual(first.execute_command("HG.RELEASE", lease), 1)
            got = b""
            while b"PONG" not in got:
                got += second.recv(65536)
            self.assertTrue(got.startswith(b"*6\r\n:1\r\n"), got)

    def test_housekeeping(self):
        with self.client(client_name="tester") as client:
            self.assertEqual(client.client_getname(), "tester")
            self.assertGreater(client.client_id(), 0)
            self.assertEqual(client.execute_command("SELECT", 0), True)
            with self.assertRaisesRegex(redis.ResponseError, "out of range"):
                client.execute_command("SELECT", 1)
            self.assertIn("headgate_version", client.info())
            self.assertGreater(client.command_count(), 10)
            self.assertLessEqual({"cl.throttle", "hg.check", "ping"}, set(client.command()))
            self.assertIn(client.execute_command("RESET"), ("RESET", b"RESET"))
            self.assertEqual(client.config_get("save"), {"save": ""})
            self.assertEqual(client.config_get("maxmemory"), {})
        self.assertEqual(self.raw(b"QUIT\r\nPING\r\n", closes=True), b"+OK\r\n")

    def test_mistakes_are_told_and_nothing_is_lost(self):
        with self.client() as client:
            for command, message in (
                    (("CL.THROTTLE", "k", 1, 0, 60), "count"),
                    (("CL.THROTTLE", "k", 1, 1, 0), "period must be between 1"),
                    (("CL.THROTTLE", "k", "x", 1, 1), "max_burst must be a whole number, got 'x'"),
                    (("CL.THROTTLE", "k"), "wrong number of arguments"),
                    (("HG.CHECK", "a"), "wrong number of arguments"),
                    (("HG.CHECK", "a", "run", "SESION", "s"), "did you mean \"SESSION\""),
                    (("HG.CHECK", "a", "run", "COST"), "COST needs a value"),
                    (("HG.CHECK", "a", "run", "COST", "much"), "COST must be a number"),
                    (("HG.CHECK", "a", ""), "operation"),
                    (("HG.CHEK", "a", "run"), "unknown command 'HG.CHEK', did you mean \"HG.CHECK\""),
                    (("GET", "k"), "unknown command 'GET'")):
                with self.subTest(command), self.assertRaisesRegex(redis.ResponseError, message):
                    client.execute_command(*command)
            self.assertTrue(client.ping())

    def test_what_is_not_the_protocol_is_told_and_closed(self):
        for sent in (b"*1\r\n$-1\r\n", b"*1\r\n$9223372036854775808\r\n", b"*99999999\r\n", b"*1\r\n:1\r\n",
                     b"*1\r\n$4\r\nPINGxx", b"\x00" * 70000 + b"\r\n" + b"\x00" * 300000):
            with self.subTest(sent[:30]):
                with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                    self.assertTrue(self.raw(sent, closes=True).startswith(b"-ERR"), sent[:30])
        self.assertEqual(self.raw(b"PING\r\n"), b"+PONG\r\n")


class Tokens(unittest.TestCase):
    def test_with_auth_required_a_token_comes_first(self):
        with harness.Server("--auth", "required", policies=POLICIES) as server:
            made = server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "A", "name": "a"}).json
            port = server.ports["resp"]
            bare = redis.Redis("127.0.0.1", port)
            with self.assertRaises(redis.AuthenticationError):
                bare.ping()
            with self.assertRaises((redis.AuthenticationError, redis.ResponseError)):
                redis.Redis("127.0.0.1", port, password="hg_wrong").ping()
            client = redis.Redis("127.0.0.1", port, username="default", password=made["secret"])
            self.assertTrue(client.ping())
            self.assertEqual(client.execute_command("HG.CHECK", "A", "run")[0], 1)
            self.assertEqual(client.execute_command("HG.CHECK", "", "run")[1], 1, "no agent means the token's own")
            with self.assertRaisesRegex(redis.ResponseError, "NOPERM|agent"):
                client.execute_command("HG.CHECK", "B", "run")
            eyes = server.manage("POST", "/api/admin/tokens", {"role": "viewer"}).json
            with self.assertRaisesRegex(redis.ResponseError, "viewer may look, but not ask"):
                redis.Redis("127.0.0.1", port, password=eyes["secret"]).ping()
            bare.close()
            client.close()


if __name__ == "__main__":
    harness.main()
