#!/usr/bin/env python3
"""Which claims of a caller are trusted: tokens that bind subjects, role gateway, parents, priorities, refunds."""

import http.client
import json
import subprocess
import tempfile
import unittest

import harness

POLICIES = """
policies:
  - {id: each, match: {operations: [x]}, key: [agent], limit: {strategy: fixed_window, limit: 3, window: 24h}}
  - {id: by-user, match: {operations: [u]}, key: [user], limit: {strategy: fixed_window, limit: 3, window: 24h}}
"""


def field(number, value):
    """A field of a protobuf message: bytes, text or a whole number."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    value = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(value)]) + value


def descriptor(hits=None, negative=False, **entries):
    text = b"".join(field(1, field(1, key) + field(2, value)) for key, value in entries.items())
    if hits is not None:
        text += field(3, field(1, hits))
    if negative:
        text += field(4, 1)
    return field(2, text)


def grpc(server, *descriptors, tokens=()):
    """(status of the call, overall code): curl speaks HTTP/2, and tells trailers among the headers."""
    message = field(1, "test") + b"".join(descriptors)
    with tempfile.NamedTemporaryFile() as body, tempfile.NamedTemporaryFile() as answer:
        body.write(b"\0" + len(message).to_bytes(4, "big") + message)
        body.flush()
        command = ["curl", "-sv", "--http2-prior-knowledge", "--max-time", str(harness.PATIENCE), "-o", answer.name,
                   "-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary", f"@{body.name}"]
        for token in tokens:
            command += ["-H", f"authorization: Bearer {token}"]
        command += [f"http://127.0.0.1:{server.ports['grpc']}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"]
        statuses = []

        def heard():
            # A call that is refused by its head may be reset while curl still sends: it then asks again.
            said = subprocess.run(command, capture_output=True, text=True).stderr
            statuses.extend(line.split(":")[1].strip() for line in said.splitlines() if line.startswith("< grpc-status"))
            return statuses
        harness.wait_until(heard, "the status of the call")
        frame = answer.read()
        return int(statuses[-1]), frame[6] if len(frame) > 6 else None


class Trust(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server("--auth", "required", policies=POLICIES)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def token(self, role="agent", **bound):
        made = self.server.manage("POST", "/api/admin/tokens", {"role": role, **bound})
        self.assertEqual(made.status, 201, made.body)
        return made.json["secret"]

    def check(self, token, operation="y", **more):
        answer = self.server.call("POST", "/v1/check", {"operation": operation, **more}, token=token)
        return answer.status, answer.json.get("error", answer.json.get("allowed"))

    def resp(self, token, *command):
        import redis
        connection = redis.Redis(port=self.server.ports["resp"], password=token)
        try:
            return connection.execute_command(*command)
        except redis.RedisError as error:
            return str(error)
        finally:
            connection.close()

    def test_what_a_token_binds_is_filled_in_and_no_other_may_be_named(self):
        mine = self.token(agent="bind-a", user="bind-u", tenant="bind-t", plan="free")
        for _ in range(3):
            self.assertEqual(self.check(mine, "u"), (200, True))
        self.assertEqual(self.check(mine, "u"), (200, False), "counted by the user of the token")
        self.assertEqual(self.check(mine, "u", user="bind-u", plan="free", tenant="bind-t"), (200, False))
        self.assertEqual(self.check(mine, agent="other"), (403, "wrong_agent"))
        for other in ({"user": "u2"}, {"tenant": "t2"}, {"plan": "enterprise"}):
            self.assertEqual(self.check(mine, **other), (403, "wrong_subject"), other)

    def test_a_token_that_binds_none_may_not_claim_what_another_binds(self):
        self.token(agent="own-a", user="own-u", tenant="own-t")
        loose = self.token()
        self.assertEqual(self.check(loose, agent="free-a", user="free-u", tenant="free-t"), (200, True))
        self.assertEqual(self.check(loose, agent="own-a"), (403, "wrong_agent"))
        self.assertEqual(self.check(loose, user="own-u"), (403, "wrong_subject"))
        self.assertEqual(self.check(loose, tenant="own-t"), (403, "wrong_subject"))
        self.assertIn("own-a", self.resp(loose, "HG.CHECK", "own-a", "y"))
        self.assertIn("own-u", self.resp(loose, "HG.CHECK", "free-a", "y", "USER", "own-u"))
        self.assertEqual(grpc(self.server, descriptor(agent="own-a"), tokens=[loose])[0], 7)
        decisions = self.server.call("POST", "/v1/check/batch", {"checks": [{"operation": "y", "agent": "own-a"}]},
                                     token=loose).json["decisions"]
        self.assertEqual(decisions[0]["error"], "wrong_agent")
        for role in ("gateway", "admin"):
            self.assertEqual(self.check(self.token(role), agent="own-a", user="own-u", tenant="own-t"), (200, True))

    def test_a_revoked_or_expired_token_binds_nothing(self):
        made = self.server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "once"}).json
        self.server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "brief", "ttl_ms": 1})
        loose = self.token()
        self.assertEqual(self.check(loose, agent="once"), (403, "wrong_agent"))
        self.server.manage("DELETE", f"/api/admin/tokens/{made['id']}")
        self.assertEqual(self.check(loose, agent="once"), (200, True))
        harness.wait_until(lambda: self.check(loose, agent="brief") == (200, True), "the token to expire")

    def test_plan_and_priority_are_for_gateways(self):
        for token in self.token(), self.token(agent="plain"):
            self.assertEqual(self.check(token, plan="enterprise"), (403, "forbidden"))
            self.assertEqual(self.check(token, priority=1), (403, "forbidden"))
            self.assertEqual(self.check(token, priority=-1), (200, True))
            self.assertIn("priority", self.resp(token, "HG.CHECK", "", "y", "PRIORITY", "5"))
            self.assertIn("plan", self.resp(token, "HG.CHECK", "", "y", "PLAN", "enterprise"))
            self.assertEqual(self.check(token, ip="10.9.8.7"), (403, "forbidden"))
        for role in ("gateway", "admin"):
            self.assertEqual(self.check(self.token(role), plan="enterprise", priority=9, ip="10.9.8.7"), (200, True))

    def test_an_agent_cannot_use_up_anothers_limit_as_its_parent(self):
        mine, theirs = self.token(agent="parent-a"), self.token(agent="parent-b")
        for _ in range(3):
            self.assertEqual(self.check(mine, "x", parent={"session": "s", "agent": "parent-b"}), (403, "wrong_agent"))
        self.assertEqual(self.check(theirs, "x"), (200, True))
        self.assertEqual(self.check(theirs, "y", session="root-b"), (200, True))
        self.assertEqual(self.check(mine, "y", parent="root-b"), (403, "wrong_subject"), "it is another's session")
        self.assertIn("root-b", self.resp(mine, "HG.CHECK", "", "y", "PARENT", "root-b"))
        self.assertEqual(self.check(theirs, "y", session="leaf", parent="root-b"), (200, True))
        self.assertEqual(self.check(mine, "y", session="leaf-a", parent="root-a"), (200, True), "its own")
        self.assertEqual(self.check(self.token("gateway"), "y", agent="parent-a",
                                    parent={"session": "root-b", "agent": "parent-b"}), (200, True))

    def test_an_agent_cannot_give_itself_back_what_it_was_charged(self):
        mine = self.token(agent="refund")
        ask = descriptor(agent="refund", operation="x")
        back = descriptor(agent="refund", operation="x", hits=1, negative=True)
        for _ in range(3):
            self.assertEqual(grpc(self.server, ask, tokens=[mine]), (0, 1))
            self.assertEqual(grpc(self.server, back, tokens=[mine])[0], 7)
        self.assertEqual(grpc(self.server, ask, tokens=[mine]), (0, 2), "3 are used up")
        gateway = self.token("gateway")
        much = descriptor(agent="refund", operation="x", hits=100, negative=True)
        self.assertEqual(grpc(self.server, much, tokens=[gateway])[0], 0)
        admitted = sum(grpc(self.server, ask, tokens=[mine]) == (0, 1) for _ in range(5))
        self.assertEqual(admitted, 3, "no more is given back than was charged")

    def test_two_authorizations_are_refused_over_grpc(self):
        mine = self.token(agent="twice")
        ask = descriptor(agent="twice", operation="y")
        self.assertEqual(grpc(self.server, ask, tokens=[mine])[0], 0)
        self.assertEqual(grpc(self.server, ask, tokens=[mine, self.server.token])[0], 16)

    def test_a_gateway_does_not_manage(self):
        gateway = self.token("gateway")
        for method, path in (("GET", "/api/overview"), ("GET", "/api/admin/tokens"), ("PUT", "/api/admin/emergency"),
                             ("GET", "/api/quotas/report")):
            self.assertEqual(self.server.call(method, path, token=gateway).status, 403, path)

    def test_the_name_dashboard_exempts_from_nothing(self):
        loose, gateway = self.token(), self.token("gateway")
        for token in loose, gateway:
            allowed = [self.check(token, "x", agent="dashboard")[1] for _ in range(5)]
            self.assertIn(False, allowed)
        self.assertEqual(self.check(loose, "u", user="dashboard", agent="z"), (200, True))
        self.assertNotIn("dashboard", self.server.manage("GET", "/api/admin/rate-limits/whitelist").json["agents"])
        bound = self.token(agent="dashboard")
        self.assertEqual([self.check(bound, "x")[1] for _ in range(5)], [True] * 5, "an admin has said so")

    def test_lists_tell_what_a_token_binds(self):
        self.token("gateway", tenant="listed-t", name="proxy")
        tokens = self.server.manage("GET", "/api/admin/tokens").json["tokens"]
        found = next(token for token in tokens if token["name"] == "proxy")
        self.assertEqual((found["role"], found["agent"], found["tenant"], found["plan"]),
                         ("gateway", None, "listed-t", None))
        told = harness.headgate("token", "list", "--width", "200", "--url", self.server.url, "--data", self.server.data)
        self.assertIn("tenant listed-t", told.stdout, told.stderr)
        made = harness.headgate("token", "create", "--role", "gateway", "--user", "cli-u", "--plan", "free", "--json",
                                "--url", self.server.url, "--data", self.server.data)
        self.assertEqual(json.loads(made.stdout)["user"], "cli-u", made.stderr)
        refused = self.server.manage("POST", "/api/admin/tokens", {"role": "viewer", "user": "x"})
        self.assertEqual((refused.status, "user goes with roles" in refused.json["message"]), (400, True))


class Quotas(unittest.TestCase):
    def test_a_token_that_binds_nobody_must_name_a_user_and_ends_nobodys_run(self):
        with harness.Server() as server:
            def made(role="agent", **bound):
                return server.manage("POST", "/api/admin/tokens", {"role": role, **bound}).json["secret"]

            def call(method, path, token, body=None):
                return server.call(method, path, body, token=token).status
            loose, bound, by_user = made(), made(agent="42"), made(user="43")
            self.assertEqual(call("POST", "/api/quotas/check", bound, {"type": "shell", "run": "mine"}), 200)
            self.assertEqual(call("POST", "/api/quotas/check", by_user, {"type": "shell", "run": "mine"}), 200,
                             "run names are each user's own")
            for path in ("executions", "usage", "queue"):
                self.assertEqual(call("GET", f"/api/quotas/{path}", loose), 403, path)
                self.assertEqual(call("GET", f"/api/quotas/{path}", made("viewer")), 200, path)
                self.assertEqual(call("GET", f"/api/quotas/{path}", bound), 200, path)
            self.assertEqual(call("GET", "/api/quotas/executions?user_id=7", loose), 200)
            self.assertEqual(call("GET", "/api/quotas/executions?user_id=42", loose), 403, "it is bound to another")
            self.assertEqual(call("DELETE", "/api/quotas/runs/mine", loose), 403)
            self.assertEqual(call("DELETE", "/api/quotas/runs/mine?user=42", loose), 403)
            self.assertEqual(call("DELETE", "/api/quotas/runs/mine?user=7", loose), 404)
            self.assertEqual(call("DELETE", "/api/quotas/runs/mine", server.token), 404, "two users have one of that name")
            self.assertEqual(call("DELETE", "/api/quotas/runs/mine", bound), 200)
            self.assertEqual(call("DELETE", "/api/quotas/runs/mine", server.token), 200, "now there is but one")
            plan = {"type": "shell", "user": "7", "plan": "enterprise"}
            self.assertEqual(call("POST", "/api/quotas/check", loose, plan), 403)
            self.assertEqual(call("POST", "/api/quotas/check", made("gateway"), plan), 200)


class Keepalive(unittest.TestCase):
    def test_a_revoked_token_is_refused_on_a_connection_that_stays_open(self):
        with harness.Server("--auth", "required") as server:
            made = server.manage("POST", "/api/admin/tokens", {"role": "agent", "agent": "A"}).json
            connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=harness.PATIENCE)

            def status():
                connection.request("POST", "/v1/check", '{"operation": "x"}',
                                   {"Authorization": f"Bearer {made['secret']}"})
                answer = connection.getresponse()
                answer.read()
                return answer.status
            self.assertEqual(status(), 200)
            server.manage("DELETE", f"/api/admin/tokens/{made['id']}")
            self.assertEqual(status(), 401)
            connection.close()


if __name__ == "__main__":
    harness.main()
