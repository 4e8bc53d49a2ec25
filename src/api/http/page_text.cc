#include "api/http/page.h"

namespace headgate::api {

std::string_view status_page() noexcept {
  return R"HTML(<!doctype html>
<html lang="en" data-state="@STATE@">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Headgate</title>
<style nonce="@NONCE@">
:root { --back: #f6f7f9; --card: #fff; --ink: #1b1f24; --dim: #646c76; --line: #dfe3e8; --good: #1a7f4b; --bad: #c2352b; --warn: #9a6700; }
@media (prefers-color-scheme: dark) {
  :root { --back: #101317; --card: #181c22; --ink: #e6e9ee; --dim: #98a1ac; --line: #2b323b; --good: #4cc38a; --bad: #ff7b72; --warn: #e3b341; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
main, header { max-width: 1060px; margin: 0 auto; padding: 0 20px; }
header { display: flex; align-items: baseline; gap: 12px; padding-top: 22px; flex-wrap: wrap; }
h1 { font-size: 21px; margin: 0; }
h2 { font-size: 13px; margin: 0 0 8px; color: var(--dim); font-weight: 600; }
.dim { color: var(--dim); }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 18px 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 13px 15px; min-width: 0; }
.big { font-size: 25px; font-variant-numeric: tabular-nums; font-weight: 600; white-space: nowrap; }
.wide { display: grid; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); gap: 12px; margin-bottom: 30px; }
table { width: 100%; border-collapse: collapse; table-layout: fixed; }
th { text-align: right; font-weight: 500; color: var(--dim); font-size: 13px; padding: 3px 0; }
td { text-align: right; padding: 4px 0; border-top: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; width: 55%; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
#alarm { display: none; border: 1px solid var(--bad); color: var(--bad); border-radius: 10px; padding: 11px 15px; margin-top: 16px; overflow-wrap: anywhere; }
#alarm.on { display: block; }
code { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 1px 6px; font-size: 13px; }
[data-state="in"] .out, [data-state="out"] .in, [data-state="refused"] .in { display: none; }
.refused { display: none; } [data-state="refused"] .refused { display: block; }
</style>
</head>
<body>
<header><h1>Headgate</h1><span class="dim">@VERSION@</span><span class="dim in" id="state" role="status">connecting</span></header>
<main class="out">
<div class="card cards">
<p class="refused bad">That sign-in code has been used, or is too old.</p>
<p>The server is running. To see what it does, sign in: open the link that <code>headgate serve</code> printed when it started.
The link works once; a restart of the server prints a new one.</p>
<p class="dim">Programs use a token: <code>Authorization: Bearer hg_…</code>. The endpoints are described at <code>/openapi.json</code>.</p>
</div>
</main>
<main class="in">
<div id="alarm" role="alert"></div>
<div class="cards">
<div class="card"><h2>Checks a second</h2><div class="big" id="checks">–</div></div>
<div class="card"><h2>Denied a second</h2><div class="big" id="denied">–</div></div>
<div class="card"><h2>99 % within</h2><div class="big" id="p99">–</div></div>
<div class="card"><h2>Load</h2><div class="big" id="load">–</div></div>
<div class="card"><h2>Keys</h2><div class="big" id="cells">–</div></div>
<div class="card"><h2>Connections</h2><div class="big" id="connections">–</div></div>
</div>
<div class="wide">
<div class="card"><h2>Busiest agents</h2><table><thead><tr><th>agent</th><th>allowed</th><th>denied</th></tr></thead><tbody id="agents"></tbody></table></div>
<div class="card"><h2>Policies that deny most</h2><table><thead><tr><th>policy</th><th>admitted</th><th>denied</th></tr></thead><tbody id="policies"></tbody></table></div>
</div>
</main>
<script nonce="@NONCE@">
"use strict";
const by = id => document.getElementById(id);
const count = n => n == null ? "–" : n >= 1e6 ? (n / 1e6).toFixed(1) + " M" : n >= 1e4 ? (n / 1e3).toFixed(1) + " k" : String(Math.round(n * 10) / 10);
const say = (id, text, kind) => { const at = by(id); at.textContent = text; at.className = at.className.replace(/ ?(good|bad|warn)/g, "") + (kind ? " " + kind : ""); };
function fill(id, rows) {
  by(id).replaceChildren(...rows.map(([name, a, b, bad]) => {
    const row = document.createElement("tr");
    for (const text of [name, count(a), count(b)]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      row.append(cell);
    }
    row.firstChild.title = name;
    if (bad) row.firstChild.className = "bad";
    if (b > 0) row.lastChild.className = "bad";
    return row;
  }));
}
function show(o) {
  const hours = o.uptime_ms / 3600000;
  say("state", "up for " + (hours < 1 ? Math.floor(hours * 60) + " min" : hours < 48 ? hours.toFixed(1) + " h" : Math.floor(hours / 24) + " d"), "good");
  say("checks", count(o.rates.checks_per_second));
  say("denied", count(o.rates.denied_per_second), o.rates.denied_per_second > 0 ? "bad" : "");
  say("p99", o.latency.p99_us == null ? "–" : o.latency.p99_us < 1000 ? count(o.latency.p99_us) + " µs" : count(o.latency.p99_us / 1000) + " ms");
  const level = o.load.level;
  say("load", o.load.load == null ? level : Math.round(o.load.load * 100) + " %", level === "critical" ? "bad" : level === "high" ? "warn" : "");
  say("cells", count(o.cells.count), o.cells.refused > 0 || o.cells.evicted > 0 ? "warn" : "");
  say("connections", count(o.connections.http + o.connections.resp + o.connections.grpc));
  by("alarm").className = o.emergency.active ? "on" : "";
  by("alarm").textContent = o.emergency.active ? "Emergency throttle is on: " + o.emergency.reason + " (" + o.emergency.enabled_by + ", " + new Date(o.emergency.enabled_at).toLocaleString() + ")" : "";
  fill("agents", o.top_agents.map(a => [a.agent, a.allowed, a.denied, a.rate_limited]));
  fill("policies", o.top_policies.map(p => [p.policy_id, p.admitted, p.denied, false]));
}
async function look() {
  try {
    const answer = await fetch("/api/overview", { cache: "no-store" });
    if (answer.status === 401 || answer.status === 403) { document.documentElement.dataset.state = "out"; return; }
    if (!answer.ok) throw new Error(answer.status);
    show(await answer.json());
  } catch (error) {
    say("state", "cannot reach the server", "bad");
  }
  setTimeout(look, 2000);
}
if (document.documentElement.dataset.state === "in") look();
</script>
</body>
</html>
)HTML";
}

}  // namespace headgate::api
