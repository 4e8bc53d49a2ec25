#!/usr/bin/env python3
"""Work that costs its sender little: HTTP/2 frames that ask for nothing, and patterns that are tried on every check."""

import contextlib
import socket
import struct
import subprocess
import tempfile
import pathlib
import unittest

import harness

DATA, HEADERS, PRIORITY, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 2, 4, 6, 7, 8
ENHANCE_YOUR_CALM = 11


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def field(name, value):
    """One header, neither compressed nor remembered."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)
CALL = frame(HEADERS, 0x4, 1, b"".join(field(name, value) for name, value in (
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/grpc.health.v1.Health/Check"),
    (b":authority", b"127.0.0.1"), (b"content-type", b"application/grpc"), (b"te", b"trailers"))))


class Http2Floods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def ends_calmly(self, before, flood):
        """Whether GOAWAY with ENHANCE_YOUR_CALM comes of the flood; the peer reads all that it is sent."""
        with socket.create_connection(("127.0.0.1", self.server.ports["grpc"]), timeout=harness.PATIENCE) as peer:
            with contextlib.suppress(ConnectionError):
                peer.sendall(PREFACE + before)
                for _ in range(20):
                    peer.sendall(flood * 1000)
                peer.shutdown(socket.SHUT_WR)
            got = b""
            with contextlib.suppress(ConnectionError):
                while piece := peer.recv(65536):
                    got += piece
        while len(got) >= 9:
            size = int.from_bytes(got[:3], "big")
            if got[3] == GOAWAY and got[13:17] == struct.pack(">I", ENHANCE_YOUR_CALM):
                return True
            got = got[9 + size:]
        return False

    def test_frames_that_ask_for_nothing_are_bounded(self):
        floods = {"PRIORITY": (b"", frame(PRIORITY, 0, 3, b"\0\0\0\0\x10")),
                  "WINDOW_UPDATE": (b"", frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1")),
                  "empty DATA": (CALL, frame(DATA, 0, 1))}
        for name, (before, flood) in floods.items():
            with self.subTest(name):
                self.assertTrue(self.ends_calmly(before, flood))
        self.assertEqual(self.server.call("GET", "/healthz").status, 200)

    def test_pings_and_settings_end_the_connection(self):
        for flood in (frame(PING, 0, 0, b"12345678"), frame(SETTINGS, 0, 0)):
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
