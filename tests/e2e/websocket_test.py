#!/usr/bin/env python3
"""WebSocket, tested with Debian's Python client."""

import asyncio
import json
import os
import socket
import unittest

import harness
import websockets

KEY = "dGhlIHNhbXBsZSBub25jZQ=="  # of the standard's example
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
    async def ask(connection, **message):
        await connection.send(json.dumps(message))
        return await WebSocket.hear(connection)

    @staticmethod
    async def hear(connection):
        return json.loads(await asyncio.wait_for(connection.recv(), harness.PATIENCE))

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
        async with self.connect() as connection:
            self.assertEqual((await self.ask(connection, type="write", id=1))["type"], "error")
            await self.ask(connection, type="identify", agent="A")
            for bad in ("{", "[]", '{"id": 1}', '{"type": "write", "nothing": 1}', '{"type": "write", "agent": "B"}'):
                await connection.send(bad)
                self.assertEqual((await self.hear(connection))["type"], "error", bad)
            self.assertEqual((await self.ask(connection, type="write", id=2))["type"], "decision")

    async def test_pings_are_answered(self):
        async with self.connect() as connection:
            await asyncio.wait_for(await connection.ping(), harness.PATIENCE)

    async def test_the_server_says_goodbye(self):
        async with self.connect() as connection:
            await self.ask(connection, type="identify", agent="A")
            stopped = asyncio.get_running_loop().run_in_executor(None, self.server.stop)
            with self.assertRaises(websockets.ConnectionClosed):
                await asyncio.wait_for(connection.recv(), harness.PATIENCE)
            self.assertEqual(connection.close_code, 1001)
            self.assertEqual(await stopped, 0)

    async def test_a_plain_request_is_told_what_it_takes(self):
        answer = self.server.call("GET", "/v1/ws")
        self.assertEqual((answer.status, answer.headers["Upgrade"]), (426, "websocket"))
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": KEY}
        answer = self.server.call("GET", "/v1/ws", headers={**upgrade, "Sec-WebSocket-Version": "8"})
        self.assertEqual((answer.status, answer.headers["Sec-WebSocket-Version"]), (426, "13"))
        answer = self.server.call("GET", "/v1/ws",
                                  headers={**upgrade, "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "short"})
        self.assertEqual((answer.status, answer.json["error"]), (400, "invalid_request"))
        answer = self.server.call("GET", "/v1/ws", headers={**upgrade, "Sec-WebSocket-Version": "13",
                                                            "Origin": "http://evil.example"})
        self.assertEqual((answer.status, answer.json["error"]), (403, "bad_origin"))

    async def test_what_the_protocol_forbids_closes_with_its_code(self):
        for message, code in ((b"binary", 1003), ("x" * 70_000, 1009)):
            async with self.connect() as connection:
                await connection.send(message)
                with self.assertRaises(websockets.ConnectionClosed):
                    await asyncio.wait_for(connection.recv(), harness.PATIENCE)
                self.assertEqual(connection.close_code, code)

    async def test_messages_may_come_in_pieces(self):
        async with self.connect() as connection:
            await connection.send(['{"type": "ident', 'ify", "agent": "', "ä", '"}'])
            self.assertEqual(await self.hear(connection), {"type": "identified", "agent": "ä"})

    async def test_leases_are_settled_and_renewed(self):
        async with self.connect() as connection:
            await self.ask(connection, type="identify", agent="A")
            lease = (await self.ask(connection, type="write", id=1, cost=2, hold=True))["lease"]
            self.assertEqual((await self.ask(connection, type="renew", id=2, lease=lease))["type"], "renewed")
            settled = await self.ask(connection, type="settle", id=3, lease=lease, cost=1)
            self.assertEqual((settled["type"], settled["id"], settled["costs"]), ("settled", 3, {"requests": 1}))
            self.assertEqual((await self.ask(connection, type="write", id=4))["remaining"], 3)

    async def test_idle_connections_are_small_and_cost_others_nothing(self):
        many = 1000
        before = self.resident()
        sockets = [self.identified(f"agent-{n}") for n in range(many)]
        self.addCleanup(lambda: [socket.close() for socket in sockets])
        each = 64 if os.environ.get("HEADGATE_SANITIZED") else 16  # a sanitizer keeps books of its own
        self.assertLess((self.resident() - before) / many, each * 1024)
        self.assertTrue(self.server.check()["allowed"])

    def resident(self):
        with open(f"/proc/{self.server.process.pid}/status", encoding="utf-8") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

    def identified(self, agent):
        """A connection that has said who it is, by hand: a thousand clients would be slow."""
        connection = socket.create_connection(("127.0.0.1", self.server.ports["http"]), timeout=harness.PATIENCE)
        connection.sendall(("GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n").encode())
        message = json.dumps({"type": "identify", "agent": agent}).encode()
        connection.sendall(bytes([0x81, 0x80 | len(message), 0, 0, 0, 0]) + message)  # masked with zeros
        heard = b""
        while b"identified" not in heard:
            heard += connection.recv(4096) or self.fail(heard)
        return connection


class Guarded(unittest.IsolatedAsyncioTestCase):
    async def test_the_token_may_come_with_the_first_message(self):
        with harness.Server("--auth", "required") as server:
            secret = server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "A"}).json["secret"]
            url = f"ws://127.0.0.1:{server.ports['http']}/v1/ws"
            async with websockets.connect(url, open_timeout=harness.PATIENCE) as connection:
                ask = WebSocket.ask
                self.assertEqual((await ask(connection, type="identify", agent="A"))["error"], "unauthorized")
                self.assertEqual((await ask(connection, type="identify", agent="B", token=secret))["error"], "wrong_agent")
                self.assertEqual((await ask(connection, type="identify", token=secret))["agent"], "A")
                self.assertEqual((await ask(connection, type="write", id=1))["type"], "decision")
            with_header = websockets.connect(url, open_timeout=harness.PATIENCE,
                                             extra_headers={"Authorization": f"Bearer {secret}"})
            async with with_header as connection:
                self.assertEqual((await WebSocket.ask(connection, type="identify", agent="A"))["type"], "identified")


if __name__ == "__main__":
    harness.main()
