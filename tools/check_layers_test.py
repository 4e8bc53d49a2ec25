#!/usr/bin/env python3
"""Shows that check_layers.py finds what it must, on small trees made for it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).with_name("check_layers.py")


def run_on(files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = pathlib.Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


class CheckLayers(unittest.TestCase):
    def assert_broken(self, files, *expected):
        code, output = run_on(files)
        self.assertEqual(code, 1, output)
        for text in expected:
            self.assertIn(text, output)

    def test_a_good_tree_passes(self):
        code, output = run_on({
            "include/headgate/limit.h": '#include <cstdint>\n#include <stddef.h>\n#include "headgate/clock.h"\n',
            "src/base/hash.h": "#include <xxhash.h>\n",
            "src/core/gcra.h": '#include "base/wide.h"\n#include "headgate/limit.h"\n',
            "src/store/memory/cell.h": '#include "core/gcra.h"\n#include "store/charge.h"\n',
            "src/limiter/limiter.cc": '#include "store/memory/cell.h"\n',
            "src/capi/capi.cc": '#include "headgate/headgate.h"\n#include "limiter/wait_queue.h"\n',
            "src/cli/main.cc": "#include <headgate/limiter.h>\n#include <fmt/core.h>\n",
        })
        self.assertEqual((code, output), (0, "7 files keep the layers\n"))

    def test_a_lower_layer_may_not_include_a_higher_one(self):
        self.assert_broken(
            {"src/core/gcra.h": '#pragma once\n#include "store/memory/cell.h"\n'},
            "src/core/gcra.h:2: core may not include store (it may include: base, headgate)",
        )

    def test_angle_brackets_are_no_way_around(self):
        self.assert_broken({"src/base/text.h": "#include <core/gcra.h>\n"}, "src/base/text.h:1: base may not include core")

    def test_the_command_line_sees_only_what_users_see(self):
        self.assert_broken({"src/cli/main.cc": '#include "limiter/wait_queue.h"\n'}, "cli may not include limiter")

    def test_the_c_abi_does_not_reach_past_the_limiter(self):
        self.assert_broken({"src/capi/capi.cc": '#  include "store/charge.h"\n'}, "capi may not include store")

    def test_installed_headers_include_only_each_other_and_the_standard_library(self):
        self.assert_broken(
            {"include/headgate/limit.h": '#include <date/tz.h>\n#include <xxhash.h>\n#include "base/text.h"\n'},
            "include/headgate/limit.h:1: an installed header may include only",
            "include/headgate/limit.h:2: an installed header may include only",
            "include/headgate/limit.h:3: headgate may not include base (it may include: only itself)",
            "3 broken in 1 files",
        )

    def test_paths_begin_at_the_root(self):
        self.assert_broken({"src/core/gcra.cc": '#include "gcra.h"\n'}, 'src/core/gcra.cc:1: "gcra.h" does not begin')

    def test_a_new_folder_needs_a_rule(self):
        self.assert_broken({"src/attic/old.cc": "\n"}, "src/attic/old.cc:1: this folder has no rule")

    def test_an_empty_tree_is_no_success(self):
        self.assert_broken({"README.md": "\n"}, "no sources")


if __name__ == "__main__":
    unittest.main()
