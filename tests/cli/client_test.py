#!/usr/bin/env python3
"""The commands that use a server, against a fake one that answers as the contract says.
Usage: client_test.py path/to/headgate"""
import copy
import fcntl
import json
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_server import ALLOWED, DENIED, OVERVIEW, TOKEN, FakeHttp, run  # noqa: E402

BINARY = ""


class WithServer(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.server = FakeHttp()
        self.addCleanup(self.server.close)

    def ask(self, *arguments, token=TOKEN, **more):
        variables = {"HEADGATE_URL": self.server.url, **({"HEADGATE_TOKEN": token} if token else {})}
        return run(*arguments, **{**variables, **more})

    def told(self, *arguments, code=0, **more):
        result = self.ask(*arguments, **more)
        self.assertEqual((result.returncode, result.stderr), (code, ""), result.stdout)
        self.assertTrue(result.stdout.isascii())
        for line in result.stdout.splitlines():
            if "--json" not in arguments:
                self.assertLessEqual(len(line), 80, line)
        return result.stdout

    def refused(self, *arguments, message, code=1, **more):
        result = self.ask(*arguments, **more)
        self.assertEqual((result.returncode, result.stdout), (code, ""))
        self.assertEqual(result.stderr.splitlines()[0], "headgate: " + message)

    def last(self):
        return self.server.requests[-1]


class Check(WithServer):
    def test_allowed_is_told_in_two_lines_and_exits_with_0(self):
        self.assertEqual(self.told("check", "--agent", "A", "--operation", "CREATE_COMPONENT"),
                         "allowed: CREATE_COMPONENT by A: All rate limit policies passed\n"
                         "  49 of 50 left, policy ui-component-creation\n")
        method, path, headers, body = self.last()
        self.assertEqual((method, path, body), ("POST", "/v1/check", {"agent": "A", "operation": "CREATE_COMPONENT"}))
        self.assertEqual(headers["Content-Type"], "application/json")
        self.assertEqual(headers["Authorization"], "Bearer " + TOKEN)

    def test_several_policies_are_named_as_such(self):
        self.server.answers["POST", "/v1/check"] = (200, {**ALLOWED, "policy_ids": ["a", "b"]})
        self.assertIn("  49 of 50 left, policies a, b\n", self.told("check", "--operation", "X"))

    def test_denied_says_by_what_and_when_to_retry_and_exits_with_3(self):
        self.server.answers["POST", "/v1/check"] = (200, DENIED)
        self.assertEqual(self.told("check", "--operation", "X", code=3),
                         "denied: X: Sliding window limit 50/60s exceeded\n"
                         "  0 of 50 left, policy ui-component-creation\n"
                         "  retry in 1.5s\n")

    def test_a_cost_that_never_fits_says_so(self):
        self.server.answers["POST", "/v1/check"] = (200, {**DENIED, "retry_after_ms": -1, "error": "cost_exceeds_limit"})
        self.assertIn("no wait can help", self.told("check", "--operation", "X", code=3))

    def test_warnings_delays_and_leases_are_told(self):
        self.server.answers["POST", "/v1/check"] = (200, {
            **ALLOWED, "action": "throttle", "delay_ms": 250, "lease": "L1",
            "warnings": [{"policy_id": "p", "kind": "approaching", "remaining": 1, "capacity": 5,
                          "message": "80 % of p used\x1b[2J"}]})
        text = self.told("check", "--operation", "X")
        for words in ("action throttle", "act in 250ms", "lease L1", "warning: 80 % of p used?[2J"):
            self.assertIn(words, text)

    def test_every_option_becomes_its_field(self):
        self.told("check", "--agent", "a", "--operation", "o", "--session", "s", "--user", "u", "--tenant", "t",
                  "--plan", "p", "--channel", "c", "--resource", "r", "--ip", "10.0.0.1", "--context", "T",
                  "--attr", "componentType=Button", "--attr", "deep=true", "--attr", "n=3", "--cost", "2",
                  "--cost", "tokens=1200", "--cost", "usd=0.03", "--peek", "--hold", "--max-wait", "1.5s",
                  "--priority", "-2")
        self.assertEqual(self.last()[3], {
            "agent": "a", "operation": "o", "session": "s", "user": "u", "tenant": "t", "plan": "p", "channel": "c",
            "resource": "r", "ip": "10.0.0.1",
            "context": {"type": "T", "componentType": "Button", "deep": True, "n": "3"},
            "cost": {"requests": 2, "tokens": 1200, "usd": 0.03}, "peek": True, "hold": True, "priority": -2,
            "max_wait_ms": 1500})

    def test_json_is_the_decision_as_it_came(self):
        raw = b'{"allowed":true,  "throttle_factor":1.50, "later":[1]}'
        self.server.answers["POST", "/v1/check"] = (200, raw)
        self.assertEqual(self.told("check", "--operation", "X", "--json"), raw.decode() + "\n")

    def test_errors_of_the_server_are_told_by_code_and_message(self):
        self.server.answers["POST", "/v1/check"] = (400, {"error": "invalid_check", "message": "cost must be so"})
        self.refused("check", "--operation", "X", message="invalid_check: cost must be so")
        self.server.answers["POST", "/v1/check"] = (502, b"<html>bad gateway")
        self.refused("check", "--operation", "X", message="the server answered with status 502: <html>bad gateway")
        self.server.answers["POST", "/v1/check"] = (200, b"hello")
        self.refused("check", "--operation", "X", message=f"{self.server.url}/v1/check did not answer with JSON")

    def test_mistakes_are_told_without_asking(self):
        for arguments, message in ((["check"], "--operation is needed"),
                                   (["check", "--operation", "X", "--attr", "k"],
                                    '--attr must be NAME=VALUE, got "k"'),
                                   (["check", "--operation", "X", "--cost", "much"],
                                    'cost must be between 0 and 1000000000000, got "much"'),
                                   (["check", "--operation", "X", "--max-wait", "soon"],
                                    '--max-wait must be a duration such as 500ms or 5s, got "soon"')):
            self.refused(*arguments, message=message)
        self.assertEqual(self.server.requests, [])

    def test_whatever_is_no_answer_is_exit_code_1(self):
        self.refused("check", "--operation", "X", "--agnt", "A", message='there is no option "--agnt", did you mean "--agent"?')
        self.refused("check", "--operation", "X", "--priority", "urgent",
                     message="Could not convert: --priority = urgent")
        self.refused("check", "--operation", "X", "now", message='unexpected argument "now"')


class Connecting(WithServer):
    def test_a_server_that_is_not_there_is_told_with_what_to_do(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound, but not listening
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            message = (f"cannot reach {url}: connection refused; is the server running? start it with: headgate serve")
            for command in (["check", "--operation", "X"], ["status"], ["emergency", "status"], ["top", "--once"],
                            ["token", "list"], ["policy", "list", "--server"], ["bench"]):
                self.refused(*command, message=message, HEADGATE_URL=url)

    def test_the_option_wins_over_the_variable_and_needs_no_scheme(self):
        result = run("check", "--operation", "X", "--url", f"127.0.0.1:{self.server.port}/",
                     HEADGATE_URL="http://127.0.0.1:1")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_bad_urls_are_refused_without_showing_them(self):
        for url, why in (("ftp://x", "must begin with http:// or https://"),
                         ("http://admin:hunter2@x", "must not hold a user or password; use a token"),
                         ("http://", "must name a host"), ("http://x/?a=b", "must be scheme, host and port alone"),
                         ("http://x:70700", "must have a port between 1 and 65535")):
            result = self.ask("check", "--operation", "X", HEADGATE_URL=url)
            self.assertEqual((result.returncode, result.stderr),
                             (1, f"headgate: --url (or HEADGATE_URL) {why}\n"))

    def test_a_proxy_is_not_asked_for_a_server_on_this_machine(self):
        self.told("check", "--operation", "X", http_proxy="http://127.0.0.1:1")

    def test_a_server_that_hangs_up_is_told(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            process = subprocess.Popen([os.path.abspath(BINARY), "check", "--operation", "X", "--url", url],
                                       stderr=subprocess.PIPE, text=True)
            connection, _ = silent.accept()
            connection.recv(65536)
            connection.close()
            _, stderr = process.communicate(timeout=60)
            self.assertEqual((process.returncode, stderr),
                             (1, f"headgate: {url} closed the connection without an answer\n"))

    def test_https_is_spoken_and_a_stranger_is_not_trusted(self):
        with tempfile.TemporaryDirectory() as here:
            key, cert = f"{here}/key.pem", f"{here}/cert.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
                            "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
                           check=True, capture_output=True)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(cert, key)
            server = FakeHttp(tls=context)
            self.addCleanup(server.close)
            trusting = run("check", "--operation", "X", "--url", server.url, "--cacert", cert)
            self.assertEqual((trusting.returncode, trusting.stderr), (0, ""))
            wary = run("check", "--operation", "X", "--url", server.url)
            self.assertEqual(wary.returncode, 1)
            self.assertRegex(wary.stderr, f"cannot trust {server.url}: .*--cacert FILE")
            missing = run("check", "--operation", "X", "--url", server.url, "--cacert", f"{here}/none.pem")
            self.assertEqual(missing.stderr, f"headgate: --cacert {here}/none.pem cannot be read\n")


class Tokens(WithServer):
    """Which token is shown to whom."""

    def shown(self):
        return self.last()[2].get("Authorization")

    def test_the_admin_token_is_found_for_managing_on_this_machine_only(self):
        with tempfile.TemporaryDirectory() as here:
            data = pathlib.Path(here, "headgate-data")
            data.mkdir()
            (data / "admin.token").write_text(TOKEN + "\n")
            lock = data / "lock"
            # What listens there is not the server of that folder: it does not hold its lock, or listens elsewhere.
            self.ask("status", token="", cwd=here)
            self.assertIsNone(self.shown())
            lock.write_text(f"127.0.0.1:{self.server.port}\n")
            self.ask("status", token="", cwd=here)
            self.assertIsNone(self.shown())
            held = self.enterContext(open(lock, "r+b", buffering=0))
            fcntl.lockf(held, fcntl.LOCK_EX)  # given up when any other file object of this one is closed
            os.pwrite(held.fileno(), b"127.0.0.1:1     \n", 0)
            self.ask("status", token="", cwd=here)
            self.assertIsNone(self.shown())
            os.pwrite(held.fileno(), f"127.0.0.1:{self.server.port}\n".encode(), 0)
            self.assertEqual(self.ask("status", token="", cwd=here).returncode, 0)
            self.assertEqual(self.shown(), "Bearer " + TOKEN)
            self.ask("status", "--data", data, token="")
            self.assertEqual(self.shown(), "Bearer " + TOKEN)
            self.ask("status", token="", HEADGATE_DATA=str(data))
            self.assertEqual(self.shown(), "Bearer " + TOKEN)
            self.ask("check", "--operation", "X", token="", cwd=here)
            self.assertIsNone(self.shown())
            # A name that only looks like this machine's gets nothing: it is resolved, so asked by its own name.
            hostname = socket.gethostname()
            result = self.ask("status", "--url", f"http://{hostname}:{self.server.port}", "--data", data, token="")
            self.assertTrue(result.returncode != 0 or self.shown() is None)

    def test_the_admin_token_goes_to_the_address_of_the_server_only(self):
        port = self.server.port
        with tempfile.TemporaryDirectory() as here:
            pathlib.Path(here, "admin.token").write_text(TOKEN + "\n")
            held = self.enterContext(open(pathlib.Path(here, "lock"), "w+b", buffering=0))
            fcntl.lockf(held, fcntl.LOCK_EX)

            def shown(listener, host):
                os.truncate(held.fileno(), 0)
                os.pwrite(held.fileno(), f"{listener}:{port}\n".encode(), 0)
                before = len(self.server.requests)
                self.ask("status", "--url", f"http://{host}:{port}", "--data", here, token="")
                return [request[2].get("Authorization") for request in self.server.requests[before:]]

            # The server listens elsewhere; what answers here is another process.
            for listener in ("127.0.0.2", "[::1]", "10.0.0.1"):
                self.assertEqual(set(shown(listener, "127.0.0.1")), {None}, listener)
            self.assertEqual(shown("[::1]", "localhost"), [], "localhost is where the server listens")
            self.assertEqual(shown("127.0.0.2", "localhost")[:1], [None])
            for listener in ("127.0.0.1", "0.0.0.0"):
                for host in ("127.0.0.1", "localhost"):
                    self.assertEqual(set(shown(listener, host)), {"Bearer " + TOKEN}, (listener, host))

    def test_what_is_named_wins(self):
        with tempfile.TemporaryDirectory() as here:
            file = pathlib.Path(here, "token")
            file.write_text("from-file\n")
            self.ask("status", "--token-file", file, token="from-variable")
            self.assertEqual(self.shown(), "Bearer from-file")
            pathlib.Path(here, "admin.token").write_text("from-data")
            self.ask("status", "--data", here, token="from-variable")
            self.assertEqual(self.shown(), "Bearer from-variable")

    def test_bad_tokens_are_refused_and_never_printed(self):
        result = self.ask("status", token="two\nlines-of-secret")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertNotIn("secret", result.stderr)
        self.refused("status", "--token-file", "/nowhere",
                     message="--token-file /nowhere cannot be read, or holds no token")

    def test_without_a_token_the_way_to_one_is_told(self):
        with tempfile.TemporaryDirectory() as here:
            result = self.ask("token", "list", token="", cwd=here)
        self.assertEqual((result.returncode, result.stderr),
                         (1, "headgate: unauthorized: a token is needed\n"
                             "set HEADGATE_TOKEN, or name the server's data directory with --data DIR\n"))

    def test_create_prints_the_secret_alone_and_a_hint_beside_it(self):
        self.server.answers["POST", "/api/admin/tokens"] = (201, {"id": "t1", "secret": "hg_abc",
                                                                  "expires_at": 1_800_000_000_000})
        result = self.ask("token", "create", "--role", "agent", "--agent", "A", "--name", "ci", "--ttl", "30d")
        self.assertEqual((result.returncode, result.stdout), (0, "hg_abc\n"))
        self.assertIn("agent token t1 for agent A, good until 2027-01-15T08:00:00Z.", result.stderr)
        self.assertIn("not shown again", result.stderr)
        self.assertEqual(self.last()[3], {"role": "agent", "agent": "A", "name": "ci", "ttl_ms": 2_592_000_000})

    def test_create_refuses_what_cannot_be(self):
        for arguments, message in (([], "--role is needed: admin, viewer, gateway or agent"),
                                   (["--role", "root"], '--role must be admin, viewer, gateway or agent, got "root"'),
                                   (["--role", "admin", "--agent", "A"],
                                    "--agent goes with --role agent and gateway, got --role admin"),
                                   (["--role", "agent", "--ttl", "x"],
                                    '--ttl must be a duration such as 12h or 30d, got "x"')):
            self.refused("token", "create", *arguments, message=message, code=2)

    def test_list_is_a_table(self):
        self.server.answers["GET", "/api/admin/tokens"] = (200, {"tokens": [
            {"id": "t1", "role": "agent", "agent": "A", "plan": "free", "name": "ci", "created_at": 1_700_000_000_000,
             "expires_at": None},
            {"id": "t2", "role": "viewer", "agent": None, "name": "wall", "created_at": 1_700_000_000_000,
             "expires_at": 1_800_000_000_000}]})
        self.assertEqual([line.split() for line in self.told("token", "list").splitlines()],
                         [["ID", "ROLE", "BOUND", "TO", "NAME", "CREATED", "EXPIRES"],
                          ["t1", "agent", "agent", "A,", "plan", "free", "ci", "2023-11-14T22:13:20Z", "never"],
                          ["t2", "viewer", "wall", "2023-11-14T22:13:20Z", "2027-01-15T08:00:00Z"]])
        self.server.answers["GET", "/api/admin/tokens"] = (200, {"tokens": []})
        self.assertEqual(self.told("token", "list"), "no tokens\n")

    def test_revoke_names_the_token_in_the_path(self):
        self.server.answers["DELETE", "/api/admin/tokens/a%2F..%2Fb"] = (204, b"")
        self.assertEqual(self.told("token", "revoke", "a/../b"), "token a/../b is revoked\n")
        self.refused("token", "revoke", "zz", message="not_found: no /api/admin/tokens/zz")
        self.refused("token", "revoke", message='the id of a token is needed, as "headgate token list" shows it',
                     code=2)


class Emergency(WithServer):
    ON = {"active": True, "reason": "runaway agents", "enabled_at": 1_700_000_000_000, "enabled_by": "admin"}

    def test_on_off_and_status(self):
        self.server.answers["PUT", "/api/admin/emergency"] = (200, self.ON)
        self.server.answers["GET", "/api/admin/emergency"] = (200, self.ON)
        self.server.answers["DELETE", "/api/admin/emergency"] = (200, {"active": False})
        on = ("emergency throttle: on\n  reason  runaway agents\n  since   2023-11-14T22:13:20Z\n  by      admin\n")
        self.assertEqual(self.told("emergency", "on", "--reason", "runaway agents"), on)
        self.assertEqual(self.last()[3], {"reason": "runaway agents"})
        self.assertEqual(self.told("emergency", "status"), on)
        self.assertEqual(self.told("emergency", "off"), "emergency throttle: off\n")
        self.assertEqual(self.last()[0], "DELETE")
        self.assertEqual(json.loads(self.told("emergency", "status", "--json")), self.ON)

    def test_a_reason_is_needed(self):
        self.refused("emergency", "on", message="--reason is needed", code=2)
        self.assertEqual(self.server.requests, [])


class Policies(WithServer):
    POLICIES = {"version": 4, "source": "api", "text": "policies: []", "policies": [
        {"id": "ui", "name": "UI", "mode": "monitor", "priority": 0, "limits": ["sliding_window 50/60s", "10/1s"],
         "action": "block", "key": ["agent", "attr:x"], "source": "api"},
        {"id": "all", "mode": "enforce", "limits": [], "action": "warn", "key": [], "source": "files"}]}

    def test_list_shows_what_is_in_force(self):
        self.server.answers["GET", "/api/admin/policies"] = (200, self.POLICIES)
        for how in (["--server"], ["--url", self.server.url]):
            text = self.told("policy", "list", *how)
            self.assertIn("sliding_window 50/60s and 10/1s", " ".join(text.split()))
            self.assertRegex(text, r"all +enforce +\(all\) +unlimited +warn +files")
            self.assertTrue(text.endswith("version 4, from the API\n"))
        self.assertEqual(json.loads(self.told("policy", "list", "--server", "--json")), self.POLICIES)
        self.refused("policy", "list", "--server", "x.yaml", message="files and a server cannot both be listed", code=2)

    def test_without_a_path_the_server_is_asked_if_it_answers(self):
        self.server.answers["GET", "/healthz"] = (200, {})
        self.server.answers["GET", "/api/admin/policies"] = (200, self.POLICIES)
        shown = self.ask("policy", "list")
        self.assertEqual(shown.stderr, f"The policies of the server at {self.server.url}:\n")
        self.assertTrue(shown.stdout.endswith("version 4, from the API\n"))
        self.server.answers["GET", "/healthz"] = (503, {})
        shown = self.ask("policy", "list")
        self.assertEqual(shown.stderr, f"The built-in limits, since no server answers at {self.server.url}:\n")
        self.assertIn("tier-light", shown.stdout)

    def test_validate_tells_the_servers_problems_with_our_file(self):
        self.server.answers["POST", "/api/admin/policies/validate"] = (
            200, {"ok": False, "problems": [{"file": "text", "line": 2, "column": 5, "message": "no such key"}]})
        with tempfile.TemporaryDirectory() as here:
            file = pathlib.Path(here, "p.yaml")
            file.write_text("policies:\n")
            result = self.ask("policy", "validate", "--server", file)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (1, "", f"{file}:2:5: no such key\n"))
            self.assertEqual(self.last()[3], {"text": "policies:\n"})
            self.server.answers["POST", "/api/admin/policies/validate"] = (200, {"ok": True, "problems": []})
            self.assertEqual(self.told("policy", "validate", "--server", file), f"ok: {self.server.url} would take it\n")
            self.assertEqual(self.told("policy", "validate", "--server", "-", stdin="a: b"),
                             f"ok: {self.server.url} would take it\n")
            self.assertEqual(self.last()[3], {"text": "a: b"})
            self.refused("policy", "validate", "--server", file, file, code=2,
                         message="with a server one file is needed, or - for standard input, got 2")
            self.refused("policy", "validate", "--server", f"{here}/none", message=f"{here}/none cannot be read")
            self.refused("policy", "validate", "--server", here, message=f"{here} cannot be read")

    def test_explain_shows_what_each_policy_makes_of_it(self):
        answer = {"decision": DENIED, "policies": [
            {"id": "ui", "matches": True, "why_not": None, "key": "agent=A", "enforced": True, "variant": "",
             "cells": [{"limit": "50/60s", "capacity": 50, "remaining": 0, "reset_after_ms": 1500, "fits": False}]},
            {"id": "b", "matches": False, "why_not": "the agent is not B", "key": "", "enforced": True, "cells": []}]}
        self.server.answers["POST", "/api/admin/policies/explain"] = (200, answer)
        self.assertEqual(self.told("policy", "explain", "--server", "--agent", "A", "--operation", "X"),
                         "denied: Sliding window limit 50/60s exceeded\n\n"
                         "+ ui\n"
                         "    mode      enforced\n"
                         "    key       agent=A\n"
                         "    cell      50/60s: 0 of 50 left, full in 1.5s, the cost does not fit\n"
                         "- b\n"
                         "    no match  the agent is not B\n")
        self.assertEqual(self.last()[3], {"agent": "A", "operation": "X"})
        self.assertEqual(json.loads(self.told("policy", "explain", "--server", "--operation", "X", "--json")), answer)

    def test_versions_and_rollback(self):
        self.server.answers["GET", "/api/admin/policies/versions"] = (200, {"versions": [
            {"id": 4, "time": 1_700_000_000_000, "who": "admin", "source": "api", "note": "tighter"}]})
        self.server.answers["POST", "/api/admin/policies/rollback"] = (200, {"version": 5})
        self.assertRegex(self.told("policy", "versions"), r"4 +2023-11-14T22:13:20Z +admin +api +tighter")
        self.assertEqual(self.told("policy", "rollback", "3"), "version 3 is in force again as version 5\n")
        self.assertEqual(self.last()[3], {"version": 3})
        self.refused("policy", "rollback", code=2,
                     message='a version is needed, as "headgate policy versions" numbers them')


class Status(WithServer):
    def test_one_screen_has_it_all(self):
        text = self.told("status")
        self.assertTrue(text.startswith(f"headgate 9.8.7 at {self.server.url}, up 3h12m, ready\n"))
        for words in ("1,269,146: 1,234,567 allowed, 34,567 denied, 12 errors", "532 a second, 12.5 denied",
                      "p50 0.4 us, p99 1.3 us", "0.85 high, limits x0.5", "12,345 of 10,000,000, 7 evicted",
                      "3 HTTP, 50 RESP, 1 gRPC", "2 leases, 4 checks waiting", "12, version 3"):
            self.assertIn(words, text)
        for row in (r"alpha +300,000 +30,000 +limited", r"everyone +1,233,567 +4,555", r"alpha +17\n"):
            self.assertRegex(text, row)
        self.assertLessEqual(len(text.splitlines()), 24)

    def test_an_emergency_is_told(self):
        overview = copy.deepcopy(OVERVIEW)
        overview["emergency"] = Emergency.ON
        self.server.answers["GET", "/api/overview"] = (200, overview)
        self.assertIn("ON since 2023-11-14T22:13:20Z by admin: runaway agents", self.told("status"))

    def test_without_a_token_it_says_how_to_see_more(self):
        with tempfile.TemporaryDirectory() as here:
            text = self.told("status", token="", cwd=here)
        self.assertTrue(text.startswith(f"headgate at {self.server.url}, ready\n"))
        self.assertIn("set HEADGATE_TOKEN", text)
        self.assertIn("not with this token: unauthorized", self.told("status", token="wrong"))

    def test_a_server_that_is_not_ready_is_an_error(self):
        self.server.answers["GET", "/readyz"] = (503, {"ready": False, "database": "locked"})
        self.assertIn("not ready\n", self.told("status", code=1))
        self.assertIn("locked", self.told("status", code=1))

    def test_json_has_readiness_and_overview(self):
        self.assertEqual(json.loads(self.told("status", "--json")),
                         {"url": self.server.url, "ready": True, "readiness": {"ready": True}, "overview": OVERVIEW})
        self.assertIsNone(json.loads(self.told("status", "--json", token="wrong"))["overview"])


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
