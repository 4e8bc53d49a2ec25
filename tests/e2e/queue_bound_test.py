#!/usr/bin/env python3
"""A full queue of checks, and clients that leave it: in every protocol."""

import asyncio
import contextlib
import json
import threading
import unittest

import cluster_harness
import harness
import websockets

POLICIES = """
queue: {max_waiting: 2}
policies:
  - id: line
    match: {operations: [line]}
    key: []
    limit: {strategy: concurrency, max: 1, lease_ttl: 600s}
    behavior: queue
    max_wait: 500s
"""
FULL = "As many checks wait as may wait"


class Resp(harness.Peer):
    """One connection that says exactly what was sent and reads reply by reply."""

    def send(self, *commands):
        super().send("".join(command + "\r\n" for command in commands))

    def reply(self):
        line = self.line()[:-2].decode()
        if line[0] == "*":
            return [self.reply() for _ in range(int(line[1:]))]
        if line[0] == "$":
            size = int(line[1:])
            return None if size < 0 else self.read(size + 2)[:-2].decode()
        return int(line[1:]) if line[0] == ":" else line


class QueueBound(unittest.IsolatedAsyncioTestCase):
    def serve(self, redis=None):
        self.server = (cluster_harness.Node("n", redis.url, POLICIES) if redis else
                       harness.Server(policies=POLICIES, env={"HEADGATE_GATE_MAX_WAIT": "30s"}))
        self.addCleanup(self.server.__exit__)
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        return self.server

    def resp(self):
        return self.stack.enter_context(Resp(self.server.ports["resp"]))

    def waiting(self):
        return self.server.manage("GET", "/api/overview").json["waiting"]

    def fill(self):
        """One has the slot; as many wait as may."""
        holder = self.resp()
        holder.send("HG.CHECK A line")
        self.assertEqual(holder.reply()[0], 1)
        waiters = []
        for n in range(2):
            waiter = self.resp()
            waiter.send(f"HG.CHECK W{n} line")
            harness.wait_until(lambda n=n: self.waiting() == n + 1, "one more who waits")
            waiters.append(waiter)
        return waiters

    def ask_at_the_bound(self):
        asker = self.resp()
        asker.send("PING one", "HG.CHECK B line", "PING two", "HG.CHECK C line", "PING three", "QUIT")
        replies = [asker.reply() for _ in range(6)]
        self.assertEqual(asker.rest(), b"", "one command, one reply")
        self.assertEqual([replies[i] for i in (0, 2, 4, 5)], ["one", "two", "three", "+OK"])
        for denied in (replies[1], replies[3]):
            self.assertEqual((denied[0], denied[4]), (0, "line"))

    def test_resp_answers_each_command_once(self):
        self.serve()
        self.fill()
        for _ in range(3):
            self.ask_at_the_bound()
        self.assertEqual(self.waiting(), 2)

    def test_http_and_gate_say_that_the_line_is_full(self):
        self.serve()
        self.fill()
        answer = self.server.call("POST", "/v1/check", {"agent": "B", "operation": "line"})
        self.assertEqual((answer.status, answer.json["allowed"], answer.json["reason"]), (200, False, FULL))
        gate = self.server.call("GET", "/v1/gate", headers={"X-Headgate-Agent": "B", "X-Headgate-Operation": "line"})
        self.assertEqual((gate.status, gate.json.get("message")), (429, FULL), gate.body)

    async def test_websocket_says_so_once(self):
        self.serve()
        self.fill()
        url = f"ws://127.0.0.1:{self.server.ports['http']}/v1/ws"
        async with websockets.connect(url, open_timeout=harness.PATIENCE) as connection:
            await connection.send(json.dumps({"type": "identify", "agent": "B"}))
            self.assertEqual(json.loads(await asyncio.wait_for(connection.recv(), harness.PATIENCE))["type"],
                             "identified")
            for n in range(3):
                await connection.send(json.dumps({"type": "check", "operation": "line", "id": n}))
                told = json.loads(await asyncio.wait_for(connection.recv(), harness.PATIENCE))
                self.assertEqual((told["type"], told["id"], told.get("reason")), ("rate_limited", n, FULL), told)
            await connection.send(json.dumps({"type": "check", "operation": "other", "id": "last"}))
            told = json.loads(await asyncio.wait_for(connection.recv(), harness.PATIENCE))
            self.assertEqual((told["type"], told["id"]), ("decision", "last"))

    def test_with_redis_the_server_lives(self):
        with cluster_harness.Redis() as redis:
            self.serve(redis)
            self.fill()
            for _ in range(3):
                self.ask_at_the_bound()
            self.assertIsNone(self.server.process.poll())
            answer = self.server.call("POST", "/v1/check", {"agent": "B", "operation": "line"})
            self.assertEqual(answer.json["reason"], FULL)
            self.assertEqual(self.waiting(), 2)
            self.stack.close()
            self.assertEqual(self.server.stop(), 0)

    def test_who_leaves_makes_room_and_takes_no_slot(self):
        for leave in (Resp.close, Resp.reset):
            with self.subTest(leave=leave.__name__):
                self.serve()
                holder = self.server.check(agent="A", operation="line")
                ghosts = [self.resp() for _ in range(2)]
                for n, ghost in enumerate(ghosts):
                    ghost.send(f"HG.CHECK G{n} line")
                    harness.wait_until(lambda n=n: self.waiting() == n + 1, "one more who waits")
                for ghost in ghosts:
                    leave(ghost)
                harness.wait_until(lambda: self.waiting() == 0, "ghosts that have left the line")
                answers = []
                honest = threading.Thread(
                    target=lambda answers=answers: answers.append(self.server.check(agent="H", operation="line")))
                honest.start()
                harness.wait_until(lambda: self.waiting() == 1, "the honest one in line")
                self.server.call("DELETE", f"/v1/leases/{holder['lease']}")
                honest.join(harness.PATIENCE)
                self.assertTrue(answers[0]["allowed"])

    def test_who_leaves_while_redis_is_asked_takes_no_place_either(self):
        with cluster_harness.Redis() as redis:
            self.serve(redis)
            self.assertTrue(self.server.check(agent="A", operation="line")["allowed"])
            for n in range(20):
                with self.resp() as ghost:
                    ghost.send(f"HG.CHECK G{n} line")  # and is gone before Redis has answered, or after
            harness.wait_until(lambda: self.waiting() == 0, "ghosts that have left the line")


if __name__ == "__main__":
    harness.main()
