#!/usr/bin/env python3
"""${NAME} in configuration and policy files, and the store that a document with rate_limiting configures."""

import pathlib
import tempfile
import unittest

import harness
from cluster_harness import Redis

LIMITS = """
rate_limiting:
  enabled: true
  storage: redis
  redis_url: ${REDIS_URL}
  default_limits:
    api_calls: {max_requests: "${CALLS}", window_seconds: 3600}
"""


class Variables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def test_a_value_of_the_configuration_may_have_them(self):
        config = self.write("headgate.yaml", 'quotas: {mode: "${QUOTA_MODE}", timezone: "Europe/${CITY}"}\n')
        env = {"QUOTA_MODE": "monitor", "CITY": "Berlin"}
        with harness.Server("--config", str(config), env=env) as server:
            status = server.manage("GET", "/api/quotas/user/42").json
            self.assertEqual((status["mode"], status["timezone"]), ("monitor", "Europe/Berlin"))

    def test_one_that_is_not_set_is_named(self):
        config = self.write("headgate.yaml", "data: ./x\nquotas: {mode: \"${NOT_SET_HERE}\"}\n")
        refused = harness.headgate("serve", "--config", config)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("headgate.yaml:2:16: environment variable NOT_SET_HERE is not set", refused.stderr)
        policies = self.write("p.yaml", "policies:\n  - {id: p, limit: 5/1s, message: \"ask ${NOT_SET_HERE}\"}\n")
        refused = harness.headgate("policy", "validate", policies)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("p.yaml:2:35: environment variable NOT_SET_HERE is not set", refused.stdout + refused.stderr)
        text = self.write("q.yaml", "policies:\n  - {id: p, limit: 5/1s, message: \"it costs $${amount}\"}\n")
        self.assertEqual(harness.headgate("policy", "validate", text).returncode, 0)

    def test_a_document_that_is_sent_reads_no_environment(self):
        with harness.Server(env={"SECRET": "hidden"}) as server:
            document = 'policies: [{id: p, limit: 1/1h, message: "${SECRET}"}]'
            for method, path in (("PUT", "/api/admin/policies"), ("POST", "/api/admin/policies/validate")):
                answer = server.manage(method, path, document)
                self.assertIn(b"files only", answer.body)
                self.assertNotIn(b"hidden", answer.body)

    def test_a_document_chooses_the_store(self):
        with Redis() as redis:
            env = {"REDIS_URL": redis.url, "CALLS": "2", "HEADGATE_STORE_DEADLINE": "5s"}
            with harness.Server(policies=LIMITS, env=env) as first, harness.Server(policies=LIMITS, env=env) as second:
                told = [server.check(operation="api_calls")["allowed"] for server in (first, second, first, second)]
                self.assertEqual(told, [True, True, False, False])
            # What the server's own configuration says goes first.
            with harness.Server("--set", "store.kind=memory", policies=LIMITS, env=env) as alone:
                self.assertTrue(alone.check(operation="api_calls")["allowed"])


if __name__ == "__main__":
    harness.main()
