#!/usr/bin/env python3
"""Authorization for checks and management over every listener; TLS; slow or broken clients that must not delay others."""

import contextlib
import json
import pathlib
import re
import resource
import socket
import ssl
import subprocess
import tempfile
import unittest

import harness


class Access(unittest.TestCase):
    def test_managing_always_needs_a_token(self):
        with harness.Server() as server:
            for path in ("/api/overview", "/api/admin/tokens", "/api/agents"):
                answer = server.call("GET", path)
                self.assertEqual((answer.status, answer.json["error"]), (401, "unauthorized"), path)
            self.assertTrue(server.check()["allowed"], "asking needs none on loopback")

    def test_with_auth_required_everything_needs_one(self):
        with harness.Server("--auth", "required") as server:
            self.assertEqual(server.call("POST", "/v1/check", {"operation": "x"}).status, 401)
            self.assertEqual(server.call("GET", "/v1/gate").status, 401)
            self.assertEqual(server.call("GET", "/healthz").status, 200)
            self.assertEqual(server.call("GET", "/readyz").status, 200)
            made = server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "A"}).json
            own = server.call("POST", "/v1/check", {"operation": "x"}, token=made["secret"])
            self.assertEqual((own.status, own.json["allowed"]), (200, True))
            other = server.call("POST", "/v1/check", {"agent": "B", "operation": "x"}, token=made["secret"])
            self.assertEqual((other.status, other.json["error"]), (403, "wrong_agent"))
            self.assertEqual(server.call("GET", "/api/overview", token=made["secret"]).status, 403)

    def test_guessing_is_limited(self):
        with harness.Server() as server:
            statuses = [server.call("GET", "/api/overview", token=f"hg_{i}").status for i in range(20)]
            self.assertEqual(statuses[0], 401)
            self.assertEqual(statuses[-1], 429)

    def test_other_sites_are_refused(self):
        with harness.Server() as server:
            self.assertEqual(server.call("POST", "/v1/check", {"operation": "x"}, {"Host": "evil.example"}).status, 403)
            self.assertEqual(server.call("POST", "/v1/check", {"operation": "x"},
                                         {"Origin": "http://evil.example"}).status, 403)


class Tls(unittest.TestCase):
    def test_every_listener_speaks_tls_and_knows_client_certificates(self):
        with tempfile.TemporaryDirectory() as folder:
            def openssl(*arguments):
                subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
            openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj",
                    "/CN=test-ca", "-days", "2")
            for name in ("server", "agent-7"):
                openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj",
                        f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
                openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                        "-out", f"{name}.pem", "-days", "2", "-copy_extensions", "copy")
            here = pathlib.Path(folder)
            with harness.Server("--set", f"tls.cert={here}/server.pem", "--set", f"tls.key={here}/server.key", "--set",
                                f"tls.client_ca={here}/ca.pem", "--auth", "required") as server:
                context = ssl.create_default_context(cafile=f"{here}/ca.pem")
                bare = ssl.create_default_context(cafile=f"{here}/ca.pem")
                context.load_cert_chain(f"{here}/agent-7.pem", f"{here}/agent-7.key")

                def over(name, sent, using):
                    with socket.create_connection(("127.0.0.1", server.ports[name]), timeout=harness.PATIENCE) as plain:
                        with using.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                            connection.sendall(sent)
                            return connection.recv(65536)
                body = b'{"operation": "x"}'
                answer = over("http", b"POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s" %
                              (len(body), body), context)
                self.assertTrue(answer.startswith(b"HTTP/1.1 200"), answer)
                other = b'{"operation": "x", "agent": "somebody"}'
                answer = over("http", b"POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s" %
                              (len(other), other), context)
                self.assertTrue(answer.startswith(b"HTTP/1.1 403"), answer)
                secret = server.token.encode()
                self.assertEqual(over("resp", b"AUTH %s\r\nPING\r\n" % secret, context)[:5], b"+OK\r\n")
                with self.assertRaises((ssl.SSLError, ConnectionResetError, BrokenPipeError)):
                    self.assertEqual(over("http", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", bare), b"")
                    raise ConnectionResetError


class BadSenders(unittest.TestCase):
    def test_slow_and_silent_senders_are_closed_and_nobody_waits_for_them(self):
        with harness.Server("--set", "limits.request=1s", "--set", "limits.idle=1s") as server:
            half = [b"POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{", b"GET / HT", b""]
            held = []
            for sent in half:
                connection = socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=harness.PATIENCE)
                connection.sendall(sent)
                held.append(connection)
            self.assertTrue(server.check()["allowed"])
            for connection in held:
                with contextlib.suppress(ConnectionResetError):
                    while connection.recv(4096):
                        pass
                connection.close()
            self.assertTrue(server.check()["allowed"])

    def test_a_half_closed_connection_still_gets_its_answer(self):
        with harness.Server() as server, socket.create_connection(
                ("127.0.0.1", server.ports["http"]), timeout=harness.PATIENCE) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            got = b""
            while piece := connection.recv(65536):
                got += piece
            self.assertTrue(got.startswith(b"HTTP/1.1 200"), got)

    def test_garbage_on_every_listener_hurts_nobody(self):
        garbage = [bytes(range(256)) * 64, b"\x16\x03\x01" + b"\x00" * 500, b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 5000,
                   b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 3000,
                   b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"]
        with harness.Server("--set", "limits.request=1s", "--set", "limits.idle=1s") as server:
            for name in ("http", "resp", "grpc"):
                for sent in garbage:
                    with socket.create_connection(("127.0.0.1", server.ports[name]), timeout=harness.PATIENCE) as peer:
                        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                            peer.sendall(sent)
                            peer.shutdown(socket.SHUT_WR)
                            while peer.recv(65536):
                                pass
            self.assertTrue(server.check()["allowed"])
            self.assertIsNone(server.process.poll())

    def test_thousands_of_idle_connections_hold_nobody_up(self):
        """As many as this process may open, up to what the server takes by default; each costs a file at either end."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        count = min(19_000, most - 500)
        with harness.Server() as server:
            before = self.resident(server)
            held = [socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=harness.PATIENCE)
                    for _ in range(count)]
            self.assertTrue(server.check()["allowed"])
            harness.wait_until(lambda: server.manage("GET", "/api/overview").json["connections"]["http"] >= count,
                               "all are accepted")
            self.assertLess((self.resident(server) - before) * 1024 / count, 16_000, "bytes for each")
            for connection in held:
                connection.close()
            harness.wait_until(lambda: server.manage("GET", "/api/overview").json["connections"]["http"] < 10, "all closed")

    @staticmethod
    def resident(server):
        """In kB."""
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{server.process.pid}/status").read_text()).group(1))

    def test_more_connections_than_may_be_are_refused(self):
        with harness.Server("--set", "limits.connections=50") as server:
            # Threads accept side by side, so which ones are refused nobody knows; how many, everybody does.
            held = [socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=harness.PATIENCE)
                    for _ in range(65)]
            for connection in held:
                connection.setblocking(False)
            harness.wait_until(lambda: sum(map(self.is_closed, held)) == 15, "fifteen are closed at once")
            for connection in held:
                connection.close()
            harness.wait_until(lambda: self.asks(server), "there is room again")

    @staticmethod
    def is_closed(connection):
        try:
            return connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    @staticmethod
    def asks(server):
        try:
            return json.loads(server.call("POST", "/v1/check", {"operation": "x"}).body)["allowed"]
        except (OSError, ValueError, __import__("http.client").client.HTTPException):
            return False


if __name__ == "__main__":
    harness.main()
