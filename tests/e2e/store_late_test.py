#!/usr/bin/env python3
"""A Redis whose answers come late: nobody else waits for them, and what two nodes admit stays exact."""

import contextlib
import http.client
import json
import socket
import subprocess
import threading
import unittest

import harness
from cluster_harness import Node, Redis, Wire, nodes, wait_until_acquainted

POLICIES = """
policies:
  - {id: many, match: {operations: [many]}, key: [agent], limit: {strategy: sliding_window, limit: 500, window: 1h}}
  - {id: some, match: {operations: [some]}, key: [agent], limit: {strategy: sliding_window, limit: 100, window: 1h}}
  - id: open
    match: {operations: [open]}
    key: [agent]
    on_store_failure: open
    limit: {strategy: sliding_window, limit: 100, window: 1h}
"""
LIMIT = 100
LATE = 5  # checks that Redis does not answer in time, on each node
HEADER = "headgate_store_"


class Gate(Wire):
    """A way to Redis on which answers can be held back."""

    def __init__(self, port):
        self.free = threading.Event()
        self.free.set()
        super().__init__(port)

    def _pass_on(self, source, sink):
        if source.getpeername()[1] == self.to:
            super()._pass_on(_Held(source, self.free), sink)
        else:
            super()._pass_on(source, sink)

    @contextlib.contextmanager
    def shut(self):
        self.free.clear()
        try:
            yield
        finally:
            self.free.set()


class _Held:
    """A socket whose bytes are given only while an event is set."""

    def __init__(self, inner, free):
        self.inner = inner
        self.free = free

    def recv(self, size):
        piece = self.inner.recv(size)
        self.free.wait(harness.PATIENCE)
        return piece

    def __hash__(self):
        return hash(self.inner)

    def __eq__(self, other):
        return self.inner is other or self is other

    def __getattr__(self, name):
        return getattr(self.inner, name)


def metric(node, name):
    for line in node.call("GET", "/metrics").body.decode().splitlines():
        if line.startswith(f"{HEADER}{name} "):
            return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


class Batch(unittest.TestCase):
    """One thread serves everybody, and Redis answers only when the test says so."""

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.redis = cls.stack.enter_context(Redis())
        cls.gate = cls.stack.enter_context(Gate(cls.redis.port))
        cls.node = cls.stack.enter_context(
            harness.Server(policies=POLICIES, env={"HEADGATE_THREADS": "1", "HEADGATE_STORE_KIND": "redis",
                                                   "HEADGATE_STORE_URL": cls.gate.url,
                                                   "HEADGATE_STORE_DEADLINE": "10s"}))
        cls.node.check("warm", "many")  # so that Redis knows the script

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def connection(self, timeout=harness.PATIENCE):
        made = http.client.HTTPConnection("127.0.0.1", self.node.ports["http"], timeout=timeout)
        self.addCleanup(made.close)
        return made

    def asked(self, connection, path, body):
        connection.request("POST", path, json.dumps(body))

    def assert_others_are_served(self):
        """On the same thread, while the batch waits for Redis."""
        other = self.connection(timeout=8)
        other.request("GET", "/healthz")
        self.assertEqual(other.getresponse().status, 200)

    def test_a_batch_keeps_nobody_waiting_and_is_judged_in_its_order(self):
        batch = self.connection()
        with self.gate.shut():
            self.asked(batch, "/v1/check/batch",
                       {"checks": [{"agent": "A", "operation": "many"} for _ in range(1000)]})
            self.assert_others_are_served()
            batch.sock.settimeout(0)
            with self.assertRaises(BlockingIOError):
                batch.sock.recv(1)
            batch.sock.settimeout(harness.PATIENCE)
        answer = batch.getresponse()
        self.assertEqual(answer.status, 200)
        decisions = json.loads(answer.read())["decisions"]
        self.assertEqual([decision["allowed"] for decision in decisions], [True] * 500 + [False] * 500)
        self.assertEqual([decision["remaining"] for decision in decisions[:500]], list(range(499, -1, -1)))

    def test_problems_keep_their_place_in_a_batch(self):
        batch = self.connection()
        with self.gate.shut():
            self.asked(batch, "/v1/check/batch",
                       {"checks": [{"agent": "P", "operation": "many"}, {"agent": "P"},
                                   {"agent": "P", "operation": "other"}, {"agent": "P", "operation": "many"}]})
            self.assert_others_are_served()
        decisions = json.loads(batch.getresponse().read())["decisions"]
        self.assertEqual(decisions[0]["remaining"], 499)
        self.assertEqual(decisions[1]["error"], "invalid_check")
        self.assertEqual(decisions[2]["policy_ids"], [])
        self.assertEqual(decisions[3]["remaining"], 498)

    def test_whoever_leaves_before_the_answer_harms_nobody(self):
        with self.gate.shut():
            for _ in range(5):
                gone = self.connection()
                self.asked(gone, "/v1/check/batch", {"checks": [{"agent": "G", "operation": "many"}] * 50})
                self.assert_others_are_served()
                gone.sock.shutdown(socket.SHUT_RDWR)
                gone.close()
            self.assert_others_are_served()
        harness.wait_until(lambda: Node.left(self.node, "G", "many") == 250, "all that was asked is charged")

    def test_grpc_calls_keep_nobody_waiting_and_are_all_answered(self):
        one = [[("agent", "R"), ("operation", "many")]]
        several = [[("agent", "R"), ("operation", "many")], [("agent", "S"), ("operation", "many")]]
        with self.gate.shut():
            calls = [self.rate_limit(one), self.rate_limit(several), self.rate_limit(one)]
            # One stream more than those that wait is answered without Redis.
            self.assert_others_are_served()
        for call, statuses in zip(calls, (1, 2, 1)):
            body, errors = call.communicate(timeout=harness.PATIENCE)
            self.assertEqual(call.returncode, 0, errors)
            self.assertEqual(body[5:7], b"\x08\x01", "overall_code: OK")
            self.assertEqual(body[5:].count(b"\x08\x01\x12"), 1 + statuses, body)
        self.assertEqual(Node.left(self.node, "R", "many"), 500 - 3)
        self.assertEqual(Node.left(self.node, "S", "many"), 500 - 1)

    def rate_limit(self, descriptors):
        """Envoy's ShouldRateLimit, by curl: each descriptor is a list of entries."""
        def field(number, payload):
            return bytes([number << 3 | 2, len(payload)]) + payload

        message = field(1, b"test")
        for entries in descriptors:
            message += field(2, b"".join(field(1, field(1, key.encode()) + field(2, value.encode()))
                                         for key, value in entries))
        sent = b"\0" + len(message).to_bytes(4, "big") + message
        call = subprocess.Popen(
            ["curl", "-sS", "--http2-prior-knowledge", "-H", "content-type: application/grpc", "-H", "te: trailers",
             "--data-binary", "@-", f"http://127.0.0.1:{self.node.ports['grpc']}"
             "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        call.stdin.write(sent)
        call.stdin.close()
        call.stdin = None
        return call

    def test_looks_at_the_store_keep_nobody_waiting_either(self):
        for method, path, body in [("GET", "/api/agents/A", None),
                                   ("POST", "/api/admin/policies/explain", {"agent": "A", "operation": "many"}),
                                   ("GET", "/api/quotas/user/u", None)]:
            with self.subTest(path):
                looks = self.connection()
                with self.gate.shut():
                    looks.request(method, path, json.dumps(body) if body else None,
                                  {"Authorization": f"Bearer {self.node.token}"})
                    self.assert_others_are_served()
                self.assertEqual(looks.getresponse().status, 200)


class Late(unittest.TestCase):
    """Answers that come after the deadline, from a Redis that is there."""

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.redis = cls.stack.enter_context(Redis())
        cls.gates = [cls.stack.enter_context(Gate(cls.redis.port)) for _ in range(2)]
        cls.nodes = [cls.stack.enter_context(Node(f"n{i}", gate.url, POLICIES, deadline="250ms"))
                     for i, gate in enumerate(cls.gates)]
        wait_until_acquainted(cls.redis, 2)

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def late(self, which, operation="some", agent="A"):
        """A check that Redis answers only after it had to be answered."""
        with self.gates[which].shut():
            answer = self.nodes[which].check(agent, operation)
        harness.wait_until(self.nodes[which].is_ready, "the answers that were held back have come")
        return answer

    def test_two_nodes_admit_no_more_than_the_limit_whatever_comes_late(self):
        admitted = 0

        def ask():
            nonlocal admitted
            for node in self.nodes:
                admitted += node.check("A", "some")["allowed"]
            return admitted

        for which in range(2):
            for _ in range(LATE):
                admitted += self.late(which)["allowed"]
                ask()
        # What was charged too late comes back.
        harness.wait_until(lambda: ask() >= LIMIT, "the limit is used up")
        for which in range(2):
            for _ in range(LATE):
                answer = self.late(which)
                admitted += answer["allowed"]
                if not answer["allowed"] and answer.get("error"):
                    self.assertEqual(answer["error"], "store_late")
                    self.assertGreater(answer["retry_after_ms"], 0)
                    self.assertNotIn("stand_in", answer)
        for _ in range(LATE):
            ask()
        self.assertEqual(admitted, LIMIT)
        self.assertGreater(metric(self.nodes[0], "late_total"), 0)
        self.assertEqual(self.nodes[0].told("store_stand_in"), [])

    def test_an_open_policy_admits_what_comes_late(self):
        with self.gates[0].shut():
            answer = self.nodes[0].check("O", "open")
        self.assertTrue(answer["allowed"])
        self.assertTrue(answer["stand_in"])


class Away(unittest.TestCase):
    def test_a_check_says_that_it_was_judged_without_redis_and_so_do_the_alerts(self):
        with Redis() as server, nodes(1, server.url, POLICIES, deadline="100ms") as (node,):
            self.assertNotIn("stand_in", node.check("A", "some"))
            server.kill()
            harness.wait_until(lambda: node.check("A", "some").get("stand_in"), "a check that was judged here")
            self.assertGreater(metric(node, "stand_ins_total"), 0)
            harness.wait_until(lambda: node.told("store_stand_in"), "an alert")
            for _ in range(20):
                node.check("A", "some")
            server.start()
            harness.wait_until(lambda: "stand_in" not in node.check("A", "some"), "Redis judges again")
            self.assertEqual(len(node.told("store_stand_in")), 1)


if __name__ == "__main__":
    harness.main()
