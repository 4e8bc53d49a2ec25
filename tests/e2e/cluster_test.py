#!/usr/bin/env python3
"""Several nodes over one Redis: what they admit together, also while Redis is killed, paused or flushed."""

import contextlib
import signal
import unittest

import harness
from cluster_harness import PROMPT, Crowd, Node, Redis, Wire, nodes, wait_until_acquainted

POLICIES = """
policies:
  - {id: strict, match: {operations: [strict]}, key: [agent], limit: {strategy: sliding_window, limit: 60, window: 1h}}
  - id: bucket
    match: {operations: [bucket]}
    key: [agent]
    limit: {strategy: token_bucket, capacity: 60, refill_rate: 1/1h}
  - id: leased
    match: {operations: [leased]}
    key: [agent]
    consistency: leased
    limit: {strategy: sliding_window, limit: 2000, window: 1h}
  - id: local
    match: {operations: [local]}
    key: [agent]
    on_store_failure: local
    limit: {strategy: sliding_window, limit: 60, window: 1h}
  - id: open
    match: {operations: [open]}
    key: [agent]
    on_store_failure: open
    limit: {strategy: sliding_window, limit: 60, window: 1h}
  - id: closed
    match: {operations: [closed]}
    key: [agent]
    on_store_failure: closed
    limit: {strategy: sliding_window, limit: 60, window: 1h}
"""
LIMIT = 60
LEASED_LIMIT = 2000
LEASED_SHARE = 10  # percent that may be out in leases: store.leased_percent
OUTAGE_DEADLINE = "1s"  # so that an outage is noticed soon, and a busy machine misses none


def ready_again(made):
    for node in made:
        harness.wait_until(node.is_ready, f"{node.name} is ready")


class Case(unittest.TestCase):
    def assert_well(self, crowd):
        self.assertEqual(crowd.wrong, [])
        self.assertLess(crowd.slowest, PROMPT)

    def assert_shared(self, made, operation="strict", agents=("fresh",)):
        """What all nodes admit together of a new key is the limit."""
        crowd = Crowd(made, operation, agents).run(40)
        self.assertEqual(crowd.wrong, [])
        self.assertEqual(crowd.admitted, {agent: LIMIT for agent in agents})
        for node in made:
            self.assertEqual([node.left(agent, operation) for agent in agents], [0] * len(agents), node.name)


class Sharing(Case):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.redis = cls.stack.enter_context(Redis())
        cls.nodes = cls.stack.enter_context(nodes(3, cls.redis.url, POLICIES))

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def test_all_nodes_together_admit_exactly_the_limit_of_one_key(self):
        self.assert_shared(self.nodes, "strict", ["one"])
        self.assert_shared(self.nodes, "bucket", ["one"])

    def test_and_of_several_keys(self):
        self.assert_shared(self.nodes, "strict", ["k1", "k2", "k3"])

    def test_leased_units_are_admitted_within_the_stated_bounds(self):
        crowd = Crowd(self.nodes, "leased", ["hot"], clients=12).run(400)
        self.assertEqual(crowd.wrong, [])
        admitted = crowd.admitted["hot"]
        bound = LEASED_LIMIT * LEASED_SHARE // 100
        self.assertGreaterEqual(crowd.asked, 2 * LEASED_LIMIT)
        self.assertTrue(self.redis.do("KEYS", "headgate:c:*:l"), "there are leases")
        self.assertLessEqual(admitted, LEASED_LIMIT + bound)
        self.assertGreaterEqual(admitted, LEASED_LIMIT - bound)
        print(f"leased: {admitted} of {LEASED_LIMIT} admitted, {bound} more or less are allowed")

    def test_leased_units_that_nobody_used_go_back(self):
        crowd = Crowd(self.nodes[:2], "leased", ["cooling"]).run(60)
        self.assertEqual(crowd.wrong, [])
        used = sum(crowd.admitted.values())
        self.assertEqual(used, 360)
        harness.wait_until(lambda: self.nodes[2].left("cooling", "leased") == LEASED_LIMIT - used,
                           "only what was used is charged")

    def test_a_node_that_ends_gives_its_leased_units_back(self):
        with Node("leaver", self.redis.url, POLICIES) as leaver:
            crowd = Crowd([leaver], "leased", ["left-behind"], clients=2).run(150)
            self.assertEqual(crowd.wrong, [])
            self.assertEqual(leaver.stop(), 0)
        self.assertEqual(self.nodes[0].left("left-behind", "leased"), LEASED_LIMIT - 300)

    def test_a_node_that_is_killed_takes_nothing_from_the_strict_limits(self):
        with Node("victim", self.redis.url, POLICIES) as victim:
            self.assertEqual(Crowd([victim], "strict", ["widow"], clients=2).run(5).admitted, {"widow": 10})
            victim.stop(signal.SIGKILL)
        for node in self.nodes:
            self.assertEqual(node.left("widow", "strict"), LIMIT - 10)


class Outage(Case):
    def test_a_killed_redis_is_stood_in_for_as_each_policy_says_and_charged_afterwards(self):
        with (Redis("--appendonly", "yes", "--appendfsync", "always") as server,
              nodes(3, server.url, POLICIES, deadline=OUTAGE_DEADLINE) as made):
            wait_until_acquainted(server, 3)
            self.assertEqual(Crowd(made, "strict", ["before"]).run(2).admitted, {"before": 12})
            server.kill()
            for node in made:
                self.check_outage(node)
            slowest = self.check_stand_ins(made)
            server.start()
            ready_again(made)
            for node in made:
                harness.wait_until(lambda n=node: n.told("store_up"), "store_up")
                self.assertEqual((len(node.told("store_down")), len(node.told("store_up"))), (1, 1))
                self.assertEqual(node.left("before", "strict"), LIMIT - 12)
            # All of them had admitted all there was between them; and what was open, more.
            for operation in ("local", "open"):
                harness.wait_until(lambda o=operation: [n.left("away", o) for n in made] == [0, 0, 0],
                                   f"what {operation} admitted during the outage is charged")
            harness.wait_until(lambda: [n.left("little", "local") for n in made] == [LIMIT - 6] * 3, "and no more")
            self.assert_shared(made, "closed", ["away"])
            self.assert_shared(made)
        print(f"killed: the slowest answer took {slowest * 1000:.0f} ms")

    def check_outage(self, node):
        """It is told by /readyz and by a notice."""
        harness.wait_until(lambda: not node.is_ready(), f"{node.name} says it is not ready")
        answer = node.call("GET", "/readyz")
        self.assertEqual(answer.status, 503)
        self.assertIn("store: redis 127.0.0.1", answer.json["reasons"][0])
        harness.wait_until(lambda: node.told("store_down"), "store_down")
        self.assertEqual(node.call("GET", "/healthz").status, 200)

    def check_stand_ins(self, made):
        slowest = 0
        for node in made:
            for operation, expected in (("local", LIMIT // 3), ("open", 80), ("closed", 0)):
                crowd = Crowd([node], operation, ["away"], clients=2).run(40)
                self.assert_well(crowd)
                self.assertEqual(crowd.admitted, {"away": expected}, f"{operation} on {node.name}")
                slowest = max(slowest, crowd.slowest)
            self.assertEqual([node.check("little", "local")["allowed"] for _ in range(2)], [True, True])
            denied = node.check("away", "closed")
            self.assertIn("store", denied["reason"].lower() + denied.get("error", ""))
            self.assertGreater(denied["retry_after_ms"], 0)
        return slowest

    def test_a_paused_redis_keeps_nobody_waiting_and_what_was_admitted_is_charged(self):
        with Redis() as server, nodes(3, server.url, POLICIES, deadline=OUTAGE_DEADLINE) as made:
            wait_until_acquainted(server, 3)
            with Crowd(made, "local", ["busy"]).running() as crowd:
                harness.wait_until(lambda: crowd.asked > 100, "traffic")
                with server.paused():
                    for node in made:
                        harness.wait_until(lambda n=node: not n.is_ready(), f"{node.name} notices")
                    asked = crowd.asked
                    harness.wait_until(lambda: crowd.asked > asked + 300, "answers without Redis")
                    during = Crowd(made, "local", ["during"]).run(3)
                ready_again(made)
                asked = crowd.asked
                harness.wait_until(lambda: crowd.asked > asked + 300, "answers with it")
            self.assert_well(crowd)
            self.assert_well(during)
            self.assertEqual(during.admitted, {"during": 18})
            # Before the pause it admitted its limit; and during it each node its share of that, at most.
            self.assertTrue(LIMIT <= crowd.admitted["busy"] <= 2 * LIMIT, crowd.admitted)
            # Once: also what was asked just before nodes noticed, which Redis had in its queue.
            harness.wait_until(lambda: [n.left("during", "local") for n in made] == [LIMIT - 18] * 3, "they are charged")
            self.assert_shared(made)
        print(f"paused: the slowest of {crowd.asked} answers took {crowd.slowest * 1000:.0f} ms")

    def test_an_emptied_redis_starts_over_and_a_newcomer_still_shares(self):
        with Redis() as server, nodes(3, server.url, POLICIES) as made:
            with Crowd(made, "strict", ["busy"]).running() as crowd:
                harness.wait_until(lambda: crowd.asked > 100, "traffic")
                for _ in range(3):
                    asked = crowd.asked
                    server.do("FLUSHALL")
                    harness.wait_until(lambda a=asked: crowd.asked > a + 100, "answers")
                    server.do("SCRIPT", "FLUSH")
                    harness.wait_until(lambda a=asked: crowd.asked > a + 200, "answers")
            self.assert_well(crowd)
            self.assertTrue(LIMIT < crowd.admitted["busy"] <= 4 * LIMIT, crowd.admitted)
            self.assertEqual([node.told("store_down") for node in made], [[], [], []])
            self.assert_shared(made)
            wait_until_acquainted(server, 3)
            with Node("late", server.url, POLICIES) as late:
                self.assert_shared([*made, late], agents=["with the newcomer"])

    def test_a_node_that_was_cut_off_while_others_began_anew_says_so_and_shares_after_a_restart(self):
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(Redis())
            wire = stack.enter_context(Wire(server.port))
            apart = stack.enter_context(Node("apart", wire.url, POLICIES, deadline=OUTAGE_DEADLINE))
            wire.cut()
            harness.wait_until(lambda: not apart.is_ready(), "a node that is cut off")
            server.do("FLUSHALL")
            other = stack.enter_context(Node("other", server.url, POLICIES, deadline=OUTAGE_DEADLINE))
            wire.mend()
            harness.wait_until(lambda: apart.told("store_problem"), "a word about it")
            self.assertIn("another seed", apart.told("store_problem")[0]["text"])
            self.assertEqual(apart.stop(), 0)
            again = stack.enter_context(Node("apart", wire.url, POLICIES, deadline=OUTAGE_DEADLINE, data=apart.data))
            self.assert_shared([other, again])


    def test_a_redis_that_answers_but_refuses_every_check_counts_as_away(self):
        with Redis() as server, nodes(2, server.url, POLICIES, deadline=OUTAGE_DEADLINE) as made:
            wait_until_acquainted(server, 2)
            server.do("CONFIG", "SET", "min-replicas-to-write", "1")
            for node in made:
                self.check_outage(node)
                self.assertIn("NOREPLICAS ", node.told("store_down")[0]["text"])
                self.assertIn("headgate_store_up 0\n", node.manage("GET", "/metrics").body.decode())
            server.do("CONFIG", "SET", "min-replicas-to-write", "0")
            ready_again(made)
            self.assert_shared(made)
            self.assertEqual([len(node.told("store_down")) for node in made], [1, 1])

    def test_a_redis_without_memory_gives_no_used_up_limit_again(self):
        with Redis() as server, nodes(1, server.url, POLICIES, deadline=OUTAGE_DEADLINE) as (node,):
            wait_until_acquainted(server, 1)
            while node.check("spent", "strict")["allowed"]:
                pass
            server.do("CONFIG", "SET", "maxmemory", "1")
            for _ in range(20):
                spent = node.check("spent", "strict")
                self.assertEqual((spent["allowed"], spent.get("error")), (False, None), "as ever: the limit is exceeded")
                for operation in ("strict", "open", "local"):
                    fresh = node.check("fresh", operation)
                    self.assertEqual((fresh["allowed"], fresh.get("error")), (False, "too_many_keys"))
            self.assertTrue(node.is_ready())
            self.assertEqual(node.told("store_down"), [])
            server.do("CONFIG", "SET", "maxmemory", "0")
            self.assertTrue(node.check("fresh", "strict")["allowed"])


class First(Case):
    def test_a_node_that_knows_its_redis_serves_while_it_is_away(self):
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(Redis("--appendonly", "yes", "--appendfsync", "always"))
            first = stack.enter_context(Node("n1", server.url, POLICIES))
            self.assertTrue(first.check("a", "strict")["allowed"])
            self.assertEqual(first.stop(), 0)
            server.kill()
            again = stack.enter_context(Node("n1", server.url, POLICIES, data=first.data))
            self.assertTrue(again.check("a", "strict")["allowed"])
            self.assertFalse(again.is_ready())
            self.assertEqual(len(again.logged("Redis is away; serving without it until it is back")), 1)
            harness.wait_until(lambda: len(again.told("store_down")) == 1, "a word about it")
            server.start()
            ready_again([again])
            harness.wait_until(lambda: again.left("a", "strict") == LIMIT - 2, "both are charged in the same place")


if __name__ == "__main__":
    harness.main()
