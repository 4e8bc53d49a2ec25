#!/usr/bin/env python3
"""WebSocket, asked by Debian's Python client."""

import asyncio
import json
import unittest

import harness
import websockets

POLICIES = """
policies:
  - {id: writes, match: {operations: [write]}, limit: 5/60s, escalation: {to: WARDEN, threshold: 2, time_window: 300s}}
"""


class WebSocket(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.server = harness.Server(policies=POLICIES)
        self.addCleanup(self.server.__exit__)

    def connect(self):
        return websockets.connect(f"ws://127.0.0.1:{self.server.ports['http']}/v1/ws", open_timeout=harness.PATIENCE)

    @staticmethod
    async def ask(socket, **message):
        await socket.send(json.dumps(message))
        return await WebSocket.hear(socket)

    @staticmethod
    async def hear(socket):
        return json.loads(await asyncio.wait_for(socket.recv(), harness.PATIENCE))

    async def test_identify_check_warn_deny_and_escalate(self):
        async with self.connect() as warden, self.connect() as agent:
            self.assertEqual(await self.ask(warden, type="identify", agent="WARDEN"),
                             {"type": "identified", "agent": "WARDEN"})
            self.assertEqual(await self.ask(agent, type="identify", agent="A"), {"type": "identified", "agent": "A"})
            for n in range(3):
                decision = await self.ask(agent, type="write", id=n)
                self.assertEqual((decision["type"], decision["id"], decision["allowed"], decision["remaining"]),
                                 ("decision", n, True, 4 - n))
            warning = await self.ask(agent, type="check", operation="write", id="four")
            self.assertEqual((warning["type"], warning["policy_id"], warning["remaining"], warning["capacity"]),
                             ("rate_limit_warning", "writes", 1, 5))
            self.assertEqual((await self.hear(agent))["id"], "four")
            await self.ask(agent, type="write", id=5)
            for n in (6, 7):
                denied = await self.ask(agent, type="write", id=n)
                self.assertEqual((denied["type"], denied["id"], denied["policy_id"]), ("rate_limited", n, "writes"))
                self.assertGreater(denied["retry_after_ms"], 0)
                self.assertIn("tier", denied)
                self.assertIn("reason", denied)
            escalation = await self.hear(warden)
            self.assertEqual((escalation["type"], escalation["policy_id"], escalation["agent"]),
                             ("escalation", "writes", "A"))

    async def test_mistakes_are_told_and_the_connection_lives(self):
        async with self.connect() as socket:
            self.assertEqual((await self.ask(socket, type="write", id=1))["type"], "error")
            await self.ask(socket, type="identify", agent="A")
            for bad in ("{", "[]", '{"id": 1}', '{"type": "write", "nothing": 1}', '{"type": "write", "agent": "B"}'):
                await socket.send(bad)
                self.assertEqual((await self.hear(socket))["type"], "error", bad)
            self.assertEqual((await self.ask(socket, type="write", id=2))["type"], "decision")

    async def test_pings_are_answered(self):
        async with self.connect() as socket:
            await asyncio.wait_for(await socket.ping(), harness.PATIENCE)

    async def test_the_server_says_goodbye(self):
        async with self.connect() as socket:
            await self.ask(socket, type="identify", agent="A")
            stopped = asyncio.get_running_loop().run_in_executor(None, self.server.stop)
            with self.assertRaises(websockets.ConnectionClosed):
                await asyncio.wait_for(socket.recv(), harness.PATIENCE)
            self.assertEqual(socket.close_code, 1001)
            self.assertEqual(await stopped, 0)

    async def test_a_plain_request_is_told_what_it_takes(self):
        answer = self.server.call("GET", "/v1/ws")
        self.assertIn(answer.status, (400, 426))


if __name__ == "__main__":
    harness.main()
