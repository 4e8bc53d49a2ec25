#!/usr/bin/env python3
"""Clock skew: a node whose clock differs from that of Redis sends a notice, limits stay exact, and another notice ends it."""

import contextlib
import re
import unittest

import harness
from cluster_harness import Node, Redis, wait_until_acquainted
from own_clock import Clock

POLICIES = """
policies:
  - {id: some, match: {operations: [some]}, key: [agent], limit: {strategy: sliding_window, limit: 30, window: 1h}}
  - {id: day, match: {operations: [day]}, key: [agent], limit: {strategy: quota, limit: 30, period: day}}
"""
LIMIT = 30


class Skew(unittest.TestCase):
    def setUp(self):
        Clock.check_usable(self)

    def test_a_node_whose_clock_is_set_says_so_and_says_when_it_is_right_again(self):
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(Redis())
            clock = stack.enter_context(Clock())
            apart = stack.enter_context(Node("apart", server.url, POLICIES, env=clock.env))
            right = stack.enter_context(Node("right", server.url, POLICIES))
            wait_until_acquainted(server, 2)
            for round_number, shift in enumerate(("+7", "-7"), start=1):
                clock.set(shift)
                harness.wait_until(lambda n=round_number: len(apart.told("clock_skew")) == n, f"an alert at {shift} s")
                alert = max(apart.told("clock_skew"), key=lambda each: each["id"])
                # The clock of Redis, as seen from the node.
                seconds = int(re.search(r"([+-]\d+) ms", alert["text"])[1]) / 1000
                self.assertAlmostEqual(seconds, -float(shift), delta=0.5)
                for operation in ("some", "day"):
                    admitted = sum(node.check(f"a{shift}", operation)["allowed"]
                                   for _ in range(LIMIT) for node in (apart, right))
                    self.assertEqual(admitted, LIMIT, operation)
                clock.set("+0")
                harness.wait_until(lambda n=round_number: len(apart.told("clock_agrees")) == n, "the all-clear")
            self.assertEqual((right.told("clock_skew"), right.told("clock_agrees")), ([], []))


if __name__ == "__main__":
    harness.main()
