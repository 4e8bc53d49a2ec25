"""A server that answers as the contract says, for tests of the command line: HTTP (over TLS if asked) and the Redis
protocol, on free ports. What was asked is kept, and answers can be set. No test itself; other tests import it."""
import http.server
import json
import os
import pathlib
import re
import socketserver
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import waiting  # noqa: E402, F401: every test takes SIGINT as it is by default

TOKEN = "hg_test_secret_0123456789"

OVERVIEW = {
    "version": "9.8.7", "uptime_ms": 11_520_000, "started_at": 1_700_000_000_000,
    "checks": {"allowed": 1_234_567, "denied": 34_567, "errors": 12},
    "rates": {"checks_per_second": 532.4, "denied_per_second": 12.5, "errors_per_second": 0},
    "latency": {"p50_us": 0.4, "p99_us": 1.25},
    "cells": {"count": 12_345, "max": 10_000_000, "evicted": 7, "refused": 0},
    "connections": {"http": 3, "resp": 50, "grpc": 1}, "leases": 2, "waiting": 4,
    "load": {"load": 0.85, "level": "high", "factor": 0.5},
    "emergency": {"active": False, "reason": "", "enabled_at": 0, "enabled_by": ""},
    "top_agents": [{"agent": "builder", "allowed": 900_000, "denied": 12, "rate_limited": False},
                   {"agent": "alpha", "allowed": 300_000, "denied": 30_000, "rate_limited": True},
                   {"agent": "zeta", "allowed": 34_567, "denied": 4_555, "rate_limited": False}],
    "top_policies": [{"policy_id": "ui-component-creation", "admitted": 1_000, "denied": 30_012},
                     {"policy_id": "everyone", "admitted": 1_233_567, "denied": 4_555}],
    "offenders": [{"agent": "alpha", "violations": 17}],
    "policies": {"count": 12, "version": 3},
}
ALLOWED = {"allowed": True, "action": "allow", "reason": "All rate limit policies passed",
           "policy_ids": ["ui-component-creation"], "limit": 50, "remaining": 49, "reset_time": 1672531260000,
           "retry_after_ms": 0, "delay_ms": 0, "throttle_factor": 1.0, "warnings": [], "lease": None}
DENIED = {**ALLOWED, "allowed": False, "action": "block", "policy_id": "ui-component-creation", "remaining": 0,
          "reason": "Sliding window limit 50/60s exceeded", "retry_after_ms": 1500}


class FakeHttp:
    """Answers (method, path) with (status, JSON, header...), or what a function of the body makes; a path without a
    query stands for any query. Managing needs the token."""

    def __init__(self, tls=None):
        self.requests = []  # (method, path, headers, body as JSON or None)
        self.answers = {("POST", "/v1/check"): (200, ALLOWED), ("GET", "/readyz"): (200, {"ready": True}),
                        ("GET", "/healthz"): (200, {"status": "ok"}), ("GET", "/api/overview"): (200, OVERVIEW)}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1  # head and body in one write

            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                asked = json.loads(body) if body else None
                outer.requests.append((self.command, self.path, dict(self.headers), asked))
                found = (outer.answers.get((self.command, self.path)) or
                         outer.answers.get((self.command, self.path.partition("?")[0])) or
                         (404, {"error": "not_found", "message": f"no {self.path}"}))
                status, answer, *headers = found(asked) if callable(found) else found
                if self.path.startswith("/api/") and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, answer = 401, {"error": "unauthorized", "message": "a token is needed"}
                text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)
                self.wfile.flush()

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):  # clients may go away
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class FakeResp:
    """CL.THROTTLE allows keys that end in an even digit; HG.CHECK all but every third; AUTH takes the token."""

    def __init__(self, token=None):
        self.commands = []
        self.close_after = 0  # so many commands, then the connection; 0: never
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                signed_in = token is None
                count = 0
                while True:
                    line = self.rfile.readline()
                    if not line:
                        return
                    words = []
                    for _ in range(int(line[1:])):
                        size = int(self.rfile.readline()[1:])
                        words.append(self.rfile.read(size + 2)[:-2].decode())
                    outer.commands.append(words)
                    count += 1
                    if words[0] == "AUTH":
                        signed_in = words[-1] == token
                        self.wfile.write(b"+OK\r\n" if signed_in else b"-WRONGPASS no such token\r\n")
                    elif not signed_in:
                        self.wfile.write(b"-NOAUTH a token is needed\r\n")
                    elif words[0] == "CL.THROTTLE":
                        limited = int(words[1][-1]) % 2
                        self.wfile.write(f"*5\r\n:{limited}\r\n:16\r\n:15\r\n:-1\r\n:2\r\n".encode())
                    elif words[0] == "HG.CHECK":
                        allowed = 0 if count % 3 == 0 else 1
                        self.wfile.write(f"*6\r\n:{allowed}\r\n:4\r\n:0\r\n:1672531260000\r\n$3\r\nall\r\n"
                                         f"$5\r\nallow\r\n".encode())
                    else:
                        self.wfile.write(b"-ERR unknown command\r\n")
                    if outer.close_after and count >= outer.close_after:
                        return

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def environment(**changes):
    names = ("NO_COLOR", "LANG", "LC_ALL", "LC_CTYPE", "COLUMNS", "TERM", "http_proxy", "https_proxy")
    kept = {k: v for k, v in os.environ.items() if k not in names and not k.startswith("HEADGATE_")}
    return {**kept, "TERM": "xterm-256color", **changes}


def run(*arguments, stdin=None, cwd=None, **changes):
    binary = os.path.abspath(sys.modules["__main__"].BINARY)
    return subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True, input=stdin, timeout=60,
                          cwd=cwd, env=environment(**changes))


ROOT = pathlib.Path(__file__).resolve().parents[2]
