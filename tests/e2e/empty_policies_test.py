#!/usr/bin/env python3
"""A document without a key is a mistake, wherever it comes from: the policies in force stay."""

import pathlib
import signal
import tempfile
import unittest

import harness
from harness import Server, headgate, wait_until

POLICIES = """
policies:
  - {id: mine, limit: {strategy: fixed_window, limit: 10, window: 24h}, key: [agent]}
"""
EMPTY = ["", "%", "&&&", "\t", "# only a comment\n", "---\n", "{}", "---\n---\n"]


def ids(server):
    return [each["id"] for each in server.manage("GET", "/api/admin/policies").json["policies"]]


def refused(server):
    return "".join(server.log).count("policies not reloaded")


class EmptyPolicies(unittest.TestCase):
    def test_a_truncated_file_is_told_and_the_old_policies_serve_on(self):
        with Server(policies=POLICIES) as server:
            path = server.data / "policies.yaml"
            path.write_text("")
            wait_until(lambda: refused(server) == 1, "the watch has seen it")
            self.assertIn("policies.yaml:1:1: the document has no keys", "".join(server.log))
            self.assertEqual(ids(server), ["mine"])
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: refused(server) == 2, "so has the signal")
            self.assertEqual(ids(server), ["mine"])
            path.write_text("policies: []\n")
            wait_until(lambda: ids(server) == [], "who means none says so")

    def test_put_and_validate_refuse_it_with_its_place(self):
        with Server(policies=POLICIES) as server:
            for text in EMPTY:
                for body, headers in ((text, {"Content-Type": "application/yaml"}), ({"text": text}, {})):
                    put = server.manage("PUT", "/api/admin/policies", body, headers)
                    self.assertEqual(put.status, 400, repr(text))
                    problem = put.json["problems"][0]
                    self.assertEqual((problem["line"] >= 1, problem["column"] >= 1), (True, True), repr(text))
                    checked = server.manage("POST", "/api/admin/policies/validate", body, headers)
                    self.assertIs(checked.json["ok"], False, repr(text))
            self.assertEqual(ids(server), ["mine"])
            self.assertEqual(server.manage("PUT", "/api/admin/policies", {"text": "policies: []"}).status, 200)

    def test_the_command_line_and_a_start_refuse_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "p.yaml"
            for text in EMPTY:
                path.write_text(text)
                said = headgate("policy", "validate", path)
                self.assertNotEqual(said.returncode, 0, repr(text))
            path.write_text("")
            started = headgate("serve", "--data", f"{folder}/data", "--policies", path)
            self.assertNotEqual(started.returncode, 0)
            self.assertIn("p.yaml:1:1: the document has no keys", started.stderr)

    def test_hidden_files_and_backups_of_a_folder_are_not_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "a.yaml").write_text(POLICIES)
            for name in (".hidden.yaml", ".#a.yaml", "..yaml", "a.yaml~", "#a.yaml#", ".a.yaml.swp"):
                (path / name).write_text("nonsense: [")
            said = headgate("policy", "validate", folder)
            self.assertEqual(said.returncode, 0, said.stderr)
            (path / "a.yaml").unlink()
            (path / "sub.yaml").mkdir()
            said = headgate("policy", "validate", folder)
            self.assertNotEqual(said.returncode, 0)
            self.assertIn("must have at least one *.yaml, *.yml or *.json file, has none", said.stderr + said.stdout)


if __name__ == "__main__":
    harness.main()
