#!/usr/bin/env python3
"""What strangers can take: places, buffers and memory. Others, loopback and administrators are served meanwhile.

Clients come from several addresses of 127.0.0.0/8; limits.kept_for says which of them count as loopback would.
"""

import contextlib
import json
import pathlib
import re
import resource
import socket
import struct
import unittest

import harness

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


def field(name, value):
    """One header of HTTP/2, neither compressed nor remembered."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


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
        head = b"".join(field(name, value) for name, value in (
            (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"127.0.0.1"), (b"te", b"trailers"),
            (b":path", b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
            (b"content-type", b"application/grpc")))
        head = head.replace(field(b"te", b"trailers"), b"") + field(b"te", b"trailers")
        with connect(self.server, "grpc") as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(1, 0x4, 1, head))
            got = b""
            while True:
                piece = connection.recv(65536)
                self.assertTrue(piece, got)
                got += piece
                # HEADERS with END_HEADERS and END_STREAM, though no DATA was sent.
                if refused := [payload for kind, flags, payload in self.frames(got) if (kind, flags) == (1, 0x5)]:
                    break
        self.assertIn(b"\x0216", refused[0])  # grpc-status: UNAUTHENTICATED

    @staticmethod
    def frames(got):
        while len(got) >= 9 and len(got) >= 9 + int.from_bytes(got[:3], "big"):
            size = int.from_bytes(got[:3], "big")
            yield got[3], got[4], got[9:9 + size]
            got = got[9 + size:]

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
        with harness.Server(*REQUIRED, "--set", "limits.sign_in=1s") as server, \
                connect(server, "resp") as silent, connect(server, "resp") as signed:
            signed.sendall(b"AUTH %s\r\n" % server.token.encode())
            self.assertEqual(hear(signed), b"+OK\r\n")
            self.assertTrue(hear(silent).startswith(b"-NOAUTH "))
            signed.sendall(b"PING\r\n")
            self.assertEqual(hear(signed), b"+PONG\r\n")

    def test_an_idle_redis_client_is_closed(self):
        with harness.Server("--set", "limits.resp_idle=1s") as server, connect(server, "resp") as idle:
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
            self.assertEqual(sum(not is_closed(connection) for connection in held), 30)
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
