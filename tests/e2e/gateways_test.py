#!/usr/bin/env python3
"""Gateways in front of a real upstream ask a real server: the examples as they are, but for their ports."""

import http.server
import pathlib
import re
import shutil
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

import harness

POLICIES = """
policies:
  - {id: searches, match: {operations: ["GET /tools/*"]}, limit: 3/60s}
"""


class Upstream:
    """Answers everything with what it was asked for."""

    def __enter__(self):
        seen = self.seen = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                seen.append(self.path)
                body = f"upstream saw {self.path}".encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def get(port, path, agent=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"X-Agent": agent} if agent else {})
    try:
        with urllib.request.urlopen(request, timeout=harness.PATIENCE) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


class Gateway(unittest.TestCase):
    def through(self, name, command, upstream, headgate_port, folder):
        """The example, on free ports; gives its own."""
        port = harness.free_port()
        text = (harness.ROOT / "examples/gateways" / name).read_text()
        for old, new in (("127.0.0.1:7070", f"127.0.0.1:{headgate_port}"), ("127.0.0.1:8080", f"127.0.0.1:{port}"),
                         ("127.0.0.1:9000", f"127.0.0.1:{upstream.port}"),
                         ("/tmp/headgate-nginx.pid", f"{folder}/nginx.pid"),
                         ("examples/gateways/headgate.lua", f"{folder}/headgate.lua")):
            text = text.replace(old, new)
        path = pathlib.Path(folder, name)
        path.write_text(text)
        if name == "haproxy.cfg":
            lua = (harness.ROOT / "examples/gateways/headgate.lua").read_text()
            pathlib.Path(folder, "headgate.lua").write_text(lua.replace("127.0.0.1:7070", f"127.0.0.1:{headgate_port}"))
        return harness.Program(command(path), port, cwd=folder), port

    def limits(self, name, command):
        with harness.Server(policies=POLICIES) as server, Upstream() as upstream, \
                tempfile.TemporaryDirectory() as folder:
            gateway, port = self.through(name, command, upstream, server.ports["http"], folder)
            with gateway:
                for i in range(3):
                    status, _, body = get(port, f"/tools/search?q={i}", "scout")
                    self.assertEqual((status, body), (200, f"upstream saw /tools/search?q={i}"), gateway.said)
                status, headers, body = get(port, "/tools/search", "scout")
                self.assertEqual(status, 429, (body, gateway.said))
                self.assertGreaterEqual(int(headers["Retry-After"]), 1)
                self.assertIn("rate_limited", body)
                self.assertEqual(len(upstream.seen), 3, "a denied request does not reach the upstream")
                self.assertEqual(get(port, "/tools/search", "coder")[0], 200, "another agent has a limit of its own")
                self.assertEqual(get(port, "/elsewhere", "scout")[0], 200, "another path meets no policy")
                self.assertEqual(server.check("scout", "GET /tools/search", peek=True)["allowed"], False)

    def test_nginx_auth_request_limits_by_the_example(self):
        self.limits("nginx.conf", lambda path: [shutil.which("nginx") or "/usr/sbin/nginx", "-p", path.parent, "-c", path])

    def test_caddy_forward_auth_limits_by_the_example(self):
        self.limits("Caddyfile", lambda path: ["caddy", "run", "--config", path, "--adapter", "caddyfile"])

    def test_haproxy_limits_by_the_example(self):
        self.limits("haproxy.cfg", lambda path: ["/usr/sbin/haproxy", "-f", path])

    def test_nginx_lets_requests_through_while_the_gate_is_away(self):
        with Upstream() as upstream, tempfile.TemporaryDirectory() as folder:
            nginx = [shutil.which("nginx") or "/usr/sbin/nginx"]
            gateway, port = self.through("nginx.conf", lambda path: [*nginx, "-p", path.parent, "-c", path], upstream,
                                         harness.free_port(), folder)
            with gateway:
                self.assertEqual(get(port, "/tools/search", "scout")[0], 200, gateway.said)

    def test_every_example_names_the_same_ports(self):
        for path in sorted((harness.ROOT / "examples/gateways").iterdir()):
            ports = set(re.findall(r"127\.0\.0\.1(?::|, port_value: )(\d+)", path.read_text()))
            self.assertLessEqual(ports, {"7070", "7071", "8080", "9000"}, path.name)


if __name__ == "__main__":
    harness.main()
