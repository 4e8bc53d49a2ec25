#!/usr/bin/env python3
"""A token that is revoked or expires is worthless on open connections too: RESP, WebSocket, event streams."""

import asyncio
import json
import socket
import unittest

import harness
import websockets


class Wire:
    """A connection to a port, read line by line."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=harness.PATIENCE)
        self.reader = self.socket.makefile("rb")

    def send(self, text):
        self.socket.sendall(text.encode())

    def line(self):
        return self.reader.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.reader.close()
        self.socket.close()


class Revocation(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.server = harness.Server("--auth", "required")
        self.addCleanup(self.server.__exit__)

    def token(self, role="agent", **more):
        return self.server.manage("POST", "/api/admin/tokens", {"role": role, **more}).json

    def revoke(self, token):
        self.assertEqual(self.server.manage("DELETE", f"/api/admin/tokens/{token['id']}").status, 200)

    def test_resp_connections_are_refused_and_closed(self):
        kept = self.token(agent="kept")
        for revoked in True, False:
            token = self.token(agent="A", **({} if revoked else {"ttl_ms": 1500}))
            with Wire(self.server.ports["resp"]) as wire, Wire(self.server.ports["resp"]) as other:
                for each, secret in ((wire, token["secret"]), (other, kept["secret"])):
                    each.send(f"AUTH {secret}\r\n")
                    self.assertEqual(each.line(), b"+OK\r\n")
                wire.send("ECHO good\r\n")
                self.assertEqual((wire.line(), wire.line()), (b"$4\r\n", b"good\r\n"))
                if revoked:
                    self.revoke(token)

                def refused():
                    wire.send("PING\r\n")
                    return wire.line().startswith(b"-NOAUTH")
                if revoked:
                    self.assertTrue(refused())
                else:
                    harness.wait_until(refused, "the token to expire")
                self.assertEqual(wire.line(), b"", "closed")
                other.send("PING\r\n")
                self.assertEqual(other.line(), b"+PONG\r\n", "others' tokens are as good as before")

    async def test_websockets_are_closed(self):
        for ttl in None, 1500:
            token = self.token(agent="A", **({"ttl_ms": ttl} if ttl else {}))
            url = f"ws://127.0.0.1:{self.server.ports['http']}/v1/ws"
            async with websockets.connect(url, open_timeout=harness.PATIENCE) as connection:
                await connection.send(json.dumps({"type": "identify", "agent": "A", "token": token["secret"]}))
                self.assertEqual(json.loads(await connection.recv())["type"], "identified")
                await connection.send(json.dumps({"type": "x"}))
                self.assertEqual(json.loads(await connection.recv())["type"], "decision")
                if not ttl:
                    self.revoke(token)
                with self.assertRaises(websockets.ConnectionClosed) as closed:
                    await asyncio.wait_for(connection.recv(), harness.PATIENCE)
                self.assertEqual(closed.exception.rcvd.code, 1008)

    async def test_a_websocket_message_after_revocation_is_not_answered(self):
        token = self.token(agent="A")
        url = f"ws://127.0.0.1:{self.server.ports['http']}/v1/ws"
        async with websockets.connect(url, open_timeout=harness.PATIENCE) as connection:
            await connection.send(json.dumps({"type": "identify", "agent": "A", "token": token["secret"]}))
            await connection.recv()
            self.revoke(token)
            with self.assertRaises(websockets.ConnectionClosed):
                await connection.send(json.dumps({"type": "x"}))
                while json.loads(await asyncio.wait_for(connection.recv(), harness.PATIENCE)):
                    self.fail("a check was answered")

    def test_event_streams_end_and_tell_nothing_more(self):
        for role in "admin", "viewer":
            token = self.token(role)
            with Wire(self.server.ports["http"]) as wire:
                wire.send(f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token['secret']}\r\n\r\n")
                self.assertIn(b"200", wire.line())
                while wire.line() != b"\r\n":
                    pass
                self.server.manage("PUT", "/api/admin/emergency", {"reason": "seen"})
                while b"seen" not in wire.line():
                    pass
                self.revoke(token)
                self.server.manage("DELETE", "/api/admin/emergency")
                self.server.manage("PUT", "/api/admin/emergency", {"reason": "unseen"})
                self.assertNotIn(b"unseen", wire.reader.read())
                self.server.manage("DELETE", "/api/admin/emergency")


if __name__ == "__main__":
    harness.main()
