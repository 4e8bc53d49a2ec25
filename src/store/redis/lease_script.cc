#include "store/redis/lease_script.h"

#include <fmt/format.h>

#include <array>

namespace headgate::store::redis {
namespace {

// One pass over all records only where one may have lapsed, and then not again for a quarter of a ttl: with a thousand
// nodes each message must cost little.
constexpr std::string_view kText = R"(
local record, field = KEYS[1], 'n' .. ARGV[1]
local number, left, want = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local least, cap, ttl = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function read(text)
  local units, till, last = string.match(text, '^(%d+) (%d+) (%d+)$')
  return tonumber(units), tonumber(till), tonumber(last)
end

local known = redis.call('HMGET', record, 'out', 'look', field)
local out, look, own = tonumber(known[1] or 0), tonumber(known[2] or now + ttl), 0
if known[3] then
  local units, _, last = read(known[3])
  if number <= last then return {-1, out} end
  own = units
end
if now >= look then
  local all, first = redis.call('HGETALL', record), now + ttl
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) == 'n' then
      local units, till = read(all[i + 1])
      if till <= now then
        redis.call('HDEL', record, all[i])
        out = out - units
        if all[i] == field then own = 0 end
      elseif till < first then
        first = till
      end
    end
  end
  look = math.max(first, now + math.floor(ttl / 4))
end

local room = math.max(0, cap - (out - own))
local held = math.min(left, room)
local grant = math.min(want, math.ceil((room - held) / 2))
if grant >= least then held = held + grant end
out = out - own + held
if held > 0 then
  redis.call('HSET', record, field, string.format('%.0f %.0f %.0f', held, now + ttl, number))
else
  redis.call('HDEL', record, field)
end
if out > 0 then
  redis.call('HSET', record, 'out', string.format('%.0f', out), 'look', string.format('%.0f', look))
  redis.call('PEXPIRE', record, math.ceil(ttl / 500))
else
  redis.call('DEL', record)
end
return {held, out}
)";

}  // namespace

const Script& lease_script() {
  static const Script kScript = make_script(kText);
  return kScript;
}

Command hold_command(std::string_view prefix, std::string_view node, const Hold& hold) {
  const Script& script = lease_script();
  // The cell's own key and a suffix, so that both lie in one slot.
  const std::string key = cell_key(prefix, hold.cell) + ":l";
  const fmt::format_int number(hold.number);
  const fmt::format_int left(hold.left);
  const fmt::format_int want(hold.want);
  const fmt::format_int least(hold.least);
  const fmt::format_int cap(hold.cap);
  // Rounded up: the record must not lapse before its node stops.
  const fmt::format_int ttl(std::chrono::ceil<std::chrono::microseconds>(hold.ttl).count());
  const auto text = [](const fmt::format_int& n) { return std::string_view{n.data(), n.size()}; };
  Command command;
  append_call(script, std::array{std::string_view(key)},
              std::array{node, text(number), text(left), text(want), text(least), text(cap), text(ttl)}, command.wire);
  command.slot = slot_of(key);
  command.script = &script;
  return command;
}

std::optional<Held> read_held(const Reply& reply) {
  if (reply.size() != 2 || !reply[0].is_integer() || !reply[1].is_integer()) return std::nullopt;
  const Held held{reply[0].integer(), reply[1].integer()};
  if (held.units < 0) return std::nullopt;
  return held;
}

}  // namespace headgate::store::redis
