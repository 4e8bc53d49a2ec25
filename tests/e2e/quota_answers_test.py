#!/usr/bin/env python3
"""What a quota check answers: headers, early warnings, and monitor mode, which refuses nothing."""

import unittest

import harness


def check(server, **more):
    return server.manage("POST", "/api/quotas/check", {"user": "42", "type": "shell", **more})


def allow(server, daily):
    answer = server.manage("PUT", "/api/quotas/user/42", {"types": {"shell": {"daily": daily}}})
    assert answer.status == 200, answer.body


class Headers(unittest.TestCase):
    def test_they_say_what_is_left_and_when_to_come_back(self):
        with harness.Server() as server:
            allow(server, 2)
            answer = check(server)
            self.assertTrue(answer.json["allowed"])
            self.assertRegex(answer.headers["RateLimit-Policy"],
                             r'^"daily";q=2;w=86400, "weekly";q=3000;w=604800, "monthly";q=10000;w=2592000$')
            self.assertRegex(answer.headers["RateLimit"],
                             r'^"daily";r=1;t=\d+, "weekly";r=2999;t=\d+, "monthly";r=9999;t=\d+$')
            self.assertEqual((answer.headers["X-RateLimit-Limit"], answer.headers["X-RateLimit-Remaining"]), ("2", "1"))
            self.assertEqual(int(answer.headers["X-RateLimit-Reset"]) * 1000, answer.json["resets_at"]["daily"])
            self.assertNotIn("Retry-After", answer.headers)
            check(server)
            answer = check(server)
            self.assertFalse(answer.json["allowed"])
            self.assertEqual(answer.headers["X-RateLimit-Remaining"], "0")
            self.assertEqual(int(answer.headers["Retry-After"]), -(-answer.json["retry_after_ms"] // 1000))


class Periods(unittest.TestCase):
    def test_each_counts_for_itself(self):
        with harness.Server() as server:
            rule = {"types": {"shell": {"daily": 9, "weekly": 1000, "monthly": 2000}}}
            self.assertEqual(server.manage("PUT", "/api/quotas/user/42", rule).status, 200)
            answers = [check(server).json for _ in range(10)]
            self.assertEqual([answer["allowed"] for answer in answers], [True] * 9 + [False])
            left = [(answer["remaining_today"], answer["remaining_week"], answer["remaining_month"]) for answer in answers]
            self.assertEqual(left[:9], [(8 - i, 999 - i, 1999 - i) for i in range(9)])
            resets = answers[0]["resets_at"]
            self.assertLessEqual(resets["daily"], resets["monthly"])  # the same on the last of the month


BACKING_OFF = """
backoff: {steps: [1h], enforced: true}
policies:
  - {id: once, match: {operations: [once]}, key: [agent], limit: 1/1h}
"""


class Namesakes(unittest.TestCase):
    """Agent 42 and user 42 have nothing in common but their name."""

    def test_neither_pays_for_the_others_back_off(self):
        with harness.Server(policies=BACKING_OFF) as server:
            self.assertEqual([server.check("42", "once")["allowed"] for _ in range(2)], [True, False])
            self.assertEqual(server.check("42", "other")["reason"], "Backing off after repeated violations")
            self.assertTrue(check(server).json["allowed"], "the user has violated nothing")
        with harness.Server(policies=BACKING_OFF) as server:
            self.assertEqual([check(server, type="once").json["allowed"] for _ in range(2)], [True, False])
            self.assertEqual(check(server).json["reason"], "Backing off after repeated violations")
            self.assertTrue(server.check("42", "other")["allowed"], "the agent has violated nothing")

    def test_an_exempt_agent_leaves_the_users_quota(self):
        with harness.Server() as server:
            allow(server, 0)
            exempt = server.manage("PUT", "/api/admin/rate-limits/whitelist", {"agents": ["42"]})
            self.assertEqual(exempt.status, 200, exempt.body)
            self.assertFalse(check(server).json["allowed"])
            allow(server, 5)
            self.assertEqual(check(server).json["remaining_today"], 4)


class Warnings(unittest.TestCase):
    def test_fewer_than_ten_are_few_of_a_small_quota_too(self):
        with harness.Server() as server:
            allow(server, 12)
            warnings = [check(server).json["warning"] for _ in range(3)]
            self.assertEqual(warnings, ["", "", "Only 9 shell commands left today"])

    def test_a_fifth_is_little(self):
        with harness.Server() as server:
            allow(server, 60)
            warnings = [check(server).json["warning"] for _ in range(48)]
            self.assertEqual(warnings[:47], [""] * 47)
            self.assertEqual(warnings[47], "Only 12 shell commands left today")


class Monitor(unittest.TestCase):
    def test_the_load_refuses_nothing(self):
        with harness.Server(env={"HEADGATE_QUOTAS_MODE": "monitor"}) as server:
            answer = check(server).json
            self.assertEqual((answer["allowed"], answer["would_refuse"], answer["would_reason"]), (True, False, None))
            self.assertEqual(server.manage("PUT", "/api/admin/load", {"load": 0.99}).status, 200)
            for peek in (False, True):
                answer = check(server, peek=peek).json
                self.assertEqual((answer["allowed"], answer["would_refuse"]), (True, True), answer)
                self.assertEqual(answer["would_reason"], "The system is too busy: no command starts now")
                self.assertEqual(answer["throttle_factor"], 1)

    def test_nor_does_the_number_of_commands_that_run(self):
        with harness.Server(env={"HEADGATE_QUOTAS_MODE": "monitor", "HEADGATE_QUOTAS_CONCURRENT": "1"}) as server:
            self.assertIs(check(server, run="first").json["would_refuse"], False)
            answer = check(server, run="second", max_wait_ms=60000).json
            self.assertEqual((answer["allowed"], answer["would_refuse"]), (True, True), answer)
            self.assertIn("As many commands run as may", answer["would_reason"])

    def test_nor_does_a_quota(self):
        with harness.Server(env={"HEADGATE_QUOTAS_MODE": "monitor"}) as server:
            allow(server, 1)
            check(server)
            answer = check(server).json
            self.assertEqual((answer["allowed"], answer["would_refuse"], answer["would_reason"]),
                             (True, True, "Daily quota of 1 shell commands used up"))


class History(unittest.TestCase):
    def test_it_tells_how_far_apart_its_points_are(self):
        with harness.Server() as server:
            server.check()
            for step, real in ((1000, 10_000), (15_000, 20_000), (60_000, 60_000)):
                history = server.manage("GET", f"/api/history?step={step}")  # of the last hour
                self.assertEqual(history.json["step_ms"], real)


if __name__ == "__main__":
    harness.main()
