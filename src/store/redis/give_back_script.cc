#include "store/redis/script_text.h"

namespace headgate::store::redis {

const std::string_view kTimeText = R"lua(
local A = ARGV[1]
local call, unpack, pack = redis.call, struct.unpack, struct.pack
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
)lua";

const std::string_view kGiveBackText = R"lua(
-- Ends a hold (3) or lets it go on (4). 0: it was one; 1: it was none; 4: this is no cell of ours.
local function change_hold(key, ttl, op, lease)
  local z = try('ZMSCORE', key, 'h', 'd', lease)
  if z.err or (not z[1] and call('EXISTS', key) == 1) then return 4 end
  if not z[1] then return 1 end
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
  return found and 0 or 1
end

-- Gives units back to a bucket. `before`: when it would have been full, had they never been taken.
local function refill(key, raw, T, pos, kind)
  local k, s, dies, us, part = unpack('<BI4ddd', raw)
  local cu, cp, fu, fp, charged, whole, before = unpack('<ddddddd', T, pos)
  if part >= whole then us, part = us + 1, 0 end
  local u, p = us - cu, part - cp
  if p < 0 then u, p = u - 1, p + whole end
  if u < 0 then u, p = 0, 0 end
  if kind == 2 then
    -- Only the last turn can be given back: whoever has a later one would share it with the next to come.
    if u > charged then return 0 end
  else
    -- Reserved ahead, only the last to do so can give it back. And what has refilled since must not come twice.
    local acts = us - fu + (part > fp and 1 or 0)
    if acts > now and acts ~= charged then return 0 end
    if now > before then u = u + now - before end
    if u > us or (u == us and p >= part) then return 0 end
  end
  call('SET', key, pack('<BI4ddd', k, s, dies, u, p), 'KEEPTTL')
  return 0
end

-- Does what `T` tells from `pos` on. 0: done; 1: there is nothing; 2: it was written by other numbers; 4: it is no cell
-- of ours.
local function give_back(key, T, pos, op, lease)
  local kind = byte(T, pos)
  if kind == 6 then return change_hold(key, unpack('<d', T, pos + 1), op, lease) end
  local shape, also = unpack('<I4I4', T, pos + 1)
  local raw
  if kind == 5 then
    raw = try('GETRANGE', key, '0', '135')
    if raw == '' then return 1 end
    if #raw ~= 136 or byte(raw) % 16 ~= 5 then return 4 end
  else
    raw = try('GET', key)
    if not raw then return 1 end
    if #raw ~= (kind <= 2 and 29 or 37) or byte(raw) % 32 ~= (kind == 2 and 1 or kind) then return 4 end
  end
  local k, s = unpack('<BI4', raw)
  if s ~= shape and s ~= also then return 2 end
  if kind <= 2 then return refill(key, raw, T, pos + 9, kind) end
  local units, W, x = unpack('<ddd', T, pos + 9)
  if kind == 5 then
    if x + W > now then open_log(key, raw, s, 0).refund(units, x, W) end
    return 0
  end
  local dies, a, b, c = unpack('<dddd', raw, 6)
  if kind == 3 then
    if b == x then c = math.max(c - units, 0) end
  elseif a == x then
    c = math.max(c - units, 0)
  elseif a == x + W then
    b = math.max(b - units, 0)
  end
  call('SET', key, pack('<BI4dddd', k, s, dies, a, b, c), 'KEEPTTL')
  return 0
end
)lua";

}  // namespace headgate::store::redis
