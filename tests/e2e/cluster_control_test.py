#!/usr/bin/env python3
"""Operators' changes on one of several nodes: they reach the others, also after a disconnection, or a notice says why not."""

import contextlib
import signal
import time
import unittest

import harness
from cluster_harness import Node, Redis, Wire, nodes

POLICIES = """
policies:
  - {id: runs, match: {operations: [run]}, key: [agent], limit: {strategy: sliding_window, limit: 60, window: 1h}}
"""
OTHER_POLICIES = """
policies:
  - {id: walks, match: {operations: [run]}, key: [agent], limit: {strategy: sliding_window, limit: 7, window: 1h}}
"""
LIMITS = "/api/admin/rate-limits"
DEADLINE = "2s"  # a busy machine misses none


def heavy(capacity):
    return {"heavy": {"capacity": capacity, "refill_per_minute": capacity}}


def override(node, agent):
    """The capacity of an agent's own limit; None: it has none."""
    own = node.manage("GET", LIMITS).json["overrides"].get(agent)
    return own["heavy"]["capacity"] if own else None


def exempt(node):
    return set(node.manage("GET", f"{LIMITS}/whitelist").json["agents"])


def emergency(node):
    return node.manage("GET", "/api/admin/emergency").json["reason"]


def audit(node):
    return node.manage("GET", "/api/admin/audit").json["entries"]


def load(node):
    return node.manage("GET", "/api/admin/load").json["load"]


def policies(node):
    return [policy["id"] for policy in node.manage("GET", "/api/admin/policies").json["policies"]]


class Case(unittest.TestCase):
    def change(self, node, method, path, body=None):
        answer = node.manage(method, path, body)
        self.assertEqual(answer.status, 200, answer.body)

    def assert_reaches(self, made, what, look, expected):
        since = time.monotonic()
        for node in made:
            harness.wait_until(lambda n=node: look(n) == expected, f"{what} on {node.name}: {expected!r}")
        took = time.monotonic() - since
        print(f"{what}: on {len(made)} nodes after {took * 1000:.0f} ms")


class Spreading(Case):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.redis = cls.stack.enter_context(Redis())
        cls.nodes = cls.stack.enter_context(nodes(3, cls.redis.url, POLICIES, deadline=DEADLINE))

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def test_an_override_reaches_all_nodes_and_so_does_its_removal(self):
        first, second, _ = self.nodes
        self.change(first, "PUT", f"{LIMITS}/A", heavy(5))
        self.assert_reaches(self.nodes, "an override", lambda n: override(n, "A"), 5)
        self.change(second, "PUT", f"{LIMITS}/A", heavy(6))
        self.assert_reaches(self.nodes, "another", lambda n: override(n, "A"), 6)
        self.change(first, "DELETE", f"{LIMITS}/A")
        self.assert_reaches(self.nodes, "its removal", lambda n: override(n, "A"), None)
        self.assertEqual([node.told("control_conflict") for node in self.nodes], [[], [], []])

    def test_an_exempt_agent_is_exempt_on_all_nodes(self):
        self.change(self.nodes[0], "POST", f"{LIMITS}/whitelist", {"agent": "vip"})
        self.assert_reaches(self.nodes, "an exemption", lambda n: "vip" in exempt(n), True)
        for node in self.nodes:
            self.assertEqual(node.check("vip")["policy_ids"], [])
        self.change(self.nodes[2], "DELETE", f"{LIMITS}/whitelist/vip")
        self.assert_reaches(self.nodes, "its end", lambda n: "vip" in exempt(n), False)

    def test_an_emergency_is_one_everywhere_and_told_everywhere(self):
        self.change(self.nodes[1], "PUT", "/api/admin/emergency", {"reason": "drill"})
        self.assert_reaches(self.nodes, "an emergency", emergency, "drill")
        self.change(self.nodes[0], "DELETE", "/api/admin/emergency")
        self.assert_reaches(self.nodes, "its end", emergency, None)
        for node in self.nodes:
            harness.wait_until(lambda n=node: sorted(notice["text"] for notice in n.told("emergency")) ==
                               ["drill", "turned off"], f"both notices on {node.name}")

    def test_load_that_is_reported_to_one_node_is_known_to_all(self):
        for node, reported in zip(self.nodes, (0.6, 0.4, 0.5)):  # none of which lowers a limit
            self.change(node, "PUT", "/api/admin/load", {"load": reported})
            self.assert_reaches(self.nodes, "load", load, reported)
        self.change(self.nodes[0], "DELETE", "/api/admin/load")
        self.assert_reaches(self.nodes, "no load", load, None)

    def test_load_reported_to_two_nodes_at_once_is_no_conflict(self):
        for _ in range(20):
            for node in self.nodes:
                self.change(node, "PUT", "/api/admin/load", {"load": 0.5})
        self.assert_reaches(self.nodes, "load", load, 0.5)
        self.assertEqual([node.told("control_conflict") for node in self.nodes], [[], [], []])
        self.change(self.nodes[0], "DELETE", "/api/admin/load")
        self.assert_reaches(self.nodes, "no load", load, None)

    def test_policies_put_on_one_node_are_in_force_on_all(self):
        self.change(self.nodes[2], "PUT", "/api/admin/policies", OTHER_POLICIES)
        self.assert_reaches(self.nodes, "policies", policies, ["walks"])
        self.assertEqual([self.nodes[i % 3].check("P")["allowed"] for i in range(9)], [True] * 7 + [False] * 2)
        self.change(self.nodes[0], "DELETE", "/api/admin/policies")
        self.assert_reaches(self.nodes, "the files", policies, ["runs"])

    def test_a_newcomer_answers_as_the_others_from_its_first_check_on(self):
        self.change(self.nodes[0], "PUT", f"{LIMITS}/B", heavy(4))
        self.change(self.nodes[1], "POST", f"{LIMITS}/whitelist", {"agent": "friend"})
        self.assert_reaches(self.nodes, "an override", lambda n: override(n, "B"), 4)
        self.assert_reaches(self.nodes, "an exemption", lambda n: "friend" in exempt(n), True)
        with Node("n4", self.redis.url, POLICIES) as late:
            self.assertEqual(override(late, "B"), 4)
            self.assertIn("friend", exempt(late))

    def test_a_node_whose_folder_was_lost_gets_back_what_it_had_set_itself(self):
        with Node("forgetful", self.redis.url, POLICIES) as before:
            self.change(before, "PUT", f"{LIMITS}/C", heavy(3))
            self.assert_reaches(self.nodes, "an override", lambda n: override(n, "C"), 3)
        with Node("forgetful", self.redis.url, POLICIES) as after:
            self.assertEqual(override(after, "C"), 3)

    def test_what_an_emptied_redis_has_lost_is_handed_on_again(self):
        self.change(self.nodes[0], "PUT", f"{LIMITS}/D", heavy(2))
        self.assert_reaches(self.nodes, "an override", lambda n: override(n, "D"), 2)
        audited = [len(audit(node)) for node in self.nodes]
        self.redis.do("FLUSHALL")
        harness.wait_until(lambda: self.redis.do("HGET", "headgate:{control}:fields", "override/D"), "it is back")
        with Node("n5", self.redis.url, POLICIES) as late:
            self.assertEqual(override(late, "D"), 2)
        self.change(self.nodes[1], "PUT", f"{LIMITS}/D", heavy(8))
        self.assert_reaches(self.nodes, "a change after it", lambda n: override(n, "D"), 8)
        # Only that change was one.
        harness.wait_until(lambda: [len(audit(node)) for node in self.nodes] == [count + 1 for count in audited],
                           "one more entry on each node")
        self.assertEqual([node.told("control_conflict") for node in self.nodes], [[], [], []])


class CutOff(Case):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.redis = self.stack.enter_context(Redis())
        self.wire = self.stack.enter_context(Wire(self.redis.port))
        self.others = self.stack.enter_context(nodes(2, self.redis.url, POLICIES, deadline=DEADLINE))
        self.apart = self.stack.enter_context(Node("apart", self.wire.url, POLICIES, deadline=DEADLINE))
        self.all = [*self.others, self.apart]

    def cut(self):
        self.wire.cut()
        harness.wait_until(lambda: not self.apart.is_ready(), "a node that is cut off")

    def mend(self):
        self.wire.mend()
        harness.wait_until(self.apart.is_ready, "a node that is back")

    def test_a_node_that_was_cut_off_catches_up(self):
        self.change(self.apart, "PUT", f"{LIMITS}/gone", heavy(1))
        self.assert_reaches(self.all, "an override", lambda n: override(n, "gone"), 1)
        self.cut()
        self.change(self.others[0], "PUT", f"{LIMITS}/A", heavy(5))
        self.change(self.others[0], "DELETE", f"{LIMITS}/gone")
        self.change(self.others[1], "POST", f"{LIMITS}/whitelist", {"agent": "vip"})
        self.change(self.others[1], "PUT", "/api/admin/emergency", {"reason": "drill"})
        self.change(self.others[1], "PUT", "/api/admin/policies", OTHER_POLICIES)
        self.change(self.apart, "PUT", f"{LIMITS}/B", heavy(6))  # which the others are to hear of, too
        self.assert_reaches(self.others, "policies", policies, ["walks"])
        self.assertEqual((override(self.apart, "A"), emergency(self.apart)), (None, None))
        self.assertIsNone(override(self.others[0], "B"))
        self.mend()
        self.assert_reaches(self.all, "an override", lambda n: override(n, "A"), 5)
        self.assert_reaches(self.all, "a removal", lambda n: override(n, "gone"), None)
        self.assert_reaches(self.all, "an exemption", lambda n: "vip" in exempt(n), True)
        self.assert_reaches(self.all, "an emergency", emergency, "drill")
        self.assert_reaches(self.all, "policies", policies, ["walks"])
        self.assert_reaches(self.all, "what was set there", lambda n: override(n, "B"), 6)
        self.assertEqual([node.told("control_conflict") for node in self.all], [[], [], []])

    def test_of_two_changes_to_one_thing_the_first_to_arrive_is_kept_and_that_is_told(self):
        self.change(self.others[0], "PUT", f"{LIMITS}/A", heavy(5))
        self.assert_reaches(self.all, "an override", lambda n: override(n, "A"), 5)
        self.cut()
        self.change(self.apart, "PUT", f"{LIMITS}/A", heavy(9))
        self.change(self.others[1], "PUT", f"{LIMITS}/A", heavy(7))
        self.assert_reaches(self.others, "one change", lambda n: override(n, "A"), 7)
        self.assertEqual(override(self.apart, "A"), 9)
        self.mend()
        self.assert_reaches(self.all, "the same for all", lambda n: override(n, "A"), 7)
        (told,) = harness.wait_until(lambda: self.apart.told("control_conflict"), "a word about it")
        for word in ("override/A", "node n2"):
            self.assertIn(word, told["text"])
        self.change(self.apart, "PUT", f"{LIMITS}/A", heavy(9))
        self.assert_reaches(self.all, "said again", lambda n: override(n, "A"), 9)

    def test_what_was_set_on_a_node_that_was_cut_off_and_restarted_reaches_the_others(self):
        self.change(self.others[0], "PUT", f"{LIMITS}/A", heavy(5))
        self.assert_reaches(self.all, "an override", lambda n: override(n, "A"), 5)
        self.cut()
        self.change(self.apart, "PUT", f"{LIMITS}/A", heavy(9))
        self.change(self.apart, "PUT", "/api/admin/emergency", {"reason": "while away"})
        self.assertEqual(self.apart.stop(), 0)
        self.apart = self.stack.enter_context(
            Node("apart", self.wire.url, POLICIES, deadline=DEADLINE, data=self.apart.data))
        self.all = [*self.others, self.apart]
        audited = len(audit(self.apart))
        self.mend()
        self.assert_reaches(self.all, "what was set there", lambda n: (override(n, "A"), emergency(n)), (9, "while away"))
        self.assertEqual([node.told("control_conflict") for node in self.all], [[], [], []])
        # Nothing came from the others.
        self.assertEqual(len(audit(self.apart)), audited)
        self.assertEqual(self.apart.told("emergency"), [])

    def test_what_was_changed_and_changed_back_meanwhile_is_as_it_was(self):
        self.change(self.others[0], "PUT", f"{LIMITS}/A", heavy(5))
        self.assert_reaches(self.all, "an override", lambda n: override(n, "A"), 5)
        self.cut()
        self.change(self.apart, "PUT", f"{LIMITS}/A", heavy(9))
        self.change(self.apart, "PUT", f"{LIMITS}/A", heavy(5))
        self.change(self.apart, "PUT", f"{LIMITS}/B", heavy(1))
        self.mend()
        self.assert_reaches(self.all, "what came after it", lambda n: override(n, "B"), 1)
        self.assertEqual([override(node, "A") for node in self.all], [5, 5, 5])

    def test_a_node_that_was_cut_off_while_redis_was_emptied_agrees_with_the_others(self):
        for capacity in (3, 4, 5):
            self.change(self.apart, "PUT", f"{LIMITS}/A", heavy(capacity))
            self.assert_reaches(self.all, "an override", lambda n: override(n, "A"), capacity)
        self.cut()
        self.redis.do("FLUSHALL")
        harness.wait_until(lambda: self.redis.do("HGET", "headgate:{control}:fields", "override/A"), "it is back")
        self.change(self.others[0], "PUT", f"{LIMITS}/A", heavy(7))
        for capacity in range(1, 5):  # more changes than there had been before
            self.change(self.others[0], "PUT", f"{LIMITS}/B", heavy(capacity))
            self.assert_reaches(self.others, "a change since", lambda n: override(n, "B"), capacity)
        self.mend()
        self.assert_reaches(self.all, "the same for all", lambda n: (override(n, "A"), override(n, "B")), (7, 4))


class AutomaticEmergency(Case):
    """The first node remembers a reported load for an hour, the second for a second: so only the first has the cause."""

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.redis = self.stack.enter_context(Redis())
        self.first = self.node("first", "1h")
        self.second = self.node("second", "1s")
        self.change(self.first, "PUT", "/api/admin/load", {"load": 0.95})
        self.assert_reaches([self.first, self.second], "an emergency", emergency, "load 0.95 is over 0.9")
        harness.wait_until(lambda: load(self.second) is None, "a report that has expired")

    def node(self, name, report_ttl):
        return self.stack.enter_context(Node(name, self.redis.url, POLICIES, deadline=DEADLINE,
                                             env={"HEADGATE_LOAD_REPORT_TTL": report_ttl}))

    def catch_up(self):
        """Until whatever the second node has changed is known to the first, and the other way round."""
        for node, agent in ((self.second, "there"), (self.first, "back")):
            self.change(node, "PUT", f"{LIMITS}/{agent}", heavy(5))
            for each in (self.first, self.second):
                harness.wait_until(lambda n=each: override(n, agent) == 5, f"an override on {each.name}")

    def look_at_load_again(self):
        """Until each node has been heard of for three more seconds: it looks at its load once a second."""
        def heard():
            return self.redis.zrange("headgate:{control}:nodes", 0, -1, withscores=True)

        since = max(at for _, at in heard())
        harness.wait_until(lambda: all(at > since + 3_000_000 for _, at in heard()), "nodes that have looked at their load")
        self.catch_up()

    def test_it_lasts_while_the_load_of_the_node_that_has_the_cause_is_high(self):
        self.catch_up()
        self.assertEqual([emergency(node) for node in (self.first, self.second)], ["load 0.95 is over 0.9"] * 2)
        self.assertEqual(self.second.told("control_conflict") + self.first.told("control_conflict"), [])
        self.change(self.first, "DELETE", "/api/admin/load")
        self.assert_reaches([self.first, self.second], "its end", emergency, None)

    def test_it_ends_when_the_node_that_has_the_cause_is_gone(self):
        self.first.stop(signal.SIGKILL)
        harness.wait_until(lambda: emergency(self.second) is None, "the end of an emergency without a cause")

    def test_turned_off_by_hand_on_the_other_node_it_stays_off(self):
        self.change(self.second, "DELETE", "/api/admin/emergency")
        self.assert_reaches([self.first, self.second], "its end", emergency, None)
        self.look_at_load_again()
        self.assertEqual([emergency(node) for node in (self.first, self.second)], [None, None])

    def test_it_lasts_through_a_restart_of_the_other_node(self):
        self.assertEqual(self.second.stop(), 0)
        self.second = self.stack.enter_context(Node("second", self.redis.url, POLICIES, deadline=DEADLINE,
                                                    data=self.second.data, env={"HEADGATE_LOAD_REPORT_TTL": "1s"}))
        self.look_at_load_again()
        self.assertEqual([emergency(node) for node in (self.first, self.second)], ["load 0.95 is over 0.9"] * 2)

    def test_a_report_is_as_old_as_it_is_for_a_node_that_joins_later(self):
        self.assertIsNone(load(self.node("third", "1s")), "it has expired by now")
        self.assertEqual(load(self.node("fourth", "1h")), 0.95)
        at = time.time_ns() - 45_000_000_000
        self.redis.do("HSET", "headgate:{control}:fields", "load/reported", f"{2**53} elsewhere =0.6 {at}")
        self.assertEqual(load(self.node("fifth", "1h")), 0.6)
        self.assertIsNone(load(self.node("sixth", "40s")))


if __name__ == "__main__":
    harness.main()
