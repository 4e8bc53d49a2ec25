#!/usr/bin/env python3
"""Work that costs its sender little: HTTP/2 frames without a request, and patterns that are tried on every check."""

import contextlib
import socket
import subprocess
import tempfile
import pathlib
import unittest

import harness
import http2_frames as http2

CALL = http2.call_head(b"/grpc.health.v1.Health/Check")


class Http2Floods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def ends_calmly(self, before, flood):
        """Whether GOAWAY with ENHANCE_YOUR_CALM comes of the flood; the peer reads all that it is sent."""
        with self.server.connect("grpc") as peer:
            with contextlib.suppress(ConnectionError):
                peer.send(http2.PREFACE + before)
                for _ in range(20):
                    peer.send(flood * 1000)
                peer.socket.shutdown(socket.SHUT_WR)
            got = peer.rest()
        return http2.goaway(got) == http2.ENHANCE_YOUR_CALM

    def test_frames_that_ask_for_nothing_are_bounded(self):
        floods = {"PRIORITY": (b"", http2.frame(http2.PRIORITY, 0, 3, b"\0\0\0\0\x10")),
                  "WINDOW_UPDATE": (b"", http2.frame(http2.WINDOW_UPDATE, 0, 0, b"\0\0\0\1")),
                  "empty DATA": (CALL, http2.frame(http2.DATA, 0, 1))}
        for name, (before, flood) in floods.items():
            with self.subTest(name):
                self.assertTrue(self.ends_calmly(before, flood))
        self.assertEqual(self.server.call("GET", "/healthz").status, 200)

    def test_pings_and_settings_end_the_connection(self):
        for flood in (http2.frame(http2.PING, 0, 0, b"12345678"), http2.frame(http2.SETTINGS, 0, 0)):
            self.ends_calmly(b"", flood)  # closed, by GOAWAY or without: the answers would fill memory
        self.assertEqual(self.server.call("GET", "/healthz").status, 200)


class Globs(unittest.TestCase):
    def test_too_many_patterns_that_begin_with_a_wildcard_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "policies.yaml"

            def validated(count):
                patterns = ", ".join(f'"*-{i}"' for i in range(count))
                path.write_text(f"policies:\n  - {{id: many, match: {{operations: [{patterns}]}}, limit: 5/60s}}\n")
                return subprocess.run([harness.BINARY, "policy", "validate", str(path)], capture_output=True, text=True,
                                      timeout=harness.PATIENCE)

            self.assertEqual(validated(4_000).returncode, 0)
            refused = validated(4_200)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn('patterns that begin with a wildcard must come to at most 65536 bytes in all, each counted as at '
                          'least 16, since each is tried on every check; policy "many" exceeds that',
                          refused.stdout + refused.stderr)


if __name__ == "__main__":
    harness.main()
