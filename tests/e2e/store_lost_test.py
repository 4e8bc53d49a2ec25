#!/usr/bin/env python3
"""What operators have set, while Redis is unreachable and after it has lost its data."""

import contextlib
import unittest

import harness
from cluster_harness import Node, Redis, Wire, wait_until_acquainted

POLICIES = """
policies:
  - {id: some, match: {operations: [some]}, key: [agent], limit: {strategy: sliding_window, limit: 100, window: 1h}}
"""
FIELDS = "headgate:{control}:fields"


class Lost(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.redis = self.stack.enter_context(Redis())
        self.wires = [self.stack.enter_context(Wire(self.redis.port)) for _ in range(2)]
        self.nodes = [self.stack.enter_context(Node(f"n{i + 1}", wire.url, POLICIES, deadline="1s"))
                      for i, wire in enumerate(self.wires)]
        wait_until_acquainted(self.redis, 2)

    def field(self, name):
        value = self.redis.do("HGET", FIELDS, name)
        return value.decode() if value else None

    def emergencies(self):
        return [node.manage("GET", "/api/admin/emergency").json["active"] for node in self.nodes]

    def overridden(self):
        return ["agent-1" in node.manage("GET", "/api/admin/rate-limits").json["overrides"] for node in self.nodes]

    def exempt(self):
        return ["agent-2" in node.manage("GET", "/api/admin/rate-limits").json["whitelist"] for node in self.nodes]

    def test_what_was_switched_off_stays_off_when_redis_comes_back_empty(self):
        first, second = self.nodes
        self.assertEqual(first.manage("PUT", "/api/admin/emergency", {"reason": "test"}).status, 200)
        first.manage("PUT", "/api/admin/rate-limits/agent-1", {"normal": {"capacity": 7, "refill_per_minute": 7}})
        first.manage("POST", "/api/admin/rate-limits/whitelist", {"agent": "agent-2"})
        for known in (self.emergencies, self.overridden, self.exempt):
            harness.wait_until(lambda k=known: k() == [True, True], f"both nodes know: {known.__name__}")
        # The second node does not hear that all of it is taken back.
        self.wires[1].cut()
        first.manage("DELETE", "/api/admin/emergency")
        first.manage("DELETE", "/api/admin/rate-limits/agent-1")
        first.manage("DELETE", "/api/admin/rate-limits/whitelist/agent-2")
        harness.wait_until(lambda: '"active":false' in (self.field("emergency/state") or ""), "Redis knows")
        harness.wait_until(lambda: (self.field("override/agent-1") or "").endswith("-"), "Redis knows")
        harness.wait_until(lambda: (self.field("exempt/agent-2") or "").endswith("-"), "Redis knows")
        self.wires[0].cut()
        self.redis.kill()
        self.redis.start()
        # The second node is the first to find that Redis is empty, and hands on what it knows.
        self.wires[1].mend()
        harness.wait_until(lambda: all(self.field(name) for name in
                                       ("emergency/state", "override/agent-1", "exempt/agent-2")), "it hands on")
        self.wires[0].mend()
        for known in (self.emergencies, self.overridden, self.exempt):
            harness.wait_until(lambda k=known: k() == [False, False], f"off on both nodes: {known.__name__}")
        self.assertIn('"active":false', self.field("emergency/state"))

    def test_what_was_switched_on_is_known_when_redis_comes_back_empty(self):
        first, _ = self.nodes
        first.manage("PUT", "/api/admin/emergency", {"reason": "test"})
        harness.wait_until(lambda: self.emergencies() == [True, True], "both nodes know")
        self.redis.kill()
        self.redis.start()
        harness.wait_until(lambda: '"active":true' in (self.field("emergency/state") or ""), "Redis knows again")
        self.assertEqual(self.emergencies(), [True, True])

    def test_the_brake_works_while_redis_is_away_and_reaches_the_others_afterwards(self):
        first, second = self.nodes
        made = first.manage("POST", "/api/admin/tokens", {"name": "t", "role": "agent", "agent": "A"}).json
        spread = first.manage("PUT", "/api/admin/emergency", {"reason": "with Redis"}).json
        self.assertNotIn("spread", spread)
        harness.wait_until(lambda: self.emergencies() == [True, True], "both nodes know")
        first.manage("DELETE", "/api/admin/emergency")
        harness.wait_until(lambda: self.emergencies() == [False, False], "both nodes know")
        self.redis.kill()
        harness.wait_until(lambda: not first.is_ready(), "the node knows that Redis is away")
        before = first.check("A", "some", peek=True)["limit"]
        answer = first.manage("PUT", "/api/admin/emergency", {"reason": "without Redis"})
        self.assertEqual((answer.status, answer.json["active"], answer.json["spread"]), (200, True, False))
        self.assertLess(first.check("A", "some")["limit"], before)
        answer = first.manage("PUT", "/api/admin/rate-limits/agent-1", {"normal": {"capacity": 7, "refill_per_minute": 7}})
        self.assertEqual((answer.status, answer.json["spread"]), (200, False))
        answer = first.manage("POST", "/api/admin/rate-limits/whitelist", {"agent": "agent-2"})
        self.assertEqual((answer.status, answer.json["spread"]), (200, False))
        self.assertTrue(first.check("agent-2", "some")["reason"].startswith("The agent is exempt"))
        # A token is a node's own: that it is revoked depends on nobody else.
        self.assertEqual(first.call("POST", "/v1/check", {"operation": "some"}, token=made["secret"]).status, 200)
        self.assertEqual(first.manage("DELETE", f"/api/admin/tokens/{made['id']}").status, 200)
        self.assertEqual(first.call("POST", "/v1/check", {"operation": "some"}, token=made["secret"]).status, 401)
        self.assertFalse(second.manage("GET", "/api/admin/emergency").json["active"])
        self.redis.start()
        for known in (self.emergencies, self.overridden, self.exempt):
            harness.wait_until(lambda k=known: k() == [True, True], f"both nodes know: {known.__name__}")


if __name__ == "__main__":
    harness.main()
