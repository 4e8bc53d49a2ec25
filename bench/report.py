#!/usr/bin/env python3
"""Reads what bench/run measured and says which goals are met, for people and as Markdown.

Usage: report.py [--update-readme] RESULTS

A figure is the median over all repetitions of all rounds. A ratio is that of two medians of the same round, so that what
the machine did in that round met both; of the rounds, the median is given, and the least and the greatest.
"""

import json
import pathlib
import statistics
import sys

README = pathlib.Path(__file__).parent / "README.md"
BEGIN = "<!-- figures: written by bench/run --update-readme -->"
END = "<!-- end of figures -->"

# Measured earlier on a machine of this kind (2 cores, AMD EPYC, Debian 12, g++ 12.2; medians of 3), string keys of 21
# bytes, one thread but for the third column. Nanoseconds per call, and bytes per key.
PEERS = [
    ("folly TokenBucket, time passed in / clock inside (no keys)", "11.8 / 42", "–", "54", "64–128"),
    ("folly buckets in 64 mutexed absl maps", "43", "621", "257", "114"),
    ("governor 0.10 direct, TSC clock / std clock (no keys)", "10 / 34", "–", "51", "–"),
    ("governor 0.10 keyed by String, TSC clock", "32", "473", "137", "98"),
    ("throttlecrab 0.4 core, time passed in / clock inside", "85 / 103", "811–954", "611", "128"),
    ("Go x/time/rate (no keys) / in a mutex + map", "84 / 93", "782", "184", "169"),
    ("node rate-limiter-flexible / python limits", "180 / 1,638", "2,170 / 4,686", "–", "134–455 / 227"),
    ("absl::flat_hash_map find, then", "14.9", "196", "–", "114"),
]

STRATEGIES = [
    # name in the benchmarks, what is said about it, its case in the memory benchmark
    ("token_bucket", "", "token_bucket"),
    ("gcra", "", "gcra"),
    ("sliding_window", "50 in the window when hot, 4 at 1 M keys", "sliding_window_one_unit"),
    ("sliding_window_counter", "", "sliding_window_counter"),
    ("fixed_window", "", "fixed_window"),
    ("leaky_bucket", "", "leaky_bucket"),
    ("concurrency", "acquire and release", "concurrency_one_hold"),
    ("quota", "", "quota"),
]


class Results:
    """All repetitions, by benchmark and round."""

    def __init__(self, folder):
        self.context = json.loads((folder / "context.json").read_text())
        engine = folder / "engine.md"
        self.engine = engine.read_text().strip() if engine.exists() else ""
        self.memory = {}  # name -> [(bytes per key, the most on the way)]
        for path in sorted(folder.glob("memory-*.json")):
            for case in json.loads(path.read_text())["cases"]:
                measured = (case["bytes_per_key"], case["worst_bytes_per_key"])
                self.memory.setdefault(case["name"], []).append(measured)
        self.runs = {}  # name -> round -> [nanoseconds per call]
        self.counters = {}  # name -> counter -> [values]
        self.failures = []
        for path in sorted(folder.glob("round-*.json")):
            round_number = int(path.name.split("-")[1])
            for run in json.loads(path.read_text())["benchmarks"]:
                if run["run_type"] == "iteration":
                    self._add(round_number, run)

    def _add(self, round_number, run):
        name = run["name"].replace("/iterations:1", "").replace("/manual_time", "").replace("/real_time", "")
        if run.get("error_occurred"):
            self.failures.append(f"{name}: {run['error_message']}")
            return
        for counter in ("allocations", "admitted", "limit"):
            if counter in run:
                self.counters.setdefault(name, {}).setdefault(counter, []).append(run[counter])
        if "items_per_second" in run:
            self.runs.setdefault(name, {}).setdefault(round_number, []).append(1e9 / run["items_per_second"])

    def has(self, name):
        return name in self.runs

    def ns(self, name):
        return statistics.median(value for values in self.runs[name].values() for value in values)

    def spread(self, name):
        """Half the distance between the quartiles, in percent of the median. None: too few to say."""
        values = sorted(value for values in self.runs[name].values() for value in values)
        if len(values) < 4:
            return None
        quartiles = statistics.quantiles(values, n=4)
        return 50 * (quartiles[2] - quartiles[0]) / quartiles[1]

    def bytes_per_key(self, case):
        return statistics.median(measured for measured, _ in self.memory[case])

    def most_bytes_per_key(self, case):
        return max(most for _, most in self.memory[case])

    def ratio(self, above, below):
        """(median of the rounds, least, greatest)"""
        rounds = set(self.runs[above]) & set(self.runs[below])
        each = [statistics.median(self.runs[above][r]) / statistics.median(self.runs[below][r]) for r in rounds]
        return statistics.median(each), min(each), max(each)


class Goals:
    def __init__(self, results):
        self.results = results
        self.rows = []

    def add(self, goal, measured, target, met):
        self.rows.append((goal, measured, target, "met" if met else "NOT met"))

    def ratio(self, goal, above, below, target, at_least=False):
        value, low, high = self.results.ratio(above, below)
        text = f"{value:.2f}×" + (f" ({low:.2f}–{high:.2f})" if high - low >= 0.005 else "")
        met = value >= target if at_least else value <= target
        self.add(goal, text, f"{'≥' if at_least else '≤'} {target:g}×", met)

    def bytes(self, goal, case, target):
        value = self.results.bytes_per_key(case)
        self.add(goal, f"{value:,.1f} B", f"≤ {target:,} B", value <= target)


def goals(results):
    g = Goals(results)
    floor = "hot/floor_absl_find"
    g.ratio("hot keys, time passed in, to an absl find", "hot/headgate", floor, 1.5)
    budget = 1.5 * results.ns(floor) + results.ns("hot/clock_steady")
    with_clock = results.ns("hot/headgate_clock_inside")
    g.add("hot keys, clock read inside", f"{with_clock:.1f} ns", f"≤ {budget:.1f} ns (1.5 finds + a clock read)",
          with_clock <= budget)
    g.ratio("1 M keys, to an absl find", "million/headgate", "million/floor_absl_find", 1.2)
    g.ratio("1 M keys, batches of 32, to an absl find", "million/headgate_batches", "million/floor_absl_find", 0.7)
    g.ratio("sliding_window to token_bucket, hot keys", "strategy_hot/sliding_window", "strategy_hot/token_bucket", 2)
    g.ratio("sliding_window to token_bucket, 1 M keys, 4 in each window", "strategy_million/sliding_window",
            "strategy_million/token_bucket", 2)
    if results.has("heavy_million/sliding_window_half_full"):
        g.ratio("sliding_window to token_bucket, 1 M keys, 50 in each window",
                "heavy_million/sliding_window_half_full", "strategy_million/token_bucket", 2)
    g.bytes("memory of a token-bucket cell at 1 M keys", "token_bucket", 48)
    g.bytes("memory of a full window of 100/60s, filled key by key", "sliding_window_full_key_by_key", 16 * 100 + 128)
    g.bytes("memory of a full window of 100/60s, filled in turns", "sliding_window_full_round_robin", 16 * 100 + 128)
    # Throughput: the time per call of one thread over that of two.
    for size, text in (("hot", "hot keys"), ("million", "1 M keys")):
        g.ratio(f"two threads, distinct keys, to one thread: {text}", f"threads_{size}/headgate/threads:1",
                f"threads_{size}/headgate/threads:2", 1.7, at_least=True)
    limits = results.counters["threads_limit/headgate"]
    most, limit = max(limits["admitted"]), limits["limit"][0]
    g.add("two threads, one key: admitted of a limit", f"{most:,.0f} of {limit:,.0f}", f"≤ {limit:,.0f}",
          most <= limit)
    g.ratio("two threads, one key, throughput to the mutex rival's", "threads_one_key/rival_mutex_map/threads:2",
            "threads_one_key/headgate/threads:2", 1, at_least=True)
    ours = {name: max(counters["allocations"]) for name, counters in results.counters.items()
            if "allocations" in counters and "floor" not in name and "rival" not in name}
    worst = max(ours, key=ours.get)
    g.add("allocations by checks on cells that exist, in any run",
          f"{ours[worst]:,.0f}" + (f" ({worst})" if ours[worst] else ""), "0", ours[worst] == 0)
    return g.rows


def ns_cell(results, name):
    if not results.has(name):
        return "–"
    value, spread = results.ns(name), results.spread(name)
    text = f"{value:.1f}" if value < 100 else f"{value:.0f}"
    return text if spread is None else f"{text} ±{spread:.0f} %"


def bytes_cell(results, case):
    if case not in results.memory:
        return "–"
    return f"{results.bytes_per_key(case):,.1f} ({results.most_bytes_per_key(case):,.1f})"


def contenders(results):
    rows = []
    for label, name, case in (
        ("absl::flat_hash_map find (the floor)", "floor_absl_find", "floor_absl_map"),
        ("Headgate token_bucket, time passed in", "headgate", "token_bucket"),
        ("Headgate token_bucket, batches of 32", "headgate_batches", None),
        ("Headgate token_bucket, clock read inside", "headgate_clock_inside", None),
        ("rival: std::mutex + std::unordered_map", "rival_mutex_map", "rival_mutex_map"),
        ("rival: 64 × mutex + absl::flat_hash_map", "rival_sharded_map", "rival_sharded_map"),
        ("steady_clock::now()", "clock_steady", None),
        ("SystemClock::now()", "clock_headgate", None),
    ):
        groups = ("hot", "one_key", "million", "million_indexed")
        rows.append((label, *(ns_cell(results, f"{group}/{name}") for group in groups), bytes_cell(results, case)))
    return rows


def strategies(results):
    rows = []
    for name, note, case in STRATEGIES:
        label = name + (f" ({note})" if note else "")
        rows.append((label, ns_cell(results, f"strategy_hot/{name}"), ns_cell(results, f"strategy_million/{name}"),
                     bytes_cell(results, case)))
    rows.append(("sliding_window (50 in the window)", "as above",
                 ns_cell(results, "heavy_million/sliding_window_half_full"), "–"))
    rows.append(("sliding_window (100 in the window, full: bytes by either way of filling it)", "–", "–",
                 f"{bytes_cell(results, 'sliding_window_full_key_by_key')} / "
                 f"{bytes_cell(results, 'sliding_window_full_round_robin')}"))
    rows.append(("token_bucket, denied", ns_cell(results, "denied_hot/headgate"),
                 ns_cell(results, "denied_million/headgate"), "–"))
    rows.append(("sliding_window (100 in the window), denied", ns_cell(results, "denied_hot/headgate_sliding_window"),
                 "–", "–"))
    return rows


def threads(results):
    rows = []
    for group, text in (("threads_hot", "1,000 distinct keys"), ("threads_million", "1 M distinct keys"),
                        ("threads_one_key", "one key")):
        for label, name in (("Headgate", "headgate"), ("rival: mutex + unordered_map", "rival_mutex_map"),
                            ("rival: 64 × mutex + absl", "rival_sharded_map")):
            one, two = (f"{group}/{name}/threads:{n}" for n in (1, 2))
            rows.append((f"{text}, {label}", f"{1e3 / results.ns(one):.1f}", f"{1e3 / results.ns(two):.1f}",
                         f"{results.ratio(one, two)[0]:.2f}×"))
    return rows


def sections(results):
    context = results.context
    steal = context["steal_ticks"] / context["ticks_per_second"] / context["seconds"] / context["cores"] * 100
    yield None, [
        f"`{context['command']}` on {context['date']}, commit {context['commit']}: {context['cores']} cores of "
        f"{context['cpu']}, {context['kernel']}, {context['compiler']}; {context['rounds']} × "
        f"{context['repetitions']} repetitions in {context['seconds']} s; load {context['load_at_start']:.2f} at the "
        f"start, {steal:.1f} % of the time stolen by the host."
    ] + (["The machine was not quiet: read the ratios with care."]
         if context["load_at_start"] > 0.5 or steal > 2 else []), None
    yield "Goals", [
        "Ratios of the medians of a round: the median of the rounds, and in brackets the least and the greatest."
    ], [("goal", "measured", "target", ""), *goals(results)]
    yield "Against the floor and the rivals", [
        "Nanoseconds per call, one thread, ± half the distance between the quartiles. The last column is the growth of "
        "the resident set for a million keys; in brackets the worst moment while the last tenth of them came in."
    ], [("", "1,000 hot keys", "one key", "1 M keys, in access order", "1 M keys, vector of strings", "bytes per key"),
        *contenders(results)]
    yield "Strategies", ["Nanoseconds per call, time passed in, one thread; bytes per key at a million keys."], [
        ("", "1,000 hot keys", "1 M keys", "bytes per key"), *strategies(results)]
    yield "Threads", ["Million calls per second, all threads together."], [
        ("", "one thread", "two threads", "two to one"), *threads(results)]
    if results.engine:
        yield "The engine", [results.engine], []
    yield "Others, quoted", [
        "Not built here: measured earlier on a machine of this kind (2 cores, AMD EPYC, Debian 12, medians of 3). "
        "Nanoseconds per call and bytes per key; compare the ratios to the absl find of the same table."
    ], [("", "hot key", "1 M random keys", "2 threads, same key", "bytes per key"), *PEERS]


def as_text(parts):
    lines = []
    for title, notes, table in parts:
        lines += ["", title, "-" * len(title)] if title else []
        lines += notes
        if table:
            widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
            for row in table:
                cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
                lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def as_markdown(parts):
    lines = []
    for title, notes, table in parts:
        lines += [f"### {title}", ""] if title else []
        for note in notes:
            lines += [note, ""]
        if table:
            lines.append("| " + " | ".join(table[0]) + " |")
            lines.append("|---|" + "---:|" * (len(table[0]) - 1))
            lines += ["| " + " | ".join(row) + " |" for row in table[1:]]
            lines.append("")
    return "\n".join(lines)


def update_readme(markdown):
    text = README.read_text()
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        sys.exit(f"{README} must hold the two lines {BEGIN!r} and {END!r}, in this order")
    README.write_text(text[:begin] + BEGIN + "\n" + markdown + text[end:])


def main():
    arguments = [a for a in sys.argv[1:] if a != "--update-readme"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    results = Results(pathlib.Path(arguments[0]))
    if results.failures:
        sys.exit("these benchmarks failed:\n  " + "\n  ".join(sorted(set(results.failures))))
    parts = list(sections(results))
    print(as_text(parts))
    if "--update-readme" in sys.argv[1:]:
        update_readme(as_markdown(parts))
        print(f"\nWritten to {README.relative_to(README.parent.parent)}")


if __name__ == "__main__":
    main()
