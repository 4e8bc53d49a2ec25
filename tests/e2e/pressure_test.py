#!/usr/bin/env python3
"""What strangers can take: places, buffers and memory. Others, loopback and administrators are served meanwhile.

Clients come from several addresses of 127.0.0.0/8; limits.kept_for says which of them count as loopback would.
"""

import contextlib
import json
import pathlib
import re
import resource
import select
import socket
import unittest

import harness
import http2_frames as http2

REQUIRED = ("--set", "auth=required")
HEAD = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Length: %d\r\n\r\n"


def connect(server, protocol="http", source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", server.ports[protocol]), timeout=harness.PATIENCE,
                                    source_address=(source, 0))


def hear(connection):
    """All that comes until the peer closes, or until an answer is whole."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            got += piece
            if b"\r\n\r\n" in got or got.startswith((b"+", b"-", b"*")):
                break
    return got


def ask(server, source, head, token=None, body=b""):
    """One request from an address; nothing: the connection was closed."""
    authorization = f"Authorization: Bearer {token}\r\n".encode() if token else b""
    with contextlib.suppress(ConnectionError), connect(server, source=source) as connection:
        connection.sendall(head + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + authorization +
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return hear(connection)
    return b""


def is_closed(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def metric(server, name):
    text = server.manage("GET", "/metrics").body.decode()
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


class BeforeTheBody(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(*REQUIRED)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def test_401_is_answered_before_the_body_is_read(self):
        for path in (b"/v1/check", b"/v1/check/batch", b"/api/admin/policies/validate", b"/api/quotas/check"):
            for more in (b"", b"Authorization: Bearer hg_nothing\r\n", b"Expect: 100-continue\r\n"):
                with connect(self.server) as connection:
                    connection.sendall(HEAD % (path, more, 900_000))
                    self.assertRegex(hear(connection), rb"^HTTP/1.1 4(01|29) ")

    def test_a_good_token_is_told_to_go_on_and_is_answered(self):
        body = b'{"agent": "A", "operation": "run"}'
        token = b"Authorization: Bearer %s\r\n" % self.server.token.encode()
        with connect(self.server) as connection:
            connection.sendall(HEAD % (b"/v1/check", token + b"Expect: 100-continue\r\n", len(body)))
            self.assertTrue(hear(connection).startswith(b"HTTP/1.1 100 "))
            connection.sendall(body)
            self.assertTrue(hear(connection).startswith(b"HTTP/1.1 200 "))

    def test_what_is_open_to_all_takes_no_body(self):
        with connect(self.server) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900000\r\n\r\n")
            self.assertTrue(hear(connection).startswith(b"HTTP/1.1 413 "))
        with connect(self.server) as connection:
            connection.sendall(HEAD % (b"/nowhere", b"", 900_000))
            self.assertTrue(hear(connection).startswith(b"HTTP/1.1 404 "))

    def test_a_grpc_call_without_a_token_is_refused_by_its_head(self):
        head = http2.call_head(b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
        with connect(self.server, "grpc") as connection:
            connection.sendall(http2.PREFACE + head)
            got = b""
            while True:
                piece = connection.recv(65536)
                self.assertTrue(piece, got)
                got += piece
                # HEADERS with END_HEADERS and END_STREAM, though no DATA was sent.
                if refused := [payload for kind, flags, payload in http2.frames(got) if (kind, flags) == (1, 0x5)]:
                    break
        self.assertIn(b"\x0216", refused[0])  # grpc-status: UNAUTHENTICATED

    def test_a_redis_client_that_has_not_signed_in_has_little_room(self):
        with connect(self.server, "resp") as connection:
            connection.sendall(b"*2\r\n$4\r\nAUTH\r\n$40000\r\n")
            self.assertIn(b"invalid bulk length", hear(connection))
        with connect(self.server, "resp") as connection:
            connection.sendall(b"AUTH %s\r\n" % self.server.token.encode())
            self.assertEqual(hear(connection), b"+OK\r\n")
            connection.sendall(b"*2\r\n$4\r\nECHO\r\n$40000\r\n" + b"x" * 40000 + b"\r\n")
            self.assertTrue(connection.recv(100).startswith(b"$40000"))


class SignIn(unittest.TestCase):
    def test_a_redis_client_must_sign_in_in_time_where_it_has_to(self):
        with harness.Server(*REQUIRED, "--set", "limits.sign_in=3s") as server, \
                connect(server, "resp") as silent, connect(server, "resp") as signed:
            signed.sendall(b"AUTH %s\r\n" % server.token.encode())
            self.assertEqual(hear(signed), b"+OK\r\n")
            self.assertTrue(hear(silent).startswith(b"-NOAUTH "))
            signed.sendall(b"PING\r\n")
            self.assertEqual(hear(signed), b"+PONG\r\n")

    def test_so_must_clients_of_other_protocols_and_pings_do_not_count(self):
        """Each connection keeps sending what needs no token; the last of each protocol has shown one before."""
        health, rate_limit = b"/grpc.health.v1.Health/Check", b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
        ping = http2.frame(http2.PING, 0, 0, b"12345678")
        get = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n"
        upgrade = (b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                   b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n")
        ws_ping = b"\x89\x80\0\0\0\0"
        with harness.Server(*REQUIRED, "--set", "limits.sign_in=3s") as server, contextlib.ExitStack() as stack:
            token = b"Bearer " + server.token.encode()
            bearer = b"Authorization: %s\r\n" % token
            cases = {  # what is sent first, and then again and again
                "gRPC pings": ("grpc", http2.PREFACE, ping),
                "gRPC health": ("grpc", http2.PREFACE + http2.call(health), ping),
                "gRPC with a bad token": ("grpc", http2.PREFACE + http2.call(rate_limit, b"Bearer hg_bad"), ping),
                "HTTP, empty lines": ("http", b"", b"\r\n"),
                "HTTP health": ("http", b"", get % (b"/healthz", b"")),
                "WebSocket pings": ("http", get % (b"/v1/ws", upgrade), ws_ping),
            }
            signed = {
                "gRPC": ("grpc", http2.PREFACE + http2.call(rate_limit, token), ping),
                "HTTP": ("http", get % (b"/api/overview", bearer), get % (b"/healthz", b"")),
                "WebSocket": ("http", get % (b"/v1/ws", upgrade + bearer), ws_ping),
            }

            def opened(all_cases):
                peers = {}
                for name, (protocol, first, again) in all_cases.items():
                    peers[name] = (stack.enter_context(connect(server, protocol)), again)
                    peers[name][0].sendall(first)
                return peers

            heard = dict.fromkeys(cases, b"")

            def is_over(connection, again, name=None):
                """Sends it again; whether the server has closed. What it says meanwhile is read."""
                connection.setblocking(False)
                try:
                    connection.send(again)
                    while piece := connection.recv(65536):
                        heard[name] = heard.get(name, b"") + piece
                    return True
                except BlockingIOError:
                    return False
                except ConnectionError:
                    return True
            admitted, strangers = opened(signed), opened(cases)
            harness.wait_until(lambda: all([is_over(*peer, name) for name, peer in strangers.items()]), "all are closed")
            for name in cases:
                if name.startswith("gRPC"):
                    self.assertEqual(http2.goaway(heard[name]), http2.NO_ERROR, name)
            for name, (connection, again) in admitted.items():
                with self.subTest(name):
                    self.assertFalse(is_over(connection, again))

    def test_where_no_token_is_required_none_is_awaited(self):
        with harness.Server("--set", "limits.sign_in=100ms", "--set", "limits.resp_idle=3s") as server, \
                connect(server, "grpc") as grpc, connect(server) as http, connect(server, "resp") as resp:
            grpc.sendall(http2.PREFACE)
            self.assertEqual(hear(resp), b"", "closed for being idle: so all have been looked at several times")
            self.assertFalse(is_closed(http))
            grpc.sendall(http2.frame(http2.PING, 0, 0, b"12345678"))
            got = b""
            while b"12345678" not in got:
                piece = grpc.recv(65536)
                self.assertTrue(piece, "closed")
                got += piece

    def test_an_idle_redis_client_is_closed(self):
        with harness.Server("--set", "limits.resp_idle=3s") as server, connect(server, "resp") as idle:
            idle.sendall(b"PING\r\n")
            self.assertEqual(hear(idle), b"+PONG\r\n")
            self.assertEqual(hear(idle), b"")


class Places(unittest.TestCase):
    def test_one_address_has_its_share_and_no_more(self):
        with harness.Server("--set", "limits.kept_for=127.0.0.1", "--set", "limits.connections_per_address=5") as server:
            held = [connect(server, source="127.0.0.2") for _ in range(9)]
            harness.wait_until(lambda: sum(map(is_closed, held)) == 4, "four too many are closed")
            self.assertTrue(ask(server, "127.0.0.3", b"GET /healthz").startswith(b"HTTP/1.1 200"))
            for connection in held:
                connection.close()
            harness.wait_until(lambda: ask(server, "127.0.0.2", b"GET /healthz"), "there is room again")

    def test_silent_connections_make_room_for_those_who_speak(self):
        with harness.Server(*REQUIRED, "--set", "limits.connections=60", "--set", "limits.kept_for=127.0.0.1") as server:
            agent = server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "A"}).json["secret"]
            held = []
            for i in range(50):
                for protocol, sent in (("http", b"POST /v1/check HT"), ("resp", b"*2\r\n$4\r\nAU"), ("grpc", b"PRI")):
                    held.append(connect(server, protocol, f"127.0.1.{i + 1}"))
                    with contextlib.suppress(ConnectionError):
                        held[-1].sendall(sent)
            # The brake and revocation, from loopback and from elsewhere; and an agent that has a token.
            for source in ("127.0.0.1", "127.0.0.9"):
                for head in (b"PUT /api/admin/emergency", b"DELETE /api/admin/emergency"):
                    answer = ask(server, source, head, server.token, b'{"reason": "x"}' if b"PUT" in head else b"")
                    self.assertTrue(answer.startswith(b"HTTP/1.1 200"), (source, answer))
            body = json.dumps({"agent": "A", "operation": "run"}).encode()
            self.assertTrue(ask(server, "127.0.0.8", b"POST /v1/check", agent, body).startswith(b"HTTP/1.1 200"))
            self.assertGreater(metric(server, "headgate_connections_evicted_total"), 50)
            for connection in held:
                connection.close()

    def test_places_are_kept_for_loopback_and_administrators(self):
        """All other places are taken by connections that have shown a token."""
        with harness.Server(*REQUIRED, "--set", "limits.connections=40", "--set", "limits.kept_for=127.0.0.1") as server:
            agent = server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "A"}).json
            held = []
            for i in range(60):
                with contextlib.suppress(ConnectionError):
                    connection = connect(server, "resp", f"127.0.1.{i + 1}")
                    connection.sendall(b"AUTH A %s\r\n" % agent["secret"].encode())
                    hear(connection)
                    held.append(connection)
            harness.wait_until(lambda: sum(not is_closed(connection) for connection in held) == 30, "30 have a place")
            # An agent from elsewhere is answered, but has no place to stay; loopback has.
            self.assertTrue(ask(server, "127.0.0.1", b"GET /healthz").startswith(b"HTTP/1.1 200"))
            for source in ("127.0.0.1", "127.0.0.9"):
                answer = ask(server, source, b"PUT /api/admin/emergency", server.token, b'{"reason": "x"}')
                self.assertTrue(answer.startswith(b"HTTP/1.1 200"), (source, answer))
            answer = ask(server, "127.0.0.1", b"DELETE /api/admin/tokens/" + agent["id"].encode(), server.token)
            self.assertTrue(answer.startswith(b"HTTP/1.1 200"), answer)
            for connection in held:
                connection.close()


class Buffers(unittest.TestCase):
    def test_unfinished_bodies_are_bounded_for_the_whole_process(self):
        with harness.Server("--set", "limits.buffered=4194304") as server:
            token = b"Authorization: Bearer %s\r\n" % server.token.encode()
            held = []
            refused = 0
            for _ in range(30):
                connection = connect(server)
                with contextlib.suppress(ConnectionError):  # it may be refused while it still sends
                    connection.sendall(HEAD % (b"/v1/check", b"", 900_000) + b"x" * 500_000)
                held.append(connection)
            harness.wait_until(lambda: sum(map(is_closed_or_answered, held)) >= 20, "most are refused")
            for connection in held:
                connection.setblocking(True)
                connection.settimeout(harness.PATIENCE)
                if is_closed_or_answered(connection):
                    connection.setblocking(True)
                    refused += hear(connection).startswith(b"HTTP/1.1 503")
                connection.close()
            self.assertGreater(refused, 0)
            self.assertGreaterEqual(metric(server, "headgate_connections_shed_total"), 20)
            with connect(server) as connection:
                connection.sendall(HEAD % (b"/v1/check", token, 900_000) + b" " * 800_000)
                body = b'{"agent": "A", "operation": "run"}'
                connection.sendall(body + b" " * (100_000 - len(body)))
                self.assertTrue(hear(connection).startswith(b"HTTP/1.1 200"))


def is_closed_or_answered(connection):
    connection.setblocking(False)
    try:
        connection.recv(1, socket.MSG_PEEK)
        return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


class Brake(unittest.TestCase):
    """The emergency throttle is turned on while the only io thread has much else to do: others are answered later.

    The server is stopped until all requests have been sent: so how fast they are sent makes no difference."""

    def requests(self, server, path, body, count, token):
        """Sends so many, each over a connection of its own, and reads no answer."""
        head = HEAD % (path, f"Authorization: Bearer {token}\r\n".encode(), len(body))
        connections = [connect(server) for _ in range(count)]
        for connection in connections:
            self.addCleanup(connection.close)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(body))  # it waits there
            connection.sendall(head + body)
        return connections

    def ask_last(self, server, method, path, body, *requests):
        """The status of a request by the administrator that is sent after others; and their connections."""
        with server.paused():
            connections = self.requests(server, *requests)
            last = connect(server)
            token = f"Authorization: Bearer {server.token}\r\n".encode()
            last.sendall(HEAD.replace(b"POST", method) % (path, token, len(body)) + body)
        return self.status_of(last), connections

    def brake_comes_first(self, server, *requests):
        status, connections = self.ask_last(server, b"PUT", b"/api/admin/emergency", b'{"reason": "x"}', *requests)
        ready = select.select(connections, [], [], 0)[0]
        self.assertEqual(status, 200)
        self.assertLess(len(ready), len(connections) / 2, "most of them were answered before the brake")
        return [self.status_of(connection) for connection in connections]

    def status_of(self, connection):
        """The rest of a large answer is not read."""
        with connection:
            return int(hear(connection).split()[1])

    def test_batches_do_not_hold_up_the_brake(self):
        with harness.Server("--threads", "1", *REQUIRED) as server:
            token = server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "A"}).json["secret"]
            body = json.dumps({"checks": [{"operation": f"op{i}"} for i in range(1000)]}).encode()
            statuses = self.brake_comes_first(server, b"/v1/check/batch", body, 150, token)
            self.assertEqual(statuses, [200] * 150)

    def test_validations_do_not_hold_up_the_brake_and_are_bounded(self):
        policies = "".join(f"  - {{id: p{i}, match: {{operations: [op{i}]}}, limit: 5/60s}}\n" for i in range(1000))
        body = json.dumps({"text": "policies:\n" + policies}).encode()
        with harness.Server("--threads", "1", *REQUIRED) as server:
            token = server.manage("POST", "/api/admin/tokens", {"role": "viewer"}).json["secret"]
            request = b"/api/admin/policies/validate", body
            self.assertEqual(self.brake_comes_first(server, *request, 40, token), [200] * 40)
            with server.paused():
                connections = self.requests(server, *request, 100, token)
            refused = [answer for answer in map(hear, connections) if not answer.startswith(b"HTTP/1.1 200")]
            self.assertTrue(refused, "more than 64 wait")
            for answer in refused:
                self.assertTrue(answer.startswith(b"HTTP/1.1 503"), answer)
                self.assertIn(b"Retry-After: 1\r\n", answer)

    def test_a_batch_whose_token_is_revoked_meanwhile_is_refused(self):
        with harness.Server("--threads", "1", *REQUIRED) as server:
            token = server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "A"}).json
            body = json.dumps({"checks": [{"operation": f"op{i}"} for i in range(1000)]}).encode()
            revoke = f"/api/admin/tokens/{token['id']}".encode()
            status, connections = self.ask_last(server, b"DELETE", revoke, b"", b"/v1/check/batch", body, 150, token["secret"])
            self.assertEqual(status, 200)
            statuses = [self.status_of(connection) for connection in connections]
            self.assertLessEqual(set(statuses), {200, 401})
            self.assertEqual(statuses[-1], 401)


class Memory(unittest.TestCase):
    def test_without_memory_connections_are_closed_and_the_server_lives(self):
        with harness.Server("--set", "limits.buffered=60000000000", "--set", "limits.body=67108864",
                            "--set", "threads=2") as server:
            server.check()
            agent = server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "A"}).json
            size = int(re.search(r"VmSize:\s+(\d+)",
                                 pathlib.Path(f"/proc/{server.process.pid}/status").read_text()).group(1)) << 10
            most = size + (48 << 20)
            resource.prlimit(server.process.pid, resource.RLIMIT_AS, (most, most))
            held = []
            for _ in range(40):
                connection = connect(server)
                with contextlib.suppress(ConnectionError, TimeoutError):
                    connection.settimeout(2)
                    connection.sendall(HEAD % (b"/v1/check", b"", 60_000_000) + b"x" * 12_000_000)
                held.append(connection)
            # The brake and revocation work meanwhile.
            self.assertEqual(server.manage("PUT", "/api/admin/emergency", {"reason": "x"}).status, 200)
            self.assertEqual(server.manage("DELETE", f"/api/admin/tokens/{agent['id']}").status, 200)
            self.assertGreater(metric(server, "headgate_connections_shed_total"), 0)
            self.assertIsNone(server.process.poll())
            for connection in held:
                connection.close()
            self.assertTrue(server.check(agent="B")["allowed"])


if __name__ == "__main__":
    harness.main()
