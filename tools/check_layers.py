#!/usr/bin/env python3
"""Checks that every folder includes only what it may (see CONTRIBUTING.md, "Layers").

Usage: check_layers.py [ROOT]. Prints file:line and the broken rule for each offence; exits 1 if there is any.
"""

import pathlib
import re
import sys

# What each folder may include besides itself. "headgate" is include/headgate, what an embedder sees.
MAY_INCLUDE = {
    "headgate": set(),
    "base": {"headgate"},
    "core": {"headgate", "base"},
    "store": {"headgate", "base", "core"},
    "limiter": {"headgate", "base", "core", "store"},
    "control": {"headgate", "base", "core"},
    "policy": {"headgate", "base", "core", "control"},
    "capi": {"headgate", "base", "limiter"},
    "engine": {"headgate", "base", "core", "control", "policy", "store"},
    # Protocols and sockets: no policies, no engine.
    "net": {"headgate", "base"},
    "state": {"headgate", "base"},
    # Knows the engine's events and counts, and posts webhooks.
    "observe": {"headgate", "base", "core", "control", "engine", "net"},
    # Plans, the ledger and the line of those who wait: no engine, which meets it in service.
    "quota": {"headgate", "base", "core"},
    # Operations on the domain, which all protocols share.
    "service": {"headgate", "base", "core", "control", "policy", "store", "engine", "quota", "state", "observe"},
    # Several nodes: the store they share, and the state that reaches all of them.
    "cluster": {"headgate", "base", "core", "control", "policy", "store", "engine", "quota", "state", "observe",
                "service"},
    # Handlers by protocol: a request in, an answer out.
    "api": {"headgate", "base", "core", "control", "policy", "store", "engine", "net", "quota", "state", "observe",
            "service"},
    "server": {"headgate", "base", "core", "control", "policy", "store", "engine", "net", "quota", "state", "observe",
               "service", "cluster", "api"},
    # A user of the library like any other; policy, simulate and tune work on files alone, so they need the engine;
    # serve starts the server, and the rest ask one.
    "cli": {"headgate", "base", "policy", "engine", "net", "server"},
}

# Installed headers may rely on nothing but the standard library. C++ headers have no suffix; these are C's.
C_HEADERS = {
    "assert.h", "ctype.h", "errno.h", "float.h", "inttypes.h", "limits.h", "math.h", "signal.h", "stdalign.h",
    "stdarg.h", "stdatomic.h", "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "time.h",
    "uchar.h", "wchar.h",
}

SUFFIXES = {".h", ".hh", ".hpp", ".c", ".cc", ".cpp", ".inc"}
INCLUDE = re.compile(r'\s*#\s*(?:include|include_next|import)\s*(?:"([^"]+)"|<([^>]+)>)')


def is_standard(header):
    return header in C_HEADERS or re.fullmatch(r"[a-z_0-9]+", header) is not None


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in SUFFIXES)


def layered_files(root):
    """Yields (layer, path), and (None, path) for a file in a folder that has no rule."""
    for path in files_of(root / "include"):
        yield "headgate", path
    for path in files_of(root / "src"):
        layer = path.relative_to(root / "src").parts[0]
        yield (layer if layer in MAY_INCLUDE and layer != "headgate" else None), path


def broken_rule(layer, quoted, angled):
    header = quoted or angled
    target = header.split("/")[0]
    if header in ("headgate.h", "headgate.hpp"):
        target = "headgate"
    if target in MAY_INCLUDE and (quoted or "/" in header or target == "headgate"):
        if target == layer or target in MAY_INCLUDE[layer]:
            return None
        allowed = ", ".join(sorted(MAY_INCLUDE[layer])) or "only itself"
        return f"{layer} may not include {target} (it may include: {allowed})"
    if quoted:
        return f'"{quoted}" does not begin with a folder of ours; write the path from include/ or src/'
    if layer == "headgate" and not is_standard(header):
        return f"an installed header may include only headgate/ and the standard library, not <{header}>"
    return None


def check(root):
    problems = []
    count = 0
    for layer, path in layered_files(root):
        count += 1
        name = path.relative_to(root)
        if layer is None:
            problems.append(f"{name}:1: this folder has no rule; add one to tools/check_layers.py")
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            match = INCLUDE.match(line)
            rule = broken_rule(layer, *match.groups()) if match else None
            if rule:
                problems.append(f"{name}:{number}: {rule}")
    return count, problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    count, problems = check(root)
    for problem in problems:
        print(problem)
    if count == 0:
        print(f"{root}: no sources under include/ or src/")
        return 1
    if problems:
        print(f"{len(problems)} broken in {count} files")
        return 1
    print(f"{count} files keep the layers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
