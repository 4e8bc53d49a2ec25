#!/usr/bin/env python3
"""What an agent states about its own cost, and holds that it releases, against policies with least_cost and holds: false.

The same agent passes a limit of a policy that says neither: that is what the two settings are for."""

import unittest

import harness
from cluster_harness import Node, Redis

LIMIT = "limit: {strategy: fixed_window, limit: 3, window: 24h}"
POLICIES = f"""
policies:
  - {{id: plain, match: {{operations: [plain]}}, {LIMIT}}}
  - {{id: least, match: {{operations: [least]}}, {LIMIT}, least_cost: 1}}
  - {{id: final, match: {{operations: [final]}}, {LIMIT}, holds: false}}
  - {{id: all, match: {{operations: [all]}}, {LIMIT}, holds: false}}
"""
TRIES = 20


class Case:
    """One set of tests for each kind of store."""

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def setUp(self):
        made = self.server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": self.id()})
        self.assertEqual(made.status, 201, made.body)
        self.token = made.json["secret"]

    def ask(self, method, path, body=None):
        return self.server.call(method, path, body, token=self.token)

    def admitted(self, operation, **more):
        """How many of several checks pass; what is held is released at once."""
        count = 0
        for _ in range(TRIES):
            decision = self.ask("POST", "/v1/check", {"operation": operation, **more}).json
            count += decision["allowed"]
            if decision.get("lease"):
                self.assertEqual(self.ask("DELETE", f"/v1/leases/{decision['lease']}").status, 200)
        return count

    def test_a_cost_of_nothing_is_charged_by_least_cost(self):
        self.assertEqual(self.admitted("plain", cost=0), TRIES)
        self.assertEqual(self.admitted("least", cost=0), 3)

    def test_a_cost_of_another_unit_is_charged_by_least_cost(self):
        self.assertEqual(self.admitted("plain", cost={"x": 1}), TRIES)
        self.assertEqual(self.admitted("least", cost={"x": 1}), 3)

    def test_a_hold_that_is_released_stays_charged_without_holds(self):
        self.assertEqual(self.admitted("plain", hold=True), TRIES)
        self.assertEqual(self.admitted("final", hold=True), 3)

    def test_what_stays_charged_is_told(self):
        held = self.ask("POST", "/v1/check", {"operation": "final", "hold": True, "cost": 2}).json
        self.assertEqual(self.ask("DELETE", f"/v1/leases/{held['lease']}").json["costs"], {"requests": 2})
        self.assertEqual(self.ask("POST", "/v1/check", {"operation": "final", "peek": True}).json["remaining"], 0)

    def test_the_policies_say_so(self):
        told = self.server.manage("POST", "/api/admin/policies/explain",
                                  {"operation": "least", "agent": self.id(), "cost": {"x": 1}}).json["policies"]
        told = {policy["id"]: policy for policy in told}
        self.assertEqual([told["least"][key] for key in ("matches", "least_cost", "holds")], [True, 1, True])
        self.assertEqual([told["final"][key] for key in ("least_cost", "holds")], [None, False])
        listed = {policy["id"]: policy for policy in self.server.manage("GET", "/api/admin/policies").json["policies"]}
        self.assertEqual([listed["least"][key] for key in ("least_cost", "holds")], [1, True])


class InMemory(Case, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server("--auth", "required", policies=POLICIES)


class InRedis(Case, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.redis = Redis()
        cls.server = Node("n1", cls.redis.url, POLICIES, env={"HEADGATE_AUTH": "required"})

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.redis.__exit__()


if __name__ == "__main__":
    harness.main()
