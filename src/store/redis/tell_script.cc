#include "store/redis/plan_script.h"
#include "store/redis/script_text.h"

namespace headgate::store::redis {
namespace {

constexpr std::string_view kTimeText = R"lua(
local A = ARGV[1]
local call, unpack, pack = redis.call, struct.unpack, struct.pack
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
)lua";

// What is told about one cell: that units come back, that a hold is over or goes on. Answers 1 where that was so.
constexpr std::string_view kTellText = R"lua(
local key, kind = KEYS[1], byte(A, 18)
if kind == 6 then
  local ttl = unpack('<d', A, 19)
  local z = try('ZMSCORE', key, 'h', 'd', lease)
  if z.err or (not z[1] and call('EXISTS', key) == 1) then return pack('<Bdd', 4, now, 1) end
  if not z[1] then return pack('<Bdd', 1, now, 0) end
  local total = -z[1]
  local function remove(hold)
    local units = total >= 131072 and call('ZSCORE', key, 'u' .. hold)
    total = total - (units and 131072 - units or 1)
    call('ZREM', key, hold, 'u' .. hold)
  end
  local expired = call('ZRANGEBYSCORE', key, '0', string.format('%.0f', now))
  for j = 1, #expired do remove(expired[j]) end
  local found = z[3] and tonumber(z[3]) > now
  if found and op == 3 then
    remove(lease)
  elseif found then
    local expiry = math.max(tonumber(z[3]), now + ttl)
    call('ZADD', key, string.format('%.0f', expiry), lease)
    if expiry > -z[2] then
      local dies = 2 * expiry - now + spare
      call('ZADD', key, -dies, 'd')
      call('PEXPIRE', key, string.format('%.0f', (dies - now) / 1000))
    end
  end
  if total == 0 then call('DEL', key) elseif total ~= -z[1] then call('ZADD', key, -total, 'h') end
  return pack('<Bdd', found and 0 or 1, now, 0)
end

local shape, also, s, k, dies, units, W, x
if kind == 5 then
  shape, also, units, W, x = unpack('<I4I4ddd', A, 19)
  local h = try('GETRANGE', key, '0', '135')
  if h == '' then return pack('<Bdd', 1, now, 0) end
  if #h ~= 136 or byte(h) % 16 ~= 5 then return pack('<Bdd', 4, now, 1) end
  s = unpack('<I4', h, 2)
  if s ~= shape and s ~= also then return pack('<Bdd', 2, now, 1) end
  if x + W > now then open_log(key, h, s, 0).refund(units, x, W) end
  return pack('<Bdd', 0, now, 0)
end
local raw = try('GET', key)
if not raw then return pack('<Bdd', 1, now, 0) end
if #raw ~= (kind <= 2 and 29 or 37) or byte(raw) % 32 ~= (kind == 2 and 1 or kind) then
  return pack('<Bdd', 4, now, 1)
end
shape, also = unpack('<I4I4', A, 19)
k, s, dies = unpack('<BI4d', raw)
if s ~= shape and s ~= also then return pack('<Bdd', 2, now, 1) end
if kind <= 2 then
  local cu, cp, fu, fp, charged, whole = unpack('<dddddd', A, 27)
  local us, part = unpack('<dd', raw, 14)
  if part >= whole then us, part = us + 1, 0 end
  local u, p = us - cu, part - cp
  if p < 0 then u, p = u - 1, p + whole end
  if u < 0 then u, p = 0, 0 end
  if kind == 2 then
    -- Only the last turn can be given back: whoever has a later one would share it with the next to come.
    if u > charged then return pack('<Bdd', 0, now, 0) end
  else
    -- Reserved ahead, only the last to do so can give it back. And what has refilled since must not come twice.
    local acts = us - fu + (part > fp and 1 or 0)
    if acts > now and acts ~= charged then return pack('<Bdd', 0, now, 0) end
    if now > charged then u = u + now - charged end
    if u > us or (u == us and p >= part) then return pack('<Bdd', 0, now, 0) end
  end
  call('SET', key, pack('<BI4ddd', k, s, dies, u, p), 'KEEPTTL')
else
  units, W, x = unpack('<ddd', A, 27)
  local a, b, c = unpack('<ddd', raw, 14)
  if kind == 3 then
    if b == x then c = math.max(c - units, 0) end
  elseif a == x then
    c = math.max(c - units, 0)
  elseif a == x + W then
    b = math.max(b - units, 0)
  end
  call('SET', key, pack('<BI4dddd', k, s, dies, a, b, c), 'KEEPTTL')
end
return pack('<Bdd', 0, now, 0)
)lua";

// Puts another cell in the place of one that is still as it was.
constexpr std::string_view kReplaceText = R"lua(
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
)lua";

}  // namespace

const Script& tell_script() {
  static const std::string kText = join_text({kTimeText, kTermsText, kLogText, kTellText});
  static const Script kScript = make_script(kText);
  return kScript;
}

const Script& replace_script() {
  static const std::string kText = std::string(kReplaceText);
  static const Script kScript = make_script(kText);
  return kScript;
}

}  // namespace headgate::store::redis
