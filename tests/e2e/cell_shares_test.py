#!/usr/bin/env python3
"""An agent that makes up sessions fills its own share of the cells, not the store."""

import unittest

import harness

POLICIES = """
policies:
  - {id: by-session, match: {operations: [run]}, key: [agent, session], limit: {strategy: fixed_window, limit: 9, window: 24h}}
  - {id: by-agent, match: {operations: [walk]}, key: [agent], limit: {strategy: fixed_window, limit: 9, window: 24h}}
"""
AT_ONCE = 500


class CellShares(unittest.TestCase):
    def serve(self, **settings):
        env = {f"HEADGATE_STORE_{name.upper()}": str(value) for name, value in settings.items()}
        server = harness.Server("--auth", "required", policies=POLICIES, env=env)
        self.addCleanup(server.__exit__)
        return server

    def token(self, server, agent):
        made = server.manage("POST", "/api/admin/tokens", {"role": "agent", **({"agent": agent} if agent else {})})
        self.assertEqual(made.status, 201, made.body)
        return made.json["secret"]

    def flood(self, server, token, sessions):
        """The decisions on checks that each name another session."""
        decisions = []
        for first in range(0, sessions, AT_ONCE):
            checks = [{"operation": "run", "session": f"s{n}"} for n in range(first, first + AT_ONCE)]
            decisions += server.call("POST", "/v1/check/batch", {"checks": checks}, token=token).json["decisions"]
        return decisions

    def test_made_up_sessions_take_no_more_than_the_agents_share(self):
        server = self.serve(max_cells=3000, max_cells_per_agent=600)
        liar = self.token(server, "liar")
        decisions = self.flood(server, liar, 4000)
        self.assertEqual(sum(decision["allowed"] for decision in decisions), 600)
        self.assertEqual(decisions[-1]["error"], "too_many_keys")
        self.assertEqual(decisions[-1]["reason"], "No room for a new key: this agent has as many as one agent may have")

        # Others go on, and so does what the agent has already.
        honest = self.token(server, "honest")
        self.assertTrue(all(decision["allowed"] for decision in self.flood(server, honest, 500)))
        for n in range(200):
            new = self.token(server, f"new-{n}")
            answer = server.call("POST", "/v1/check", {"operation": "walk"}, token=new).json
            self.assertTrue(answer["allowed"], answer)
        again = server.call("POST", "/v1/check", {"operation": "run", "session": "s0"}, token=liar).json
        self.assertTrue(again["allowed"], again)

        def told():
            alerts = server.manage("GET", "/api/alerts").json["alerts"]
            return [alert for alert in alerts if alert["kind"] == "cells_full" and alert.get("agent") == "liar"]

        (alert,) = harness.wait_until(told, "an alert that names the agent")
        self.assertIn("store.max_cells_per_agent", alert["text"])
        metrics = server.manage("GET", "/metrics").body.decode()
        self.assertRegex(metrics, r"headgate_cells_refused_total 3400\b")

    def test_a_token_that_makes_up_agents_has_one_share(self):
        server = self.serve(max_cells=3000, max_cells_per_agent=600)
        unbound, other = self.token(server, ""), self.token(server, "")
        for sessions in range(0, 2000, AT_ONCE):
            checks = [{"operation": "run", "agent": f"a{n // 100}", "session": f"s{n}"}
                      for n in range(sessions, sessions + AT_ONCE)]
            decisions = server.call("POST", "/v1/check/batch", {"checks": checks}, token=unbound).json["decisions"]
            self.assertEqual(sum(decision["allowed"] for decision in decisions), max(0, min(AT_ONCE, 600 - sessions)))
        with server.connect("resp") as wire:
            wire.send(f"AUTH {unbound}\r\nHG.CHECK another run SESSION s\r\n")
            self.assertEqual((wire.line(), wire.line(), wire.line()), (b"+OK\r\n", b"*6\r\n", b":0\r\n"))

        def walks(token, **agent):
            return server.call("POST", "/v1/check", {"operation": "walk", **agent}, token=token).json["allowed"]
        self.assertFalse(walks(unbound, agent="yet-another"))
        self.assertTrue(walks(other, agent="yet-another"), "another token has a share of its own")
        self.assertTrue(walks(self.token(server, "bound")))
        gateway = server.manage("POST", "/api/admin/tokens", {"role": "gateway"}).json["secret"]
        self.assertTrue(walks(gateway, agent="a0"), "whom a gateway speaks for has a share")

    def test_buckets_that_a_caller_names_are_of_the_share_of_its_token(self):
        server = self.serve(max_cells=6000, max_cells_per_agent=600)

        def buckets(token, prefix):
            with server.connect("resp") as wire:
                wire.send(f"AUTH {token}\r\n" + "".join(f"CL.THROTTLE {prefix}{n} 0 1 86400\r\n" for n in range(1000)))
                self.assertEqual(wire.line(), b"+OK\r\n")
                return sum([wire.line() for _ in range(6)][1] == b":0\r\n" for _ in range(1000))
        unbound, other = self.token(server, ""), self.token(server, "")
        self.assertEqual(buckets(unbound, "u"), 600)
        self.assertEqual(buckets(other, "v"), 600)
        self.assertEqual(buckets(other, "u"), 0, "tokens without an agent share their keys")
        self.assertEqual(buckets(self.token(server, "bound"), "u"), 600)

    def test_the_share_is_a_tenth_by_default(self):
        server = self.serve(max_cells=60000)
        decisions = self.flood(server, self.token(server, "liar"), 8000)
        self.assertEqual(sum(decision["allowed"] for decision in decisions), 6000)

    def test_the_share_outlives_a_restart(self):
        server = self.serve(max_cells=3000, max_cells_per_agent=600)
        token = self.token(server, "liar")
        self.flood(server, token, 1000)
        self.assertEqual(server.stop(), 0)
        env = {"HEADGATE_STORE_MAX_CELLS": "3000", "HEADGATE_STORE_MAX_CELLS_PER_AGENT": "600"}
        with harness.Server("--auth", "required", policies=POLICIES, data=server.data, env=env) as after:
            answer = after.call("POST", "/v1/check", {"operation": "run", "session": "new"}, token=token).json
            self.assertEqual((answer["allowed"], answer["error"]), (False, "too_many_keys"))
            self.assertTrue(after.call("POST", "/v1/check", {"operation": "run", "session": "s0"}, token=token).json["allowed"])


if __name__ == "__main__":
    harness.main()
