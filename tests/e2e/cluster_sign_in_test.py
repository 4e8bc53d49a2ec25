#!/usr/bin/env python3
"""Nodes over a Redis that requires a client certificate, and over sentinels with a password of their own."""

import contextlib
import pathlib
import subprocess
import tempfile
import unittest

import harness
import redis
from cluster_harness import Node, Redis, sentinel

POLICIES = """
policies:
  - {id: runs, match: {operations: [run]}, key: [agent], limit: {strategy: sliding_window, limit: 60, window: 1h}}
"""
DATA_PASSWORD = "open-sesame-4711"
SENTINEL_PASSWORD = "who-is-the-master-0815"


class Certificates:
    """An authority, a certificate of its for 127.0.0.1, one for clients, and one of another authority."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        for authority in ("ca", "stranger"):
            self._openssl("req", "-x509", *self._new_key(authority), "-days", "2", "-out", f"{authority}.pem")
        (self.folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:redis.test")
        for name in ("redis", "client"):
            self._openssl("req", *self._new_key(name), "-out", f"{name}.csr")
            self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                          "-days", "2", "-extfile", "names", "-out", f"{name}.pem")

    @staticmethod
    def _new_key(name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout",
                f"{name}.key")

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def __getitem__(self, name):
        return str(self.folder / name)


class TlsRedis(Redis):
    """One that talks over TLS alone, and only to those who show a certificate of its authority."""

    def __init__(self, certificates):
        self.certificates = certificates
        port = harness.free_port()
        super().__init__("--tls-port", str(port), "--tls-cert-file", certificates["redis.pem"], "--tls-key-file",
                         certificates["redis.key"], "--tls-ca-cert-file", certificates["ca.pem"], "--tls-auth-clients",
                         "yes", "--port", "0", port=port)

    @property
    def url(self):
        return f"rediss://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def client(self):
        client = redis.Redis("127.0.0.1", self.port, socket_timeout=harness.PATIENCE, ssl=True,
                             ssl_ca_certs=self.certificates["ca.pem"], ssl_certfile=self.certificates["client.pem"],
                             ssl_keyfile=self.certificates["client.key"])
        with contextlib.closing(client):
            yield client


class Case(unittest.TestCase):
    def refused(self, url, **settings):
        """What is said by a server that does not start."""
        with self.assertRaises(AssertionError) as caught, Node("n1", url, POLICIES, **settings):
            pass
        said = str(caught.exception)
        self.assertIn("the server ended with 1", said)
        return said

    def assert_charges(self, node, server):
        harness.wait_until(node.is_ready, "a node that is ready")
        self.assertTrue(node.check("A")["allowed"])
        self.assertEqual(node.left("A", "run"), 59)
        self.assertEqual(len(server.do("KEYS", "headgate:c:*")), 1)


class ClientCertificates(Case):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.files = Certificates(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        cls.server = cls.stack.enter_context(TlsRedis(cls.files))

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def setUp(self):
        self.server.do("FLUSHALL")

    def test_a_node_that_shows_its_certificate_charges_in_redis(self):
        with Node("n1", self.server.url, POLICIES, ca=self.files["ca.pem"], cert=self.files["client.pem"],
                  key=self.files["client.key"]) as node:
            self.assert_charges(node, self.server)

    def test_a_node_without_a_certificate_says_that_one_is_wanted(self):
        said = self.refused(self.server.url, ca=self.files["ca.pem"])
        self.assertIn("certificate required", said)
        self.assertIn(f"127.0.0.1:{self.server.port}", said)

    def test_a_strangers_certificate_is_refused_by_redis_and_the_log_says_so(self):
        said = self.refused(self.server.url, ca=self.files["ca.pem"], cert=self.files["stranger.pem"],
                            key=self.files["stranger.key"])
        self.assertIn("unknown ca", said)

    def test_the_certificate_of_redis_must_be_for_the_server_name(self):
        own = {"ca": self.files["ca.pem"], "cert": self.files["client.pem"], "key": self.files["client.key"]}
        with Node("n1", self.server.url, POLICIES, server_name="redis.test", **own) as node:
            self.assert_charges(node, self.server)
        self.assertIn("hostname mismatch", self.refused(self.server.url, server_name="other.test", **own))

    def test_files_that_are_no_certificate_or_another_ones_key_are_named(self):
        said = self.refused(self.server.url, cert=self.files["names"], key=self.files["client.key"])
        self.assertIn(f"{self.files['names']}: no start line", said)
        said = self.refused(self.server.url, cert=self.files["client.pem"], key=self.files["redis.key"])
        self.assertIn(f"{self.files['redis.key']}: key values mismatch", said)
        said = self.refused(self.server.url, cert=self.files["client.pem"], key=self.files["nothing"])
        self.assertIn(f"store.key: there is no file {self.files['nothing']}", said)


class Sentinels(Case):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.master = cls.stack.enter_context(LockedRedis())
        cls.ports = [harness.free_port() for _ in range(2)]
        for port in cls.ports:
            cls.stack.enter_context(sentinel(port, cls.master.port, f"sentinel auth-pass main {DATA_PASSWORD}",
                                             f"requirepass {SENTINEL_PASSWORD}",
                                             f"user watcher on >{SENTINEL_PASSWORD}-2 ~* &* +@all"))
        hosts = ",".join(f"127.0.0.1:{port}" for port in cls.ports)
        cls.url = f"redis+sentinel://:{DATA_PASSWORD}@{hosts}/main"

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def setUp(self):
        self.master.do("FLUSHALL")

    def assert_silent(self, text):
        for secret in (DATA_PASSWORD, SENTINEL_PASSWORD):
            self.assertNotIn(secret, text)

    def test_a_node_signs_in_to_sentinels_and_master_with_a_password_each(self):
        with Node("n1", self.url, POLICIES, sentinel_password=SENTINEL_PASSWORD) as node:
            self.assert_charges(node, self.master)
            self.assert_silent("".join(node.log + node.banner))

    def test_a_node_signs_in_to_sentinels_as_a_user(self):
        own = {"sentinel_user": "watcher", "sentinel_password": f"{SENTINEL_PASSWORD}-2"}
        with Node("n1", self.url, POLICIES, **own) as node:
            self.assert_charges(node, self.master)

    def test_a_wrong_password_of_the_sentinels_is_named_and_not_shown(self):
        for settings in ({}, {"sentinel_password": f"{SENTINEL_PASSWORD}-not"}):
            said = self.refused(self.url, **settings)
            self.assertRegex(said, rf"127.0.0.1:({'|'.join(map(str, self.ports))}): WRONGPASS")
            self.assert_silent(said)

    def test_the_configuration_in_effect_is_printed_without_passwords(self):
        printed = harness.headgate("serve", "--print-config",
                                   env={"HEADGATE_STORE_KIND": "redis", "HEADGATE_STORE_URL": self.url,
                                        "HEADGATE_STORE_SENTINEL_PASSWORD": SENTINEL_PASSWORD})
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertIn("sentinel_password is set, and not shown", printed.stdout)
        self.assert_silent(printed.stdout + printed.stderr)


class LockedRedis(Redis):
    def __init__(self):
        super().__init__("--requirepass", DATA_PASSWORD)

    @contextlib.contextmanager
    def client(self):
        client = redis.Redis("127.0.0.1", self.port, password=DATA_PASSWORD, socket_timeout=harness.PATIENCE)
        with contextlib.closing(client):
            yield client


if __name__ == "__main__":
    harness.main()
