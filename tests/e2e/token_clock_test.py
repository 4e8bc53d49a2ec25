#!/usr/bin/env python3
"""Tokens that expire, and a clock that is set back."""

import unittest

import harness
from own_clock import Clock

HOUR = 3_600_000


class Expired(unittest.TestCase):
    def setUp(self):
        Clock.check_usable(self)

    def test_an_expired_token_stays_so_when_the_clock_is_set_back(self):
        with Clock() as clock, harness.Server(env=clock.env) as server:
            def make(ttl_ms):
                made = server.manage("POST", "/api/admin/tokens", {"role": "viewer", "ttl_ms": ttl_ms})
                self.assertEqual(made.status, 201, made.body)
                return made.json

            def status(token):
                return server.call("GET", "/api/overview", token=token["secret"]).status

            short, long = make(HOUR), make(24 * HOUR)
            self.assertEqual((status(short), status(long)), (200, 200))
            clock.set("+7200")
            harness.wait_until(lambda: make(HOUR)["created_at"] > short["expires_at"], "the server to see the later time")
            self.assertEqual((status(short), status(long)), (401, 200))
            clock.set("+0")
            harness.wait_until(lambda: make(HOUR)["created_at"] < short["expires_at"], "the server to see the clock set back")
            self.assertEqual((status(short), status(long)), (401, 200))


if __name__ == "__main__":
    harness.main()
