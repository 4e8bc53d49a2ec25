#!/usr/bin/env python3
"""The bounds of what comes in over HTTP, RESP and WebSocket, one line each: what is just inside is taken, what is just
outside is refused in the way that the line says. The bounds of what is kept inside are in tests/unit/bounds."""

import asyncio
import json
import unittest

import harness
import websockets

NAME = 512
BODY = 1 << 20
QUOTA_BODY = 64 << 10
COMMAND = {"user": "ana", "type": "shell", "peek": True}
EXECUTION = {"user_id": "ana", "command_type": "shell"}


def check(**fields):
    return {"agent": "A", "operation": "run", **fields}


def batch(count):
    return {"checks": [check()] * count}


def padded(size, fields=None):
    """A check, or other fields, in so many bytes."""
    text = json.dumps(fields or check())
    return text + " " * (size - len(text))


HTTP = [
    # what, method, path, inside, outside, status, text of the answer
    ("a name", "POST", "/v1/check", check(session="s" * NAME), check(session="s" * (NAME + 1)), 400,
     "at most 512 bytes"),
    ("attributes", "POST", "/v1/check", check(context={f"a{i}": 1 for i in range(64)}),
     check(context={f"a{i}": 1 for i in range(65)}), 400, "at most 64"),
    ("costs", "POST", "/v1/check", check(cost={f"c{i}": 1 for i in range(8)}),
     check(cost={f"c{i}": 1 for i in range(9)}), 400, "at most 8"),
    ("a cost", "POST", "/v1/check", check(cost={"x": 1e12}), check(cost={"x": 1e13}), 400, "between 0 and 1000000000000"),
    ("a body", "POST", "/v1/check", padded(BODY), padded(BODY + 1), 413, ""),
    ("a quota check", "POST", "/api/quotas/check", padded(QUOTA_BODY, COMMAND), padded(QUOTA_BODY + 1, COMMAND), 413,
     "at most 65536 bytes, got 65537"),
    ("an execution", "POST", "/api/quotas/executions", padded(QUOTA_BODY, EXECUTION),
     padded(QUOTA_BODY + 1, EXECUTION), 413, "at most 65536 bytes, got 65537"),
    ("a batch", "POST", "/v1/check/batch", batch(1000), batch(1001), 400, "1000"),
    ("depth of JSON", "POST", "/api/admin/tokens", {"role": "agent"}, "[" * 500 + "]" * 500, 400, "deep"),
    ("a token's name", "POST", "/api/admin/tokens", {"role": "agent", "name": "n" * 200},
     {"role": "agent", "name": "n" * 201}, 400, "200"),
    ("a token's life", "POST", "/api/admin/tokens", {"role": "agent", "ttl_ms": 3650 * 86400000},
     {"role": "agent", "ttl_ms": 3650 * 86400000 + 1}, 400, "ttl_ms"),
    ("a page of the audit log", "GET", "/api/admin/audit?limit=1000", None, "/api/admin/audit?limit=1001", 400, "1000"),
    ("points of the history", "GET", "/api/history?step=60000", None, "/api/history?since=0&step=1000", 400, "at most 10000 points"),
    ("a page of executions", "GET", "/api/quotas/executions?limit=10000", None, "/api/quotas/executions?limit=10001",
     400, "10000"),
    ("exempt agents", "PUT", "/api/admin/rate-limits/whitelist", {"agents": ["dashboard"]},
     {"agents": [f"a{i}" for i in range(100001)]}, 400, ""),
    ("a reason of the emergency throttle", "PUT", "/api/admin/emergency", {"reason": "r" * 500},
     {"reason": "r" * 501}, 400, "500"),
]

# What a RESP connection is told when it sends this; it is closed then.
RESP = [
    ("arguments", b"*1025\r\n", b"-ERR Protocol error"),
    ("an argument", b"*1\r\n$65537\r\n", b"-ERR Protocol error"),
    ("an inline command", b"x" * 70000, b"-ERR Protocol error"),
]


class Bounds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def test_http(self):
        for what, method, path, inside, outside, status, text in HTTP:
            with self.subTest(what):
                fine = self.server.manage(method, path, inside)
                self.assertLess(fine.status, 300, fine.body[:300])
                if method == "GET":
                    refused = self.server.manage(method, outside)
                else:
                    refused = self.server.manage(method, path, outside)
                self.assertEqual(refused.status, status, refused.body[:300])
                self.assertIn(text, refused.json["message"])

    def raw(self, port, data):
        """Everything that comes back until the server closes."""
        with self.server.connect(port) as peer:
            peer.send(data)
            return peer.rest()

    def test_heads(self):
        start = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        for what, more, status in (("its bytes, inside", b"X: " + b"x" * 16000 + b"\r\n", b"200"),
                                   ("its bytes, outside", b"X: " + b"x" * 17000 + b"\r\n", b"431"),
                                   ("its fields, inside", b"X: x\r\n" * 98, b"200"),
                                   ("its fields, outside", b"X: x\r\n" * 99, b"431")):
            with self.subTest(what):
                self.assertEqual(self.raw("http", start + more + b"\r\n").split()[1], status)

    def test_resp(self):
        for what, sent, begins in RESP:
            with self.subTest(what):
                self.assertTrue(self.raw("resp", sent).startswith(begins))

    def test_websocket_messages(self):
        async def close_code(size):
            url = f"ws://127.0.0.1:{self.server.ports['http']}/v1/ws"
            async with websockets.connect(url, open_timeout=harness.PATIENCE) as connection:
                await connection.send("x" * size)
                try:
                    return json.loads(await asyncio.wait_for(connection.recv(), harness.PATIENCE))["type"]
                except websockets.ConnectionClosed:
                    return connection.close_code

        self.assertEqual(asyncio.run(close_code(64 << 10)), "error")
        self.assertEqual(asyncio.run(close_code((64 << 10) + 1)), 1009)


if __name__ == "__main__":
    harness.main()
