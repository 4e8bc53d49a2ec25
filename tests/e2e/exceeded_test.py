#!/usr/bin/env python3
"""Reports of exceeded limits: reasons, log lines, escalations, alerts."""

import unittest

import harness

COMPONENTS = """
enforcement: {enforcement}
rateLimitPolicies:
  agentA:
    agentId: A
    policies:
      - id: ui-component-creation
        strategy: SLIDING_WINDOW
        operations: [CREATE_COMPONENT]
        maxRequests: 50
        timeWindow: 60
        burstAllowance: 10
        conditions: {{contexts: [UI_DEVELOPMENT]}}
        consequences: {{action: WARN}}
      - id: policy-evaluations
        strategy: FIXED_WINDOW
        operations: [POLICY_EVALUATE]
        maxRequests: 2
        timeWindow: 86400
        consequences: {{action: LOG, message: "Policy evaluation rate limit exceeded"}}
"""
ESCALATING = """
policies:
  - id: any
    match: {operations: ["made-up-*"]}
    key: [agent]
    limit: 1/1h
    escalation: {to: AGENT_E, threshold: 1, time_window: 0}
  - id: once
    match: {operations: [once]}
    limit: 1/1h
    escalation: {to: AGENT_E, threshold: 1, time_window: 0}
"""


def batch(server, checks):
    answer = server.call("POST", "/v1/check/batch", {"checks": checks})
    return [decision["allowed"] for decision in answer.json["decisions"]]


def alerts(server, kind):
    return [alert for alert in server.manage("GET", "/api/alerts").json["alerts"] if alert["kind"] == kind]


class Enforcement(unittest.TestCase):
    CHECK = {"agent": "A", "operation": "CREATE_COMPONENT", "context": {"type": "UI_DEVELOPMENT"}}

    def test_strict_counts_no_burst_allowance(self):
        with harness.Server(policies=COMPONENTS.format(enforcement="strict")) as server:
            self.assertEqual(batch(server, [self.CHECK] * 51), [True] * 50 + [False])
            denied = server.check(**self.CHECK)
            self.assertEqual(denied["reason"], "Sliding window limit 50/60s exceeded")

    def test_graded_tells_which_limit_a_check_was_admitted_past(self):
        with harness.Server(policies=COMPONENTS.format(enforcement="graded")) as server:
            self.assertEqual(batch(server, [self.CHECK] * 60), [True] * 60)
            past = server.check(**self.CHECK)
            self.assertEqual((past["allowed"], past["action"]), (True, "warn"))
            self.assertEqual(past["reason"], "Admitted past: Sliding window limit 50/60s exceeded")
            evaluate = {"agent": "A", "operation": "POLICY_EVALUATE"}
            self.assertEqual(batch(server, [evaluate] * 2), [True] * 2)
            past = server.check(**evaluate)
            self.assertEqual((past["allowed"], past["action"]), (True, "log"))
            self.assertEqual(past["reason"], "Admitted past: Fixed window limit 2/86400s exceeded")

    def test_action_log_writes_one_line_for_many(self):
        with harness.Server(policies=COMPONENTS.format(enforcement="graded")) as server:
            evaluate = {"agent": "A", "operation": "POLICY_EVALUATE"}
            self.assertTrue(all(batch(server, [evaluate] * 300)))
            lines = harness.wait_until(lambda: [line for line in server.log if " exceeded " in line], "a log line")
            self.assertEqual(len(lines), 1, lines)
            for part in ("info", "agent=A", "policy=policy-evaluations", "left_out=0", "rate limit exceeded"):
                self.assertIn(part, lines[0])


class Escalation(unittest.TestCase):
    def test_one_condition_is_one_alert_that_counts(self):
        with harness.Server(policies=ESCALATING) as server:
            self.assertEqual(sum(batch(server, [{"agent": "A", "operation": "once"}] * 31)), 1)
            (alert,) = harness.wait_until(lambda: [a for a in alerts(server, "escalation") if a.get("count", 30) == 30],
                                          "an alert of thirty violations")
            self.assertEqual((alert["agent"], alert["operation"], alert["policy_id"], alert["to"], alert["count"]),
                             ("A", "once", "once", "AGENT_E", 30))
            self.assertLessEqual(alert["first_at"], alert["last_at"])
            # Another agent is another condition.
            batch(server, [{"agent": "B", "operation": "once"}] * 2)
            harness.wait_until(lambda: len(alerts(server, "escalation")) == 2, "the other agent's alert")
            harness.wait_until(lambda: sum(" escalation " in line for line in server.log) == 2, "two lines in the log")

    def test_made_up_operations_are_one_condition(self):
        with harness.Server(policies=ESCALATING) as server:
            for start in range(0, 1000, 500):
                batch(server, [{"agent": "A", "operation": f"made-up-{start + i}"} for i in range(500)])
            (alert,) = harness.wait_until(lambda: [a for a in alerts(server, "escalation") if a.get("count") == 999],
                                          "an alert that counts all of them")
            self.assertEqual((alert["agent"], alert["policy_id"], alert["to"]), ("A", "any", "AGENT_E"))
            self.assertEqual(sum(" escalation " in line for line in server.log), 1)

    def test_a_flood_of_one_kind_leaves_alerts_of_others(self):
        with harness.Server(policies=ESCALATING) as server:
            self.assertEqual(server.manage("PUT", "/api/admin/emergency", {"reason": "drill"}).status, 200)
            harness.wait_until(lambda: alerts(server, "emergency"), "the alert of the emergency")
            for start in range(0, 300, 100):
                batch(server, [{"agent": f"A{start + i // 2}", "operation": "once"} for i in range(200)])
            harness.wait_until(lambda: any(alert["agent"] == "A299" for alert in alerts(server, "escalation")),
                               "the last escalation")
            self.assertEqual(len(alerts(server, "emergency")), 1)
            self.assertEqual(len(alerts(server, "escalation")), 100)


if __name__ == "__main__":
    harness.main()
