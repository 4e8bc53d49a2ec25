#!/usr/bin/env python3
"""At the cap, callers with a token are served at the expense of connections of the same machine that have shown none."""

import contextlib
import http.client
import socket
import unittest

import harness

MOST = 200
TRIES = 20


class Crowded(unittest.TestCase):
    SETTINGS = ()

    def setUp(self):
        self.server = harness.Server("--auth", "required", "--set", f"limits.connections={MOST}", *self.SETTINGS)
        self.addCleanup(self.server.__exit__)
        self.token = self.server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "A"}).json["secret"]
        self.held = contextlib.ExitStack()
        self.addCleanup(self.held.close)

    def connect(self):
        address = ("127.0.0.1", self.server.ports["resp"])
        return self.held.enter_context(socket.create_connection(address, timeout=harness.PATIENCE))


class Crowd(Crowded):
    def setUp(self):
        super().setUp()
        for _ in range(MOST + MOST // 10):
            self.connect().sendall(b"*2\r\n$4\r\nAUTH\r\n")

    def asks_by_http(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            body = {"agent": "A", "operation": "x"}
            return self.server.call("POST", "/v1/check", body, token=self.token).status == 200
        return False

    def asks_by_resp(self):
        connection = self.connect()
        words = (["AUTH", self.token], ["HG.CHECK", "A", "x"])
        answer = b""
        with contextlib.suppress(OSError):
            for command in words:
                connection.sendall((f"*{len(command)}\r\n" + "".join(f"${len(w)}\r\n{w}\r\n" for w in command)).encode())
            while b"*6" not in answer and (more := connection.recv(1000)):
                answer += more
        return b"*6" in answer

    def test_an_agent_with_a_token_is_served(self):
        answers = [(self.asks_by_http(), self.asks_by_resp()) for _ in range(TRIES)]
        self.assertEqual(answers, [(True, True)] * TRIES)


class CrowdOfTokens(Crowded):
    """All places are taken by connections that have shown a token, and none is kept."""

    SETTINGS = ("--set", "limits.kept_for=")

    def setUp(self):
        super().setUp()
        for _ in range(MOST + MOST // 4):
            with contextlib.suppress(OSError):
                connection = self.connect()
                for command in (f"AUTH {self.token}\r\n", "PING\r\n"):
                    connection.sendall(command.encode())
                    if not connection.recv(100):
                        connection.close()  # it has no place
                        break

    def test_a_request_whose_body_follows_its_head_is_answered_before_the_connection_goes(self):
        body = b'{"operation": "x"}'
        for _ in range(TRIES):
            with self.server.connect("http") as wire:
                wire.send(f"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
                          f"Connection: close\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n")
                self.assertEqual(wire.line(), b"HTTP/1.1 100 Continue\r\n", "the head is judged")
                self.assertEqual(wire.line(), b"\r\n")
                wire.send(body)
                answer = wire.rest()
                self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer)


if __name__ == "__main__":
    harness.main()
