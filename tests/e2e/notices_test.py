#!/usr/bin/env python3
"""Notices by signed webhooks."""

import hashlib
import hmac
import http.server
import json
import threading
import time
import unittest

import harness

SECRET = "between us"
POLICIES = """
policies:
  - {id: runs, match: {operations: [run]}, limit: 1/1h}
"""


class Receiver:
    """An HTTP server that takes posts, and answers each with the next of `statuses`, then with 200."""

    def __init__(self, *statuses):
        self.posts = []
        left = list(statuses)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(handler):
                body = handler.rfile.read(int(handler.headers["Content-Length"]))
                self.posts.append((handler.path, handler.headers, body))
                handler.send_response(left.pop(0) if left else 200)
                handler.send_header("Content-Length", "0")
                handler.end_headers()

            def log_message(handler, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/hook?from=headgate"

    def emergencies(self, count):
        """The first so many posts of this kind, once they are there."""
        def here():
            return [post for post in self.posts if post[1]["X-Headgate-Event"] == "emergency"]

        harness.wait_until(lambda: len(here()) >= count, f"{count} posts")
        return here()[:count]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join(harness.PATIENCE)
        self.server.server_close()


def tells(receiver, *arguments, **env):
    """A server that posts to the receiver, by way of no proxy."""
    return harness.Server("--set", f"webhook.url={receiver.url}", *arguments, policies=POLICIES,
                          env={"no_proxy": "127.0.0.1", **env})


class Webhook(unittest.TestCase):
    def signed(self, headers, body):
        """As docs/guides/operations.md says it is."""
        text = headers["X-Headgate-Timestamp"].encode() + b"." + body
        return "sha256=" + hmac.new(SECRET.encode(), text, hashlib.sha256).hexdigest()

    def test_an_emergency_is_posted_with_a_signature(self):
        before = int(time.time())
        with Receiver() as receiver, tells(receiver, HEADGATE_WEBHOOK_SECRET=SECRET) as server:
            # A denial is everyday, and not for webhooks unless webhook.kinds names it.
            self.assertEqual([server.check()["allowed"] for _ in range(2)], [True, False])
            self.assertEqual(server.manage("PUT", "/api/admin/emergency", {"reason": "drill ✓"}).status, 200)
            ((path, headers, body),) = receiver.emergencies(1)
            self.assertEqual(path, "/hook?from=headgate")
            self.assertEqual(headers["Content-Type"], "application/json")
            self.assertEqual(headers["X-Headgate-Signature"], self.signed(headers, body))
            self.assertTrue(before <= int(headers["X-Headgate-Timestamp"]) <= time.time())
            told = json.loads(body)
            self.assertEqual(told["kind"], "emergency")
            self.assertIn("drill ✓", body.decode())
            self.assertTrue(before * 1000 <= told["time"] <= time.time() * 1000, told)
            self.assertEqual(server.manage("DELETE", "/api/admin/emergency").status, 200)
            _, (_, headers, body) = receiver.emergencies(2)
            self.assertEqual(headers["X-Headgate-Signature"], self.signed(headers, body))
            self.assertNotIn("violation", [post[1]["X-Headgate-Event"] for post in receiver.posts])
            self.assertNotIn(SECRET, "".join(server.log) + "".join(server.banner))

    def test_what_was_not_taken_is_posted_again(self):
        # What else an emergency brings about is left out: its post could be the one that is not taken.
        only = ("--set", "webhook.kinds=emergency")
        with Receiver(503) as receiver, tells(receiver, *only, HEADGATE_WEBHOOK_SECRET=SECRET) as server:
            self.assertEqual(server.manage("PUT", "/api/admin/emergency", {"reason": "drill"}).status, 200)
            (_, first, body), (_, again, same) = receiver.emergencies(2)
            self.assertEqual(first["X-Headgate-Delivery"], again["X-Headgate-Delivery"])
            self.assertEqual(body, same)
            self.assertEqual(again["X-Headgate-Signature"], self.signed(again, same))

    def test_without_a_secret_there_is_no_signature(self):
        with Receiver() as receiver, tells(receiver) as server:
            self.assertEqual(server.manage("PUT", "/api/admin/emergency", {"reason": "drill"}).status, 200)
            ((_, headers, _),) = receiver.emergencies(1)
            self.assertNotIn("X-Headgate-Signature", headers)


if __name__ == "__main__":
    harness.main()
