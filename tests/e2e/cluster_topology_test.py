#!/usr/bin/env python3
"""Several nodes over a Redis with a replica and sentinels, over a cluster, and over a misconfigured Redis."""

import contextlib
import unittest

import harness
from cluster_harness import PROMPT, Crowd, Node, Redis, cluster, nodes, sentinel, wait_until_acquainted

POLICIES = """
policies:
  - {id: runs, match: {operations: [run]}, key: [agent], limit: {strategy: sliding_window, limit: 60, window: 1h}}
  - {id: wide, match: {operations: [pay]}, key: [agent], limit: {strategy: sliding_window, limit: 60, window: 1h}}
  - {id: bucket, match: {operations: [pay]}, key: [agent], limit: {strategy: token_bucket, capacity: 90, refill_rate: 1/1h}}
  - {id: tight, match: {operations: [pay]}, key: [session], limit: {strategy: fixed_window, limit: 20, window: 24h}}
  - {id: two, match: {operations: [both]}, key: [agent], limit: {strategy: sliding_window, limit: 60, window: 1h}}
  - {id: more, match: {operations: [both]}, key: [agent], limit: {strategy: token_bucket, capacity: 60, refill_rate: 1/1h}}
  - {id: most, match: {operations: [both]}, key: [agent], limit: {strategy: gcra, max_burst: 59, count: 1, period: 1h}}
"""
LIMIT = 60
SECRET = "open-sesame-4711"


class Case(unittest.TestCase):
    def assert_shared(self, made, operation="run", agents=("fresh",)):
        crowd = Crowd(made, operation, agents).run(40)
        self.assertEqual(crowd.wrong, [])
        self.assertEqual(crowd.admitted, {agent: LIMIT for agent in agents})
        for node in made:
            self.assertEqual([node.left(agent, operation) for agent in agents], [0] * len(agents), node.name)


class Sentinels(Case):
    def test_nodes_follow_a_failover_by_themselves_and_agree(self):
        with contextlib.ExitStack() as stack:
            master = stack.enter_context(Redis())
            replica = stack.enter_context(Redis("--replicaof", "127.0.0.1", str(master.port), "--repl-diskless-sync-delay", "0"))
            harness.wait_until(lambda: replica.info()["master_link_status"] == "up", "a replica that follows")
            ports = [harness.free_port() for _ in range(2)]
            for port in ports:
                stack.enter_context(sentinel(port, master.port))
            url = "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in ports) + "/main"
            made = stack.enter_context(nodes(3, url, POLICIES, deadline="1s"))
            self.assert_shared(made)
            self.assertEqual(Crowd(made, "run", ["before"]).run(2).admitted, {"before": 12})
            wait_until_acquainted(master, 3)
            harness.wait_until(lambda: replica.info()["master_repl_offset"] == master.info()["master_repl_offset"],
                               "a replica that has it all")
            with Crowd(made, "run", ["busy"]).running() as crowd:
                harness.wait_until(lambda: crowd.asked > 100, "traffic")
                master.kill()
                for node in made:
                    harness.wait_until(lambda n=node: n.told("store_down"), f"{node.name} notices")
                asked = crowd.asked
                harness.wait_until(lambda: crowd.asked > asked + 300, "answers without a master")
                for node in made:
                    harness.wait_until(node.is_ready, f"{node.name} has found the new master")
            self.assertEqual(crowd.wrong, [])
            self.assertLess(crowd.slowest, PROMPT)
            self.assertTrue(LIMIT <= crowd.admitted["busy"] <= 2 * LIMIT, crowd.admitted)
            self.assertEqual(replica.info()["role"], "master")
            self.assertEqual([node.left("before", "run") for node in made], [LIMIT - 12] * 3)
            self.assert_shared(made, agents=["after"])


class Cluster(Case):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.servers = cls.stack.enter_context(cluster(3))
        url = "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in cls.servers[:2])
        cls.nodes = cls.stack.enter_context(nodes(3, url, POLICIES))

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def test_limits_are_shared_whichever_slots_their_keys_are_in(self):
        self.assert_shared(self.nodes, "run", [f"k{i}" for i in range(3)])
        self.assertTrue(all(any(key.startswith(b"headgate:") for key in server.do("KEYS", "*"))
                            for server in self.servers), "no server without a cell")

    def test_a_check_of_several_slots_admits_the_limit_under_concurrency(self):
        # All three policies have room for as many: were one charged for a check that another denies, fewer would pass.
        crowd = Crowd(self.nodes, "both", ["many"]).run(40)
        self.assertEqual(crowd.wrong, [])
        self.assertLessEqual(crowd.admitted["many"], LIMIT)
        # Two that meet at the last unit may both be denied, for the moment in which each has what the other lacks.
        rest = Crowd(self.nodes, "both", ["many"], clients=1).run(LIMIT)
        self.assertEqual(crowd.admitted["many"] + rest.admitted["many"], LIMIT)

    def test_a_denial_by_one_policy_charges_none_of_the_others(self):
        def pay(node, agent):
            return node.check(agent, "pay", session="s")

        for agent in ("p1", "p2", "p3"):
            first = self.nodes[0].check(agent, "pay", session=f"own {agent}")
            self.assertTrue(first["allowed"])
        admitted = sum(pay(self.nodes[i % 3], "p1")["allowed"] for i in range(30))
        self.assertEqual(admitted, 20)
        denied = pay(self.nodes[1], "p2")
        self.assertEqual((denied["allowed"], denied["policy_id"]), (False, "tight"))
        for agent, used in (("p1", 21), ("p2", 1), ("p3", 1)):
            for node in self.nodes:
                looked = node.manage("POST", "/api/admin/policies/explain",
                                     {"agent": agent, "operation": "pay", "session": "nobody's"}).json
                left = {each["id"]: each for each in looked["policies"]}
                self.assertEqual(self.remaining(left["wide"]), 60 - used, (agent, looked))
                self.assertEqual(self.remaining(left["bucket"]), 90 - used, (agent, looked))

    @staticmethod
    def remaining(explained):
        return explained["cells"][0]["remaining"] + 1  # which is without the check that is explained


class Trouble(Case):
    def refused(self, url):
        """What is said by a server that does not start."""
        with self.assertRaises(AssertionError) as caught, Node("n1", url, POLICIES, deadline="200ms"):
            pass
        said = str(caught.exception)
        self.assertIn("the server ended with 1", said)
        return said

    def test_a_wrong_password_is_named_and_not_shown(self):
        with Redis("--requirepass", SECRET) as server:
            said = self.refused(f"redis://:{SECRET}-not@127.0.0.1:{server.port}")
            self.assertIn("WRONGPASS", said)
            self.assertNotIn(SECRET, said)
            said = self.refused(server.url)
            self.assertIn("NOAUTH", said)
            with Node("n1", f"redis://:{SECRET}@127.0.0.1:{server.port}", POLICIES) as node:
                self.assertTrue(node.check()["allowed"])
                self.assertNotIn(SECRET, "".join(node.log + node.banner))

    def test_a_first_start_without_redis_is_refused(self):
        port = harness.free_port()
        said = self.refused(f"redis://127.0.0.1:{port}")
        self.assertIn("Redis must be there when a server first meets it", said)
        self.assertIn(f"127.0.0.1:{port}", said)

    def test_a_key_of_another_type_is_named_once_and_stood_in_for(self):
        with Redis() as server, nodes(2, server.url, POLICIES) as made:
            self.assertTrue(made[0].check("A")["allowed"])
            (cell,) = server.do("KEYS", "headgate:c:*")
            server.do("DEL", cell)
            server.do("RPUSH", cell, "not ours")
            crowd = Crowd(made, "run", ["A"]).run(20)
            self.assertEqual(crowd.wrong, [])
            self.assertGreater(crowd.admitted["A"], 0)
            for node in made:
                (line,) = harness.wait_until(lambda n=node: n.logged("WRONGTYPE"), "it is named")
                self.assertIn(cell.decode(), line)
                self.assertTrue(node.is_ready())
            server.do("DEL", cell)
            self.assert_shared(made)

    def test_a_redis_without_memory_is_named_once_and_admits_nothing_new(self):
        with Redis() as server, nodes(2, server.url, POLICIES) as made:
            self.assertTrue(made[0].check("A")["allowed"])
            server.do("CONFIG", "SET", "maxmemory", "1")
            crowd = Crowd(made, "run", ["B"]).run(60)
            self.assertEqual(crowd.wrong, [])
            self.assertEqual(crowd.admitted.get("B", 0), 0)
            for node in made:
                harness.wait_until(lambda n=node: n.logged("OOM"), "it is named")
                self.assertEqual(len(node.logged("store_problem")), 1, node.log)
                (alert,) = harness.wait_until(lambda n=node: n.told("store_problem"), "an alert")
                self.assertIn("OOM", alert["text"])
            server.do("CONFIG", "SET", "maxmemory", "0")
            for node in made:
                harness.wait_until(node.is_ready, "it is over")
            self.assert_shared(made)


if __name__ == "__main__":
    harness.main()
