#!/usr/bin/env python3
"""Quotas that several nodes count in Redis: what was answered stays charged, whatever Redis forgets and whoever is lost."""

import contextlib
import signal
import unittest

import harness
from cluster_harness import Node, Redis, Wire, nodes, wait_until_acquainted
from postgres_harness import Postgres

SYNC = {"HEADGATE_DURABILITY": "sync"}
DEADLINE = "2s"  # a busy machine misses none
WHOLE = "headgate:{control}:quotas"  # the key that is there once everything is


def command(node, user="ana"):
    return node.call("POST", "/api/quotas/check", {"user": user, "type": "shell"}, token=node.token).json


def used(node, user="ana"):
    status = node.manage("GET", f"/api/quotas/user/{user}").json
    return tuple(status[period]["shell"]["used"] for period in ("daily", "weekly", "monthly"))


class Quotas(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def enter(self, *what):
        return [self.stack.enter_context(each) for each in what]

    def two_nodes(self, server, ledger):
        made = self.stack.enter_context(
            nodes(2, server.url, None, deadline=DEADLINE, env={**SYNC, "HEADGATE_DATABASE": ledger.url}))
        wait_until_acquainted(server, 2)
        return made

    def run_commands(self, node, count, user="ana"):
        for _ in range(count):
            answer = command(node, user)
            self.assertTrue(answer["allowed"], answer)

    def wait_until_whole(self, server):
        harness.wait_until(lambda: server.do("EXISTS", WHOLE) == 1, "all that was charged is back")

    def test_an_emptied_redis_gets_back_what_was_charged_once(self):
        server, ledger = self.enter(Redis(), Postgres())
        first, second = self.two_nodes(server, ledger)
        self.run_commands(first, 3)
        self.run_commands(second, 4)
        for _ in range(3):
            server.do("FLUSHALL")
            self.wait_until_whole(server)
            self.assertEqual([used(first), used(second)], [(7, 7, 7)] * 2)
        self.run_commands(second, 1)
        self.assertEqual(used(first), (8, 8, 8))

    def test_what_was_admitted_without_a_redis_that_comes_back_empty_is_charged_once(self):
        server, ledger = self.enter(Redis(), Postgres())
        first, second = self.two_nodes(server, ledger)
        self.run_commands(first, 3)
        server.kill()
        for node in (first, second):
            harness.wait_until(lambda n=node: not n.is_ready(), "a node that notices")
            self.run_commands(node, 2)
        server.start()
        self.wait_until_whole(server)
        self.assertEqual([used(first), used(second)], [(7, 7, 7)] * 2)

    def test_what_a_node_admitted_before_it_was_lost_is_charged_when_it_is_back(self):
        server, = self.enter(Redis())
        wire, = self.enter(Wire(server.port))
        node, = self.enter(Node("n1", wire.url, None, deadline=DEADLINE, env=SYNC))
        self.run_commands(node, 2)
        wire.cut()
        harness.wait_until(lambda: not node.is_ready(), "a node that is cut off")
        self.run_commands(node, 3)
        node.stop(signal.SIGKILL)
        wire.mend()
        again, = self.enter(Node("n1", wire.url, None, deadline=DEADLINE, env=SYNC, data=node.data))
        self.assertEqual(used(again), (5, 5, 5))
        self.run_commands(again, 1)
        self.assertEqual(used(again), (6, 6, 6))

    def test_a_refusal_by_the_share_of_one_node_says_so(self):
        server, ledger = self.enter(Redis(), Postgres())
        first, second = self.two_nodes(server, ledger)
        first.manage("PUT", "/api/quotas/user/bob", {"types": {"shell": {"daily": 10}}})
        server.kill()
        harness.wait_until(lambda: not first.is_ready(), "a node that notices")
        self.run_commands(first, 5, "bob")
        refused = command(first, "bob")
        self.assertEqual((refused["allowed"], refused["error"]), (False, "quota_exceeded"))
        self.assertEqual(refused["reason"], "Daily quota of 10 shell commands: while the store is away this server may "
                                            "admit 5 of them, and has")


if __name__ == "__main__":
    harness.main()
