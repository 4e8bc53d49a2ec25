#!/usr/bin/env python3
"""Completions and the manual say what the commands say. Usage: completions_test.py path/to/headgate

bash, zsh and fish are asked themselves what they would offer.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_server import environment, run  # noqa: E402

BINARY = ""
SHELLS = ("bash", "zsh", "fish")


def script(shell):
    result = run("completions", shell)
    assert result.returncode == 0, result.stderr
    return result.stdout


def commands():
    """Every command, as the list in the help names them."""
    names = re.findall(r"^  ([a-z]+(?: [a-z]+)?)(?: \[COMMAND\])?  +\S", run("help").stdout, re.MULTILINE)
    return [name for name in names if not name.startswith("help")]


def options_in(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


class Bash:
    """Runs the completion function as bash would after a TAB."""

    def __init__(self):
        self.script = script("bash")

    def offers(self, line, cwd=None):
        words = line.split(" ")
        asked = "\n".join([
            self.script, "COMP_WORDS=(" + " ".join(f"'{word}'" for word in words) + ")",
            f"COMP_CWORD={len(words) - 1}", "_headgate", 'printf "%s\\n" "${COMPREPLY[@]}"'])
        done = subprocess.run(["bash", "--norc", "-c", asked], capture_output=True, text=True, timeout=180, cwd=cwd)
        assert done.stderr == "", done.stderr
        return [offer for offer in done.stdout.split("\n") if offer]


def zsh_offers(line, cwd=None):
    """Presses TAB in a zsh of its own and reads what it would insert, by way of a compadd that tells."""
    with tempfile.TemporaryDirectory() as here:
        pathlib.Path(here, "_headgate").write_text(script("zsh"))
        driver = f"""
            zmodload zsh/zpty
            zpty -b z {shutil.which('zsh')} -f
            zpty -w z $'PS1= ; fpath=({here} $fpath); autoload -Uz compinit; compinit -D -u'
            zpty -w z $'zstyle ":completion:*" verbose no; zstyle ":completion:*" list-prompt ""; LISTMAX=10000'
            zpty -w z $'compadd() {{ local -a got; builtin compadd -O got "$@"; print -rl -- "offer="$^got >> {here}/out; '\\
$'builtin compadd "$@" }}'
            zpty -w z $'bindkey "^I" list-choices; print READY'
            integer n=0
            until zpty -r z out "*READY*" || (( n++ > 100 )); do :; done
            zpty -w -n z {line!r}$'\\t'
            n=0
            until [[ -s {here}/out ]] || (( n++ > 3000 )); do sleep 0.02; done
            zpty -w z $'\\C-u exit'
            n=0
            while zpty -t z 2>/dev/null && (( n++ < 100 )); do sleep 0.02; done
            zpty -d z
        """
        subprocess.run(["zsh", "-f", "-c", driver], capture_output=True, timeout=180, cwd=cwd or here,
                       env=environment())
        out = pathlib.Path(here, "out")
        text = out.read_text() if out.exists() else ""
        return [offer for offer in re.findall(r"^offer=(.+)$", text, re.MULTILINE)]


def fish_offers(line, cwd=None):
    with tempfile.TemporaryDirectory() as home:
        asked = script("fish") + f"\ncomplete -C {line!r}\n"
        done = subprocess.run(["fish", "--no-config", "-c", asked], capture_output=True, text=True, timeout=180,
                              cwd=cwd or home, env=environment(HOME=home, XDG_CONFIG_HOME=home))
    assert done.stderr == "", done.stderr
    return [offer.split("\t")[0] for offer in done.stdout.splitlines()]


class Completions(unittest.TestCase):
    maxDiff = None

    def test_each_shell_can_read_its_script(self):
        for shell in SHELLS:
            with self.subTest(shell):
                done = subprocess.run([shell, "-n"], input=script(shell), capture_output=True, text=True, timeout=180)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_bash_offers_every_command_and_every_option(self):
        bash = Bash()
        top = {name.split()[0] for name in commands()} | {"help"}
        self.assertEqual(set(bash.offers("headgate ")), top)
        for command in commands():
            with self.subTest(command):
                parent, _, child = command.partition(" ")
                if child:
                    self.assertIn(child, bash.offers(f"headgate {parent} "))
                if command == "version":
                    continue
                offered = set(bash.offers(f"headgate {command} --"))
                told = options_in(run(*command.split(), "--help").stdout.split("Usage:")[1])
                # The help may name options of other commands in its sentences, but must name all of its own.
                self.assertEqual(offered - told, set(), "options that the help does not name")
                self.assertIn("--help", offered)

    def test_bash_offers_what_fits(self):
        bash = Bash()
        self.assertEqual(bash.offers("headgate st"), ["status"])
        self.assertEqual(bash.offers("headgate policy v"), ["validate", "versions"])
        self.assertEqual(bash.offers("headgate token create --role "), ["admin", "viewer", "gateway", "agent"])
        self.assertEqual(bash.offers("headgate token create --role = a"), ["admin", "agent"])
        self.assertEqual(bash.offers("headgate completions "), list(SHELLS))
        self.assertEqual(bash.offers("headgate check --agent A --js"), ["--json"])
        self.assertEqual(bash.offers("headgate check --agent "), [])
        self.assertEqual(bash.offers("headgate nonsense --"), [])
        self.assertIn("emergency", bash.offers("headgate help "))

    def test_bash_offers_files_where_files_go(self):
        bash = Bash()
        with tempfile.TemporaryDirectory() as here:
            pathlib.Path(here, "rules.yaml").touch()
            for line in ("headgate policy validate r", "headgate simulate --policies r", "headgate simulate --trace r",
                         "headgate check --token-file r", "headgate status --data r"):
                self.assertEqual(bash.offers(line, cwd=here), ["rules.yaml"], line)

    def test_fish_offers_the_same(self):
        bash = Bash()
        self.assertEqual(set(fish_offers("headgate ")), set(bash.offers("headgate ")))
        for command in ("check", "token create", "bench", "policy explain"):
            self.assertEqual({offer for offer in fish_offers(f"headgate {command} --")},
                             set(bash.offers(f"headgate {command} --")), command)
        self.assertEqual(fish_offers("headgate token create --role "), ["admin", "agent", "gateway", "viewer"])
        with tempfile.TemporaryDirectory() as here:
            pathlib.Path(here, "rules.yaml").touch()
            self.assertEqual(fish_offers("headgate policy validate r", cwd=here), ["rules.yaml"])
            self.assertEqual(fish_offers("headgate check --agent r", cwd=here), [])

    def test_zsh_offers_the_same(self):
        bash = Bash()
        self.assertEqual(set(zsh_offers("headgate ")), set(bash.offers("headgate ")))
        self.assertEqual(set(zsh_offers("headgate policy ")), set(bash.offers("headgate policy ")))
        self.assertEqual(set(zsh_offers("headgate token create --role ")), {"admin", "agent", "gateway", "viewer"})
        self.assertEqual(set(zsh_offers("headgate check --")), set(bash.offers("headgate check --")))

    def test_only_these_shells(self):
        for shell in ([], ["tcsh"]):
            result = run("completions", *shell)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("the shell must be bash, zsh or fish", result.stderr)


class Manual(unittest.TestCase):
    def page(self):
        return run("help", "--man").stdout

    def test_every_command_and_option_is_in_it(self):
        page = self.page().replace("\\-", "-")
        bash = Bash()
        for command in commands():
            if command == "version":
                continue
            self.assertIn(f".SS headgate {command}\n", page)
            section = page.split(f".SS headgate {command}\n")[1].split(".SS ")[0]
            for option in bash.offers(f"headgate {command} --"):
                self.assertIn(option, section, command)
        for variable in ("HEADGATE_URL", "HEADGATE_TOKEN", "HEADGATE_DATA", "NO_COLOR"):
            self.assertIn(variable, page)

    def test_man_shows_it_without_a_complaint(self):
        with tempfile.TemporaryDirectory() as here:
            file = pathlib.Path(here, "headgate.1")
            file.write_text(self.page())
            done = subprocess.run(["man", "--warnings", "-l", str(file)], capture_output=True, text=True, timeout=180,
                                  env=environment(MANWIDTH="80", LC_ALL="C.UTF-8"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        shown = re.sub(r".\x08", "", done.stdout)
        self.assertIn("headgate - rate limits for AI agents", shown)
        self.assertIn("--token-file FILE", shown)


class Help(unittest.TestCase):
    def test_every_command_has_help_that_fits(self):
        for command in commands():
            if command == "version":
                continue
            with self.subTest(command):
                result = run(*command.split(), "--help")
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertEqual(run("help", *command.split()).stdout, result.stdout)
                self.assertTrue(result.stdout.startswith(f"headgate {command}: "))
                self.assertIn(f"Usage: headgate {command}", result.stdout)
                for line in result.stdout.splitlines():
                    self.assertLessEqual(len(line), 80)
                    self.assertEqual(line, line.rstrip())
                self.assertNotIn("\n\n\n", result.stdout)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
