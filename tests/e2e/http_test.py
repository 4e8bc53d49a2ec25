#!/usr/bin/env python3
"""Every endpoint of the contract, against a running server."""

import json
import re
import socket
import subprocess
import tempfile
import time
import unittest

import harness

POLICIES = """
policies:
  - id: ui-component-creation
    match: {operations: [CREATE_COMPONENT], contexts: [UI_DEVELOPMENT]}
    limit: {strategy: sliding_window, limit: 5, window: 60s}
    warn_at: 0.8
  - {id: llm-tokens, match: {operations: [llm]}, unit: tokens, limit: {strategy: token_bucket, capacity: 1000, refill_rate: 1/min}}
  - {id: searches, match: {operations: ["GET /search"]}, key: [ip], limit: 2/60s}
  - {id: jobs, match: {operations: [job]}, limit: {strategy: concurrency, max: 1, lease_ttl: 60s}}
"""


class Asking(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(policies=POLICIES)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def create(self, agent, **more):
        return self.server.call("POST", "/v1/check", {"agent": agent, "operation": "CREATE_COMPONENT",
                                                      "context": {"type": "UI_DEVELOPMENT"}, **more})

    def test_a_check_is_answered_as_the_contract_says(self):
        before = time.time() * 1000
        answer = self.create("contract", session="s1", user="42", tenant="t", plan="free", channel="http", resource="r",
                             cost=1, peek=False, max_wait_ms=0, hold=False, priority=0)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        decision = answer.json
        reset = decision.pop("reset_time")
        self.assertTrue(before + 59_000 < reset < before + 70_000, reset)
        expected = {"allowed": True, "action": "allow", "reason": "All rate limit policies passed",
                    "policy_ids": ["ui-component-creation"], "limit": 5, "remaining": 4, "retry_after_ms": 0,
                    "delay_ms": 0, "throttle_factor": 1.0, "warnings": [], "lease": None}
        self.assertEqual({key: decision[key] for key in expected}, expected)

        self.assertEqual(answer.headers["X-RateLimit-Limit"], "5")
        self.assertEqual(answer.headers["X-RateLimit-Remaining"], "4")
        self.assertTrue(answer.headers["X-RateLimit-Reset"].isdigit())
        self.assertEqual(answer.headers["RateLimit-Policy"], '"ui-component-creation";q=5;w=60')
        self.assertRegex(answer.headers["RateLimit"], r'^"ui-component-creation";r=4;t=(59|60)$')
        self.assertIsNone(answer.headers["Retry-After"])

    def test_a_denial_is_a_decision_too(self):
        kinds = []
        for _ in range(5):
            kinds += [warning["kind"] for warning in self.create("denied").json["warnings"]]
        self.assertEqual(kinds, ["approaching"], "once per crossing")
        answer = self.create("denied")
        self.assertEqual(answer.status, 200)
        decision = answer.json
        self.assertEqual((decision["allowed"], decision["action"], decision["policy_id"], decision["remaining"]),
                         (False, "block", "ui-component-creation", 0))
        self.assertIn("5/60s", decision["reason"])
        self.assertGreater(decision["retry_after_ms"], 0)
        self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)

    def test_context_type_may_be_spelt_either_way(self):
        decision = self.server.check("spelt", "CREATE_COMPONENT", contextType="UI_DEVELOPMENT")
        self.assertEqual(decision["policy_ids"], ["ui-component-creation"])

    def test_costs_are_by_unit_and_what_never_fits_is_told(self):
        self.assertEqual(self.server.check("cost", "llm", cost={"requests": 1, "tokens": 600})["remaining"], 400)
        never = self.server.check("cost", "llm", cost={"tokens": 1200})
        self.assertEqual((never["allowed"], never["error"], never["retry_after_ms"]), (False, "cost_exceeds_limit", -1))

    def test_a_peek_charges_nothing(self):
        for _ in range(3):
            self.assertEqual(self.create("peeker", peek=True).json["remaining"], 4)

    def test_batches_are_judged_in_order(self):
        checks = [{"agent": "batch", "operation": "llm", "cost": {"tokens": 600}}] * 2 + [{"agent": "batch"}]
        answer = self.server.call("POST", "/v1/check/batch", {"checks": checks})
        self.assertEqual(answer.status, 200)
        decisions = answer.json["decisions"]
        self.assertEqual([d.get("allowed") for d in decisions], [True, False, None])
        self.assertIn("operation", decisions[2]["message"])

    def test_leases_are_settled_renewed_and_released(self):
        held = self.server.check("lease", "llm", cost={"tokens": 800}, hold=True)
        lease = held["lease"]
        self.assertTrue(lease)
        self.assertEqual(self.server.call("POST", f"/v1/leases/{lease}/renew").status, 200)
        settled = self.server.call("POST", f"/v1/leases/{lease}/settle", {"cost": {"tokens": 100}})
        self.assertEqual(settled.status, 200)
        again = self.server.call("POST", f"/v1/leases/{lease}/settle", {"cost": {"tokens": 100}})
        self.assertEqual(again.status, 200, "settling twice does nothing twice")
        self.assertEqual(self.server.check("lease", "llm", cost={"tokens": 0}, peek=True)["remaining"], 900)

        job = self.server.check("lease", "job")
        self.assertTrue(job["lease"])
        self.assertFalse(self.server.check("lease", "job")["allowed"])
        self.assertIn(self.server.call("DELETE", f"/v1/leases/{job['lease']}").status, (200, 204))
        self.assertTrue(self.server.check("lease", "job")["allowed"])
        missing = self.server.call("POST", "/v1/leases/nothing/renew")
        self.assertEqual((missing.status, missing.json["error"]), (404, "not_found"))

    def test_the_gate_answers_gateways(self):
        headers = {"X-Original-URI": "/search?q=1", "X-Original-Method": "GET", "X-Real-IP": "203.0.113.9"}
        for _ in range(2):
            passed = self.server.call("GET", "/v1/gate", headers=headers)
            self.assertEqual((passed.status, passed.body), (204, b""))
            self.assertEqual(passed.headers["X-RateLimit-Limit"], "2")
        denied = self.server.call("GET", "/v1/gate", headers=headers)
        self.assertEqual(denied.status, 429)
        self.assertEqual({"error": denied.json["error"], "policy_id": denied.json["policy_id"]},
                         {"error": "rate_limited", "policy_id": "searches"})
        self.assertIn("tier", denied.json)
        self.assertGreater(denied.json["retry_after_ms"], 0)
        self.assertGreaterEqual(int(denied.headers["Retry-After"]), 1)
        problem = self.server.call("POST", "/v1/gate", headers={**headers, "Accept": "application/problem+json"})
        self.assertEqual(problem.headers["Content-Type"], "application/problem+json")
        self.assertIn("quota-exceeded", problem.json["type"])
        self.assertEqual(problem.json["violated-policies"], ["searches"])
        named = {"X-Headgate-Agent": "gated", "X-Headgate-Operation": "llm", "X-Headgate-Session": "s",
                 "X-Headgate-User": "u", "X-Headgate-Cost": "1", "X-Headgate-Context": "C"}
        self.assertEqual(self.server.call("GET", "/v1/gate", headers=named).status, 204)
        self.assertEqual(self.server.call("GET", "/v1/gate", headers={**named, "X-Original-URI": "/x"}).status, 204)

    def test_mistakes_are_named(self):
        for body, part in (("{", "json"), ('{"operation": 5}', "operation"), ('{"agent": "A"}', "operation"),
                           ('{"operation": "x", "agnet": "A"}', "agnet"), ('{"operation": "x", "operation": "y"}', "operation"),
                           ('{"operation": "x", "cost": -1}', "cost"), ('[1]', ""), ('{"operation": "\xff"}'.encode("latin-1"), ""),
                           ('{"operation": "x", "context": ' + "[" * 2000 + "]" * 2000 + "}", "")):
            with self.subTest(body[:40]):
                answer = self.server.call("POST", "/v1/check", body)
                self.assertEqual(answer.status, 400)
                self.assertEqual(set(answer.json), {"error", "message"})
                self.assertIn(part.lower(), answer.json["message"].lower())

    def test_http_is_done_right(self):
        call = self.server.call
        self.assertEqual((call("GET", "/nowhere").status, call("GET", "/nowhere").json["error"]), (404, "not_found"))
        wrong = call("GET", "/v1/check")
        self.assertEqual((wrong.status, wrong.headers["Allow"].split(", ")[0]), (405, "POST"))
        options = call("OPTIONS", "/v1/check")
        self.assertEqual(options.status, 204)
        self.assertIn("POST", options.headers["Allow"])
        head = call("HEAD", "/healthz")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertGreater(int(head.headers["Content-Length"]), 0)
        media = call("POST", "/v1/check", '{"operation": "x"}', {"Content-Type": "text/plain"})
        self.assertEqual(media.status, 415)
        large = call("POST", "/v1/check", b'{"operation": "' + b"x" * 2_000_000 + b'"}')
        self.assertEqual((large.status, large.json["error"]), (413, "payload_too_large"))
        long = call("GET", "/healthz", headers={"X-Long": "x" * 40_000})
        self.assertEqual(long.status, 431)

    def test_pipelined_requests_are_answered_in_order_in_one_go(self):
        request = b"POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s"
        sent = b""
        for i in range(20):
            body = b'{"operation": "free", "agent": "p%02d", "peek": true}' % i if i % 2 else b"{}"
            sent += request % (len(body), body)
        sent += b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.server.ports["http"]), timeout=harness.PATIENCE) as connection:
            connection.sendall(sent)
            got = b""
            while piece := connection.recv(1 << 20):
                got += piece
        self.assertEqual(re.findall(rb"HTTP/1\.1 (\d+)", got), [b"400", b"200"] * 10 + [b"200"])

    def test_curl_asks_as_the_banner_says(self):
        line = next(line for line in self.server.banner if "curl" in line)
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=harness.PATIENCE)
        self.assertEqual(json.loads(done.stdout)["allowed"], True)

    def test_metrics_are_prometheus_text(self):
        self.server.check("metrics", "llm", cost={"tokens": 1})
        answer = self.server.call("GET", "/metrics")
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.headers["Content-Type"].startswith("text/plain"))
        text = answer.body.decode()
        for name in ('headgate_checks_total{protocol="http",result="allowed"}', "headgate_check_duration_seconds_bucket",
                     'headgate_policy_checks_total{policy="llm-tokens"', "headgate_cells", "headgate_connections",
                     "headgate_reloads_total", "process_resident_memory_bytes"):
            self.assertIn(name, text)

    def test_health(self):
        self.assertEqual(self.server.call("GET", "/healthz").json["status"], "ok")
        self.assertEqual(self.server.call("GET", "/readyz").status, 200)

    def test_openapi_names_every_endpoint_of_the_contract(self):
        paths = self.server.call("GET", "/openapi.json").json["paths"]
        for path in ("/v1/check", "/v1/check/batch", "/v1/leases/{id}/settle", "/v1/leases/{id}/renew", "/v1/leases/{id}",
                     "/v1/gate", "/v1/ws", "/healthz", "/readyz", "/metrics", "/api/admin/rate-limits",
                     "/api/admin/rate-limits/defaults", "/api/admin/rate-limits/whitelist", "/api/admin/policies",
                     "/api/admin/policies/validate", "/api/admin/policies/simulate", "/api/admin/policies/versions",
                     "/api/admin/policies/rollback", "/api/admin/emergency", "/api/admin/load", "/api/admin/audit",
                     "/api/admin/tokens", "/api/agents", "/api/overview", "/api/history", "/api/events", "/api/alerts"):
            self.assertIn(path, paths)


class Managing(unittest.TestCase):
    def setUp(self):
        self.server = harness.Server(policies=POLICIES)
        self.addCleanup(self.server.__exit__)

    def manage(self, method, path, body=None, status=200, **more):
        answer = self.server.manage(method, path, body, **more)
        self.assertEqual(answer.status, status, answer.body)
        return answer.json if answer.body else None

    def test_overrides_take_effect_on_the_very_next_check(self):
        with harness.Server() as server:
            self.assertEqual(server.check("A", "run")["limit"], 60)
            put = server.manage("PUT", "/api/admin/rate-limits/A", {"normal": {"capacity": 7, "refill_per_minute": 7}})
            self.assertEqual(put.status, 200, put.body)
            self.assertEqual(server.check("A", "run")["limit"], 7)
            self.assertEqual(server.check("B", "run")["limit"], 60)
            limits = server.manage("GET", "/api/admin/rate-limits").json
            self.assertEqual(limits["defaults"]["light"]["capacity"], 120)
            self.assertEqual(server.manage("DELETE", "/api/admin/rate-limits/A").status, 200)
            self.assertEqual(server.check("A", "run")["limit"], 60)
            put = server.manage("PUT", "/api/admin/rate-limits/defaults", {"normal": {"capacity": 30, "refill_per_minute": 30}})
            self.assertEqual(put.status, 200, put.body)
            self.assertEqual(server.check("C", "run")["limit"], 30)
            bad = server.manage("PUT", "/api/admin/rate-limits/A", {"huge": {"capacity": 1, "refill_per_minute": 1}})
            self.assertEqual(bad.status, 400)
            actions = [entry["action"] for entry in server.manage("GET", "/api/admin/audit").json["entries"]]
            self.assertGreaterEqual(len(actions), 3)

    def test_the_whitelist_exempts(self):
        self.manage("PUT", "/api/admin/rate-limits/whitelist", {"agents": ["x", "y"]})
        self.manage("POST", "/api/admin/rate-limits/whitelist", {"agent": "z"})
        self.assertLessEqual({"x", "y", "z"}, set(self.manage("GET", "/api/admin/rate-limits/whitelist")["agents"]))
        for _ in range(10):
            self.assertTrue(self.server.check("z", "CREATE_COMPONENT", context={"type": "UI_DEVELOPMENT"})["allowed"])
        self.manage("DELETE", "/api/admin/rate-limits/whitelist/z")
        self.assertNotIn("z", self.manage("GET", "/api/admin/rate-limits/whitelist")["agents"])
        self.manage("DELETE", "/api/admin/rate-limits/whitelist/z", status=404)

    def test_policies_are_put_validated_rolled_back_and_simulated(self):
        first = self.manage("GET", "/api/admin/policies")
        self.assertEqual({p["id"] for p in first["policies"]},
                         {"ui-component-creation", "llm-tokens", "searches", "jobs"} | {p["id"] for p in first["policies"]})
        self.manage("PUT", "/api/admin/policies/extra", {"id": "extra", "match": {"operations": ["extra"]}, "limit": "1/60s"})
        self.assertTrue(self.server.check("A", "extra")["allowed"])
        self.assertFalse(self.server.check("A", "extra")["allowed"])
        self.manage("DELETE", "/api/admin/policies/extra")
        self.assertTrue(self.server.check("A", "extra")["allowed"])

        document = "policies:\n  - {id: only, match: {operations: [only]}, limit: 1/60s}\n"
        checked = self.manage("POST", "/api/admin/policies/validate", {"text": document})
        self.assertTrue(checked["ok"])
        wrong = self.manage("POST", "/api/admin/policies/validate", {"text": "policies:\n  - {id: only, limt: 1/60s}\n"})
        self.assertFalse(wrong["ok"])
        self.assertEqual(wrong["problems"][0]["line"], 2)
        self.assertIn("did you mean", " ".join(problem["message"] for problem in wrong["problems"]))
        refused = self.server.manage("PUT", "/api/admin/policies", "policies: [{id: x}]")
        self.assertEqual(refused.status, 400)
        self.manage("PUT", "/api/admin/policies", document, headers={"Content-Type": "application/yaml"})
        self.assertEqual(self.server.check("A", "only")["policy_ids"], ["only"])
        versions = self.manage("GET", "/api/admin/policies/versions")["versions"]
        self.assertGreaterEqual(len(versions), 4)
        self.manage("POST", "/api/admin/policies/rollback", {"version": versions[-1]["id"]})
        self.assertEqual(self.server.check("A", "only")["policy_ids"], [])
        trace = "\n".join(json.dumps({"t": i, "agent": "A", "operation": "only"}) for i in range(3))
        replay = self.manage("POST", "/api/admin/policies/simulate", {"text": document, "trace": trace})
        self.assertEqual((replay["checks"], replay["allowed"], replay["denied"]), (3, 1, 2))

    def test_emergency_and_load_scale_limits(self):
        self.assertFalse(self.manage("GET", "/api/admin/emergency")["active"])
        on = self.manage("PUT", "/api/admin/emergency", {"reason": "runaway"})
        self.assertEqual((on["active"], on["reason"]), (True, "runaway"))
        self.assertTrue(on["enabled_at"] and on["enabled_by"])
        self.manage("PUT", "/api/admin/emergency", {}, status=400)
        self.assertFalse(self.manage("DELETE", "/api/admin/emergency")["active"])
        self.manage("PUT", "/api/admin/load", {"load": 0.85})
        self.manage("PUT", "/api/admin/load", {"load": 7}, status=400)

    def test_tokens_are_made_listed_and_revoked(self):
        made = self.manage("POST", "/api/admin/tokens", {"role": "viewer", "name": "eyes"}, status=201)
        listed = self.manage("GET", "/api/admin/tokens")["tokens"]
        self.assertIn(made["id"], [token["id"] for token in listed])
        self.assertNotIn(made["secret"], json.dumps(listed))
        self.assertEqual(self.server.call("GET", "/api/overview", token=made["secret"]).status, 200)
        forbidden = self.server.call("PUT", "/api/admin/emergency", {"reason": "x"}, token=made["secret"])
        self.assertEqual(forbidden.status, 403)
        self.server.manage("DELETE", f"/api/admin/tokens/{made['id']}")
        self.assertEqual(self.server.call("GET", "/api/overview", token=made["secret"]).status, 401)

    def test_agents_show_use_and_who_is_limited(self):
        for _ in range(7):
            self.server.check("busy", "CREATE_COMPONENT", context={"type": "UI_DEVELOPMENT"})
        self.server.check("calm", "llm", cost={"tokens": 1})
        agents = {agent["agent"]: agent for agent in self.manage("GET", "/api/agents")["agents"]}
        self.assertTrue(agents["busy"]["rate_limited"])
        self.assertFalse(agents["calm"]["rate_limited"])
        eligible = {agent["agent"] for agent in self.manage("GET", "/api/agents?eligible=true")["agents"]}
        self.assertIn("calm", eligible)
        self.assertNotIn("busy", eligible)
        one = self.manage("GET", "/api/agents/busy")
        self.assertEqual(one["violations"], 2)
        self.assertEqual(one["denied"], 2)

    def test_overview_history_alerts_and_audit(self):
        self.server.check("A", "llm", cost={"tokens": 1})
        overview = self.manage("GET", "/api/overview")
        self.assertGreaterEqual(overview["checks"]["allowed"], 1)
        self.assertIn("points", self.manage("GET", "/api/history?since=0&step=10000"))
        self.manage("PUT", "/api/admin/emergency", {"reason": "drill"})
        alerts = harness.wait_until(lambda: self.manage("GET", "/api/alerts")["alerts"], "an alert")
        self.manage("POST", f"/api/alerts/{alerts[0]['id']}/ack", status=200)
        entries = self.manage("GET", "/api/admin/audit?limit=10")["entries"]
        self.assertTrue(any(entry["action"] == "emergency.on" for entry in entries), entries)

    def test_events_arrive_as_they_happen(self):
        with socket.create_connection(("127.0.0.1", self.server.ports["http"]), timeout=harness.PATIENCE) as connection:
            connection.sendall(f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.server.token}\r\n"
                               "\r\n".encode())
            got = b""
            while b"\r\n\r\n" not in got:
                got += connection.recv(65536)
            self.assertIn(b"text/event-stream", got)
            self.manage("PUT", "/api/admin/emergency", {"reason": "drill"})
            while b"emergency" not in got:
                got += connection.recv(65536)

    def test_the_page_signs_in_with_the_printed_link(self):
        link = next(line.strip() for line in self.server.banner if "/?code=" in line)
        path = link[link.index("/?code="):]
        first = self.server.call("GET", path)
        self.assertIn(first.status, (302, 303))
        cookie = first.headers["Set-Cookie"]
        self.assertIn("HttpOnly", cookie)
        self.assertIn("SameSite=Strict", cookie)
        session = {"Cookie": cookie.split(";")[0]}
        self.assertEqual(self.server.call("GET", "/api/overview", headers=session).status, 200)
        page = self.server.call("GET", "/", headers=session)
        self.assertEqual(page.status, 200)
        self.assertIn("text/html", page.headers["Content-Type"])
        self.assertIn("Content-Security-Policy", page.headers)
        again = self.server.call("GET", path)
        self.assertNotIn("Set-Cookie", again.headers, "a code is good once")
        other = self.server.call("PUT", "/api/admin/emergency", {"reason": "x"},
                                 headers={**session, "Origin": "http://evil.example"})
        self.assertEqual(other.status, 403)


if __name__ == "__main__":
    harness.main()
