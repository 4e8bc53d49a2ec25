#!/usr/bin/env python3
"""A token that is revoked or expires is refused on open connections too (RESP, WebSocket, event streams), and for
checks that wait already."""

import asyncio
import json
import threading
import unittest

import cluster_harness
import harness
import websockets


LIFE_MS = 5000  # of tokens that expire: enough to use each once before, on a busy machine too


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
            token = self.token(agent="A", **({} if revoked else {"ttl_ms": LIFE_MS}))
            with self.server.connect("resp") as wire, self.server.connect("resp") as other:
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

    def test_idle_resp_connections_are_told_and_closed(self):
        kept = self.token(agent="kept")
        for life in {}, {"ttl_ms": LIFE_MS}:
            token = self.token(agent="A", **life)
            with self.server.connect("resp") as wire, self.server.connect("resp") as other:
                for each, secret in ((wire, token["secret"]), (other, kept["secret"])):
                    each.send(f"AUTH {secret}\r\n")
                    self.assertEqual(each.line(), b"+OK\r\n")
                if not life:
                    self.revoke(token)
                self.assertTrue(wire.line().startswith(b"-NOAUTH"))
                self.assertEqual(wire.line(), b"", "closed")
                other.send("PING\r\n")
                self.assertEqual(other.line(), b"+PONG\r\n", "others' tokens are as good as before")

    async def test_websockets_are_closed(self):
        for ttl in None, LIFE_MS:
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
            with self.server.connect("http") as wire:
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
                self.assertNotIn(b"unseen", wire.rest())
                self.server.manage("DELETE", "/api/admin/emergency")


class Waiter:
    """A check that waits, by one protocol; ended() is how the server has ended it."""

    def __init__(self, server, protocol, secret):
        self.protocol = protocol
        self.peer = server.connect("resp" if protocol == "resp" else "http")
        bearer = f"Host: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n"
        if protocol == "resp":
            self.peer.send(f"AUTH {secret}\r\n")
            self.peer.line()
            self.peer.send("HG.CHECK T line\r\nPING\r\n")
        elif protocol == "http":
            body = json.dumps({"agent": "T", "operation": "line", "max_wait_ms": 400_000})
            self.peer.send(f"POST /v1/check HTTP/1.1\r\n{bearer}Content-Length: {len(body)}\r\n\r\n{body}")
        elif protocol == "gate":
            self.peer.send(f"GET /v1/gate HTTP/1.1\r\n{bearer}X-Headgate-Agent: T\r\nX-Headgate-Operation: line\r\n\r\n")
        else:
            self.peer.send(f"GET /v1/ws HTTP/1.1\r\n{bearer}Upgrade: websocket\r\nConnection: Upgrade\r\n"
                           "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
            while self.peer.line().strip():
                pass
            self.say({"type": "identify", "agent": "T"})
            assert b"identified" in self.frame()[1]
            self.say({"type": "check", "operation": "line"})

    def say(self, message):
        text = json.dumps(message).encode()
        self.peer.send(bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text)

    def frame(self):
        head = self.peer.read(2)
        return head[0] & 0x0F, self.peer.read(head[1])

    def ended(self):
        if self.protocol == "resp":
            return self.peer.line().split()[0], self.peer.rest()
        if self.protocol == "websocket":
            opcode, payload = self.frame()
            return opcode, int.from_bytes(payload[:2], "big")
        return int(self.peer.line().split()[1])


UNAUTHENTICATED = {"http": 401, "gate": 401, "resp": (b"-NOAUTH", b""), "websocket": (8, 1008)}


class WaitingChecks(unittest.TestCase):
    POLICIES = """
policies:
  - id: line
    match: {operations: [line]}
    key: []
    limit: {strategy: concurrency, max: 1, lease_ttl: 600s}
    behavior: queue
    max_wait: 500s
"""

    def serve(self, redis=None):
        env = {"HEADGATE_AUTH": "required", "HEADGATE_GATE_MAX_WAIT": "500s"}
        server = (cluster_harness.Node("n", redis.url, self.POLICIES, env=env) if redis
                  else harness.Server(policies=self.POLICIES, env=env))
        self.addCleanup(server.__exit__)
        return server

    def check(self, server, token):
        return server.call("POST", "/v1/check", {"operation": "line"}, token=token["secret"]).json

    def line_up(self, server, *protocols, **life):
        """The slot is held; a check of a token waits by each protocol, and behind them one of another token."""
        def made(**bound):
            return server.manage("POST", "/api/admin/tokens", {"role": "agent", **bound}).json

        def waiting(count):
            return lambda: server.manage("GET", "/api/overview").json["waiting"] == count
        kept, token = made(agent="K"), made(agent="T", **life)
        holder = self.check(server, kept)
        self.assertTrue(holder["allowed"])
        waiters = [Waiter(server, protocol, token["secret"]) for protocol in protocols]
        for waiter in waiters:
            self.addCleanup(waiter.peer.close)
        harness.wait_until(waiting(len(waiters)), "checks that wait")
        answers = []
        behind = threading.Thread(target=lambda: answers.append(self.check(server, kept)))
        behind.start()
        harness.wait_until(waiting(len(waiters) + 1), "another behind them")

        def finish():
            """The slot goes to the one behind, since those before it have taken nothing."""
            server.call("DELETE", f"/v1/leases/{holder['lease']}", token=kept["secret"])
            behind.join(harness.PATIENCE)
            self.assertTrue(answers[0]["allowed"])
            server.call("DELETE", f"/v1/leases/{answers[0]['lease']}", token=kept["secret"])
        return token, waiters, finish, waiting

    def revoked_before_its_turn(self, server):
        for protocol, ending in UNAUTHENTICATED.items():
            with self.subTest(protocol):
                token, (waiter,), finish, _ = self.line_up(server, protocol)
                server.manage("DELETE", f"/api/admin/tokens/{token['id']}")
                finish()
                self.assertEqual(waiter.ended(), ending)

    def test_a_check_of_a_revoked_token_is_not_admitted_when_its_turn_comes(self):
        self.revoked_before_its_turn(self.serve())

    def test_nor_with_a_shared_store(self):
        with cluster_harness.Redis() as redis:
            self.revoked_before_its_turn(self.serve(redis))

    def test_it_leaves_the_line_without_waiting_for_its_turn(self):
        server = self.serve()
        for protocol, ending in UNAUTHENTICATED.items():
            with self.subTest(protocol):
                token, (waiter,), finish, waiting = self.line_up(server, protocol)
                server.manage("DELETE", f"/api/admin/tokens/{token['id']}")
                self.assertEqual(waiter.ended(), ending)
                harness.wait_until(waiting(1), "its place to be free")
                finish()

    def test_a_check_of_a_token_that_expires_leaves_the_line(self):
        _, waiters, finish, _ = self.line_up(self.serve(), *UNAUTHENTICATED, ttl_ms=2 * LIFE_MS)
        for waiter, (protocol, ending) in zip(waiters, UNAUTHENTICATED.items()):
            with self.subTest(protocol):
                self.assertEqual(waiter.ended(), ending)
        finish()

    def test_a_command_that_waits_for_its_turn_is_not_started(self):
        for turn in True, False:  # whether its turn comes before the line is looked at
            with self.subTest(turn=turn), harness.Server("--set", "quotas.concurrent=1") as server:
                def quota(token, **more):
                    return server.call("POST", "/api/quotas/check", {"type": "shell", **more}, token=token["secret"])
                kept, token = (server.manage("POST", "/api/admin/tokens", {"role": "agent", "user": user}).json
                               for user in "KT")
                first = quota(kept).json
                answers = []
                waiter = threading.Thread(target=lambda: answers.append(quota(token, max_wait_ms=400_000)))
                waiter.start()
                harness.wait_until(lambda: server.manage("GET", "/api/quotas/queue").json["waiting"] == 1, "one in line")
                server.manage("DELETE", f"/api/admin/tokens/{token['id']}")
                if turn:
                    server.manage("DELETE", f"/api/quotas/runs/{first['run']}")
                waiter.join(harness.PATIENCE)
                self.assertEqual((answers[0].status, answers[0].json["error"]), (401, "unauthorized"))
                line = server.manage("GET", "/api/quotas/queue").json
                self.assertEqual((line["waiting"], line["running"]), (0, 0 if turn else 1))
                self.assertEqual(server.manage("GET", "/api/quotas/user/T").json["daily"]["shell"]["used"], 0)


if __name__ == "__main__":
    harness.main()
