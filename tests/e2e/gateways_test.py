#!/usr/bin/env python3
"""Real gateways in front of a real upstream send checks to a real server: the examples unchanged, except for their ports."""

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


def get(port, path, agent=None, **headers):
    """Names of further headers are written with underscores."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if agent:
        sent["X-Agent"] = agent
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=sent)
    try:
        with urllib.request.urlopen(request, timeout=harness.PATIENCE) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


class Gateway(unittest.TestCase):
    def through(self, name, command, upstream, headgate_port, folder, *more):
        """The example, on free ports; gives its own."""
        port = harness.free_port()
        text = (harness.ROOT / "examples/gateways" / name).read_text()
        for old, new in (("127.0.0.1:7070", f"127.0.0.1:{headgate_port}"), ("127.0.0.1:8080", f"127.0.0.1:{port}"),
                         ("127.0.0.1:9000", f"127.0.0.1:{upstream.port}"),
                         ("/tmp/headgate-nginx.pid", f"{folder}/nginx.pid"),
                         ("examples/gateways/headgate.lua", f"{folder}/headgate.lua"), *more):
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

    def holds(self, name, command):
        """No header of a client changes what it is counted as, even if the gate believes every header it knows."""
        policies = """
policies:
  - {id: each, match: {operations: ["GET /tools/*"]}, key: [agent], limit: {strategy: fixed_window, limit: 3, window: 24h}}
  - {id: here, match: {operations: ["GET /by-address"]}, key: [ip], limit: {strategy: fixed_window, limit: 3, window: 24h}}
"""
        all_headers = "gate.trust=agent,operation,session,user,context,cost"
        with harness.Server("--set", all_headers, policies=policies) as server, Upstream() as upstream, \
                tempfile.TemporaryDirectory() as folder:
            gateway, port = self.through(name, command, upstream, server.ports["http"], folder)
            with gateway:
                def passed(path, agents, **headers):
                    statuses = [get(port, path, agent, **headers)[0] for agent in agents]
                    self.assertLessEqual(set(statuses), {200, 429}, (headers, statuses, gateway.said))
                    return statuses.count(200)
                tricks = ({"X_Headgate_Cost": "x=1"}, {"X_Headgate_Cost": "0"}, {"X_Headgate_Operation": "free"},
                          {"X_Headgate_Agent": "other"}, {"X_Headgate_Session": "s", "X_Headgate_User": "u"},
                          {"X_Headgate_Context": "c"}, {"X_Original_URI": "/free"}, {"X_Forwarded_Uri": "/free"},
                          {"X_Original_URL": "/free"}, {"X_Original_Method": "POST"}, {"X_Forwarded_Method": "POST"},
                          {"Authorization": "Bearer of-the-upstream"}, {"Origin": "https://shop.example"},
                          {"Cookie": "headgate_session=x"})
                for number, trick in enumerate(tricks):
                    self.assertEqual(passed("/tools/a", [f"agent-{number}"] * 5, **trick), 3, trick)
                self.assertEqual(passed("/tools/a", ["dashboard"] * 5), 3, "the name exempts from nothing")
                for trick in ("X_Forwarded_For", "X_Real_IP"):
                    counts = [get(port, "/by-address", f"fresh-{trick}-{i}", **{trick: f"10.0.0.{i}"})[0] for i in range(5)]
                    self.assertLessEqual(counts.count(200), 3, (trick, counts))
                asked = server.check("z", "GET /by-address", peek=True)
                self.assertFalse(asked["allowed"], "all came from the address of the client, 127.0.0.1")

    NGINX = [shutil.which("nginx") or "/usr/sbin/nginx"]

    def nginx(self, path):
        return [*self.NGINX, "-p", path.parent, "-c", path]

    @staticmethod
    def caddy(path):
        return ["caddy", "run", "--config", path, "--adapter", "caddyfile"]

    @staticmethod
    def haproxy(path):
        return ["/usr/sbin/haproxy", "-f", path]

    def test_nginx_auth_request_limits_by_the_example(self):
        self.limits("nginx.conf", self.nginx)

    def test_caddy_forward_auth_limits_by_the_example(self):
        self.limits("Caddyfile", self.caddy)

    def test_haproxy_limits_by_the_example(self):
        self.limits("haproxy.cfg", self.haproxy)

    def test_no_header_of_a_client_gets_around_nginx(self):
        self.holds("nginx.conf", self.nginx)

    def test_no_header_of_a_client_gets_around_caddy(self):
        self.holds("Caddyfile", self.caddy)

    def test_no_header_of_a_client_gets_around_haproxy(self):
        self.holds("haproxy.cfg", self.haproxy)

    def test_the_gate_believes_the_agent_alone_unless_told_otherwise(self):
        with harness.Server(policies=POLICIES) as server:
            def gate(**headers):
                sent = {name.replace("_", "-"): value for name, value in headers.items()}
                return server.call("GET", "/v1/gate", headers=sent).status
            tricks = {"X_Headgate_Cost": "0", "X_Headgate_Operation": "free", "Origin": "https://shop.example",
                      "X_Headgate_Session": "s", "X_Headgate_User": "u", "X_Headgate_Context": "c"}
            statuses = [gate(X_Headgate_Agent="a", X_Original_URI="/tools/x", **tricks) for _ in range(5)]
            self.assertEqual(statuses, [204, 204, 204, 429, 429])
            self.assertEqual(gate(X_Headgate_Agent="b", X_Original_URI="/tools/x", X_Forwarded_Uri="/free"), 400,
                             "which one the proxy has set is not known")

    def test_a_check_that_would_wait_in_line_is_denied_at_once(self):
        """A proxy whose timeout is shorter than the wait would let the request through."""
        line = "policies: [{id: line, key: [], limit: 1/60s, behavior: queue, max_wait: 120s}]"

        def gate(server):
            return server.call("GET", "/v1/gate", headers={"X-Headgate-Agent": "a", "X-Original-URI": "/tools/x"})
        with harness.Server(policies=line) as server:
            self.assertEqual(gate(server).status, 204)
            denied = gate(server)
            self.assertEqual((denied.status, denied.json["policy_id"]), (429, "line"))
            self.assertGreater(int(denied.headers["Retry-After"]), 0)
            self.assertEqual(server.manage("GET", "/api/overview").json["waiting"], 0)

    def test_nginx_denies_what_would_wait_in_line(self):
        line = "policies: [{id: line, key: [], limit: 1/60s, behavior: queue, max_wait: 120s}]"
        with harness.Server(policies=line) as server, Upstream() as upstream, tempfile.TemporaryDirectory() as folder:
            gateway, port = self.through("nginx.conf", self.nginx, upstream, server.ports["http"], folder)
            with gateway:
                self.assertEqual([get(port, "/tools/x", "scout")[0] for _ in range(3)], [200, 429, 429], gateway.said)

    def test_a_believed_header_that_comes_twice_is_refused(self):
        with harness.Server(policies=POLICIES) as server:
            def gate(*headers):
                with server.connect("http") as peer:
                    peer.send("GET /v1/gate HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" +
                              "".join(f"{header}\r\n" for header in headers) + "\r\n")
                    return peer.rest().decode()
            address, agent = "X-Original-URI: /tools/x", "X-Headgate-Agent: a"
            self.assertIn(" 204 ", gate(address, agent))
            for name, headers in {"X-Headgate-Agent": (address, agent, "x-headgate-agent: b"),
                                  "X-Original-Uri": (agent, address, "X-Original-URI: /free"),
                                  "X-Real-Ip": (agent, address, "X-Real-IP: 10.0.0.1", "X-Real-IP: 10.0.0.2")}.items():
                answer = gate(*headers)
                self.assertTrue(answer.startswith("HTTP/1.1 400 "), answer)
                self.assertIn(f"{name} must be given once", answer)
            self.assertIn(" 204 ", gate(address, agent, "X-Headgate-User: u", "X-Headgate-User: v"), "not believed")

    def test_what_the_gate_is_told_to_believe_still_counts_a_request(self):
        with harness.Server("--set", "gate.trust=agent,cost,operation", policies=POLICIES) as server:
            def gate(cost):
                return server.call("GET", "/v1/gate", headers={
                    "X-Headgate-Agent": "a" + cost, "X-Headgate-Cost": cost, "X-Headgate-Operation": "GET /tools/x"}).status
            for cost in "x=1", "0", "requests=0", "tokens=5, requests=0":
                self.assertEqual([gate(cost) for _ in range(5)], [204, 204, 204, 429, 429], cost)
            self.assertEqual([gate("3") for _ in range(2)], [204, 429])
        refused = harness.headgate("serve", "--set", "gate.trust=agent,colour", "--print-config")
        self.assertIn("gate.trust", refused.stderr)
        self.assertNotEqual(refused.returncode, 0)

    def test_a_gateway_with_its_own_token_asks_for_the_clients(self):
        with harness.Server("--auth", "required", policies=POLICIES) as server, Upstream() as upstream, \
                tempfile.TemporaryDirectory() as folder:
            token = server.manage("POST", "/api/admin/tokens", {"role": "gateway"}).json["secret"]
            gateway, port = self.through("nginx.conf", self.nginx, upstream, server.ports["http"], folder,
                                         ('Authorization ""', f'Authorization "Bearer {token}"'))
            with gateway:
                statuses = [get(port, "/tools/x", "scout", Authorization="Bearer of-the-upstream")[0] for _ in range(4)]
                self.assertEqual(statuses, [200, 200, 200, 429], gateway.said)

    def test_nginx_lets_requests_through_while_the_gate_is_away(self):
        with Upstream() as upstream, tempfile.TemporaryDirectory() as folder:
            gateway, port = self.through("nginx.conf", self.nginx, upstream, harness.free_port(), folder)
            with gateway:
                self.assertEqual(get(port, "/tools/search", "scout")[0], 200, gateway.said)

    def test_every_example_names_the_same_ports(self):
        for path in sorted((harness.ROOT / "examples/gateways").iterdir()):
            ports = set(re.findall(r"127\.0\.0\.1(?::|, port_value: )(\d+)", path.read_text()))
            self.assertLessEqual(ports, {"7070", "7071", "8080", "9000"}, path.name)


if __name__ == "__main__":
    harness.main()
