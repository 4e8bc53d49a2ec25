#include "store/redis/plan_script.h"

#include <openssl/sha.h>

#include <array>

namespace headgate::store::redis {
namespace {

// Rules of the house for these scripts: every cell is read and judged before the first is written, so that an error
// leaves nothing half done; numbers that Redis would have to print are given as text where that is possible, because
// printing one costs as much as the command; and what is rare stands in functions of its own, which the usual way never
// makes.
//
// Times are whole microseconds, exact in a double. The formats are those of plan_codec.cc and cell_codec.cc.
// The usual case on its own: one sliding window, one unit, nothing to forget. It makes no function and no table, which
// would cost more than all else it does. Whatever is not usual is asked again below as any other plan is.
constexpr std::string_view kFastText = R"lua(
local A, key = ARGV[1], KEYS[1]
local call, unpack, pack = redis.call, struct.unpack, struct.pack
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
if #A == 21 then
  local _, shape, most, W = unpack('<BI4dd', A)
  local h = redis.pcall('GETRANGE', key, '0', '135')
  if #h == 136 then
    local flags, s, size, dies, oldest, seen = unpack('<BI4I3ddd', h)
    local free = string.find(h, '\0\0\0\0\0\0', 47, true) or 137
    if flags == 5 and s == shape and free > 47 then
      local newest = oldest + (unpack('<I6', h, free - 6) - oldest) % 140737488355328
      local at = now
      if newest > at then at = newest end
      if seen > at then at = seen end
      if oldest + W > at then
        local used = size + (free - 47) / 6
        if used == most then return pack('<Bddddd', 6, now, at, used, newest, oldest) end
        if used < most and at + W <= dies then
          local entry = pack('<I6', at % 140737488355328 + 140737488355328)
          if free < 101 then
            local k = (free - 47) / 3
            call('SETRANGE', key, string.sub('465258647076828894', k + 1, k + 2), entry)
            return pack('<Bddd', 5, now, at, used)
          elseif free < 137 then
            local k = (free - 101) / 2
            call('SETRANGE', key, string.sub('100106112118124130', k + 1, k + 3), entry)
            return pack('<Bddd', 5, now, at, used)
          end
          local head, cap = unpack('<I3I3', h, 41)
          if head == 0 and size + 15 <= cap then
            call('SETRANGE', key, 136 + 6 * size, string.sub(h, 47, 136))
            call('SETRANGE', key, '0', pack('<BI4I3ddddI3I3', 5, s, size + 15, dies, oldest, at, at, 0, cap) .. entry
              .. string.rep('\0', 84))
            return pack('<Bddd', 5, now, at, used)
          end
        end
      end
    end
  elseif h == '' then
    local dies = now + 2 * W + 1000000
    call('SET', key, pack('<BI4I3ddddI3I3I6', 5, shape, 0, dies, now, now, now, 0, 0,
      now % 140737488355328 + 140737488355328) .. string.rep('\0', 84), 'PX', string.format('%.0f', (dies - now) / 1000))
    return pack('<Bddd', 5, now, now, 0)
  end
  A = pack('<Bdddd', 1, 0, 0, 0, 0) .. pack('<BI4I4Bdddd', 5, shape, 0, 0, 0, 1, most, W)
end
)lua";

// Whose turn it is, and by which clock.
constexpr std::string_view kTermsText = R"lua(
local op, given, lease = unpack('<Bdc8', A)
local spare = 1000000
if given > 0 then
  now, spare = given, 3600000000 -- by a clock of the caller's own; the server's must not run out before it
end
)lua";

// How a sliding window lies in its string.
constexpr std::string_view kLogText = R"lua(
local try, byte, M, Q, kMaxRuns = redis.pcall, string.byte, 281474976710656, 140737488355328, 1048576

-- A sliding window is 46 bytes about it, 90 for its newest entries, and a ring of the older ones. An entry is 6 bytes, an
-- instant modulo 2^47 with the next bit set, while each is of one unit: then the usual charge writes just that, behind
-- the one before. Else there is only the ring, of 12 bytes an entry: the instant, and the units up to and including it
-- modulo 2^48. The oldest instant is known in full, so the others are.
local function open_log(key, h, shape, most)
  local flags, dies, oldest, newest, seen, head, size, cap, _ = 5, 0, 0, 0, 0, 0, 0, 0, nil
  local gone, total, tail = 0, 0, ''
  local function near(e) return oldest + (e - oldest) % Q end
  if h ~= '' then
    flags, _, size, dies, oldest, seen, newest, head, cap = unpack('<BI4I3ddddI3I3', h)
  end
  local wide, ahead = flags % 32 >= 16, flags >= 32
  local width = wide and 12 or 6
  if wide then
    gone, total = unpack('<I6I6', h, 47)
  elseif h ~= '' then
    tail = h:sub(47, (h:find('\0\0\0\0\0\0', 47, true) or 137) - 1)
    if tail ~= '' then newest = near((unpack('<I6', tail, #tail - 5))) end
  end
  local log = {}

  local function count() return size + #tail / 6 end
  local function get(i)
    if i >= size then return near((unpack('<I6', tail, (i - size) * 6 + 1))), i + 1 end
    local from = 136 + (head + i) % cap * width
    local e = call('GETRANGE', key, from, from + width - 1)
    if not wide then return near((unpack('<I6', e))), i + 1 end
    local at, upto = unpack('<I6I6', e)
    return near(at), (upto - gone) % M
  end
  -- The first entry for which it holds, or how many there are. Once it holds, it does for all later ones.
  local function first(holds)
    local n, low, step = count(), 0, 1
    while low + step <= n and not holds(get(low + step - 1)) do low, step = low + step, step * 2 end
    local high = math.min(low + step, n)
    while low < high do
      local middle = low + math.floor((high - low) / 2)
      if holds(get(middle)) then high = middle else low = middle + 1 end
    end
    return low
  end
  local function put(i, bytes)
    local from = (head + i) % cap
    local room = (cap - from) * width
    call('SETRANGE', key, 136 + from * width, bytes:sub(1, room))
    if #bytes > room then call('SETRANGE', key, 136, bytes:sub(room + 1)) end
  end
  local function ring(from, upto) -- the bytes of the entries from..upto-1 of the ring
    if upto <= from then return '' end
    local a, b = 136 + (head + from) % cap * width, 135 + ((head + upto - 1) % cap + 1) * width
    if a < b then return call('GETRANGE', key, a, b) end
    return call('GETRANGE', key, a, 135 + cap * width) .. call('GETRANGE', key, 136, b)
  end
  local function header()
    flags = 5 + (wide and 16 or 0) + (ahead and 32 or 0)
    local behind = wide and pack('<I6I6', gone, total) or tail
    return pack('<BI4I3ddddI3I3', flags, shape, size, dies, oldest, seen, newest, head, cap) .. behind
      .. string.rep('\0', 90 - #behind)
  end
  -- `body`: of everything behind the header, or nil where that has been written.
  local function write(body, W)
    local idle = math.max(newest, seen) + W
    local prolong = idle > dies
    if prolong then dies = 2 * idle - now + spare end
    local ms = string.format('%.0f', (dies - now) / 1000)
    if body and prolong then
      call('SET', key, header() .. body, 'PX', ms)
    elseif body then
      call('SET', key, header() .. body, 'KEEPTTL')
    else
      call('SETRANGE', key, '0', header())
      if prolong then call('PEXPIRE', key, ms) end
    end
  end
  local function widen(body)
    local entries, n = {}, #body / 6
    for i = 1, n do entries[i] = pack('<I6I6', unpack('<I6', body, 6 * i - 5), i) end
    wide, width, gone, total = true, 12, 0, n
    return table.concat(entries)
  end

  function log.used() return wide and (total - gone) % M or count() end
  function log.drop(at, W)
    if newest + W <= at then
      gone, head, size, tail = total, 0, 0, ''
      return
    end
    local k = first(function(instant) return instant + W > at end)
    local instant = get(k)
    local _, left = get(k - 1)
    gone = (gone + left) % M
    if k >= size then
      head, size, tail = 0, 0, tail:sub((k - size) * 6 + 1)
    else
      head, size = (head + k) % cap, size - k
    end
    oldest = instant
  end
  -- When so many units have left, but for the window's length.
  function log.leaves(units)
    return (get(wide and first(function(_, upto) return upto >= units end) or units - 1))
  end
  function log.append(cost, at, reserve, W)
    local n = count()
    if not ahead then at = math.max(at, seen, newest) end
    if n == 0 then oldest = at end
    local full, body = n >= kMaxRuns, nil
    if not wide and cost == 1 and not reserve and not full and #tail < 90 then
      tail, newest, seen, ahead = tail .. pack('<I6', at % Q + Q), at, at, false
      write(h == '' and '' or nil, W)
      return
    end
    if n + 1 > cap and not full or (cost > 1 or full) and not wide then
      body = ring(0, size) .. tail
      if (cost > 1 or full) and not wide then body = widen(body) end
      if n + 1 > cap and not full then
        -- By half at a time, and no further than the limit asks for.
        local more, needed = cap + math.max(math.floor(cap / 2), 15), math.min(most, kMaxRuns)
        cap = math.min(math.max(cap < needed and math.min(more, needed) or more, n + 1), kMaxRuns)
      end
      head, size, tail = 0, n, ''
    end
    local merged = full or wide and n > 0 and newest == at
    total = (total + cost) % M
    local slot = n - (merged and 1 or 0)
    local entry = wide and pack('<I6I6', at % Q + Q, total) or pack('<I6', at % Q + Q)
    if body then
      body = body:sub(1, slot * width) .. entry .. string.rep('\0', (cap - slot - 1) * width)
    elseif merged then
      put(slot, entry)
    else
      put(size, tail .. entry)
    end
    size, tail, newest, ahead, seen = slot + 1, '', at, reserve, reserve and 0 or at
    write(body, W)
  end
  -- Gives back up to so many units of what was charged at that instant or just after it.
  function log.refund(units, at, W)
    local n, back = count(), 0
    local k = first(function(instant) return instant >= at end)
    if not ahead then seen = math.max(seen, newest) end
    local all = ring(0, size) .. tail
    local kept = { all:sub(1, k * width) }
    if wide then
      local before = k > 0 and select(2, get(k - 1)) or 0
      for i = k, n - 1 do
        local e, upto = unpack('<I6I6', all, i * 12 + 1)
        upto = (upto - gone) % M
        local charged = upto - before
        local taken = math.min(units - back, charged)
        before, back = upto, back + taken
        if taken < charged then kept[#kept + 1] = pack('<I6I6', e, (gone + upto - back) % M) end
      end
      total = (total - back) % M
    else
      kept[2] = all:sub((k + math.min(units, n - k)) * 6 + 1)
    end
    local body = table.concat(kept)
    local left = #body / width
    newest, head, tail, cap = 0, 0, '', math.max(cap, n)
    if left > 0 then
      newest = near((unpack('<I6', body, (left - 1) * width + 1)))
      oldest = near((unpack('<I6', body)))
    end
    size, ahead = left, left > 0 and newest > math.max(now, seen)
    if not ahead then seen = math.max(now, seen) end
    write(body .. string.rep('\0', (cap - left) * width), W)
  end
  return log
end
)lua";

// All of a plan, judged and charged.
constexpr std::string_view kPlanText = R"lua(
local n, effect, patience, wait, pos = #KEYS, op, unpack('<dd', A, 18)
local fits, turn, out, acts, far = true, 0, {}, {}, nil

-- Writes a small cell that is idle from `idle` on. Its key outlives it well, so that few writes have to say for how long.
local function put(key, dies, idle, format, kind, shape, a, b, c)
  if idle > dies then
    dies = 2 * idle - now + spare
    call('SET', key, pack(format, kind, shape, dies, a, b, c), 'PX', string.format('%.0f', (dies - now) / 1000))
  else
    call('SET', key, pack(format, kind, shape, dies, a, b, c), 'KEEPTTL')
  end
end

for i = 1, n do
  local key, kind, w, act, soft, mine = KEYS[i], byte(A, pos), 0, nil, nil, nil
  local shape, also, s
  if kind == 5 then
    -- A sliding window: see open_log for how it lies in its string.
    local cost, most, W
    shape, also, soft, mine, cost, most, W, pos = unpack('<I4I4Bdddd', A, pos + 1)
    local h = try('GETRANGE', key, '0', '135')
    local flags, size, dies, oldest, seen, newest, used, free = 5, 0, 0, 0, 0, 0, 0, nil
    if h ~= '' then
      if #h ~= 136 or byte(h) % 16 ~= 5 then return pack('<Bdd', 4, now, i) end
      flags, s, size, dies, oldest, seen, newest = unpack('<BI4I3dddd', h)
      if s ~= shape and s ~= also then return pack('<Bdd', 2, now, i) end
      shape = s
      if flags % 32 >= 16 then
        local gone, total = unpack('<I6I6', h, 47)
        used = (total - gone) % M
      else
        free = string.find(h, '\0\0\0\0\0\0', 47, true) or 137
        used = size + (free - 47) / 6
        if free > 47 then newest = oldest + (unpack('<I6', h, free - 6) - oldest) % Q end
      end
    end
    local ahead, at = flags >= 32, now
    if ahead and newest <= now then ahead = false end
    if not ahead then
      if newest > seen then seen = newest end
      if seen > now then at = seen end
    end
    local leaves, log = 0, nil
    local function slow()
      log = open_log(key, h, shape, most)
      return log
    end
    if used > 0 and oldest + W <= at then
      free = nil
      slow().drop(at, W)
      used = log.used()
    end
    if cost > 0 then
      if used + cost > most then
        local enough = used + cost - most
        if enough == 1 and not log then leaves = oldest else leaves = (log or slow()).leaves(enough) end
        w = leaves + W - now
      end
      if ahead and newest - now > w then w = newest - now end
      if used + cost >= M then w = 1e17 end
      if w == 0 and free and free < 137 and cost == 1 and flags == 5 and used > 0 and at + W <= dies then
        act = function(instant)
          if instant > now then slow().append(cost, instant, true, W) return end
          call('SETRANGE', key, free - 1, pack('<I6', at % Q + Q))
        end
      else
        act = function(instant)
          if instant > now then
            slow().append(cost, instant, true, W)
          else
            (log or slow()).append(cost, at, false, W)
          end
        end
      end
    end
    out[i] = pack('<ddddB', at, used, newest, leaves, ahead and 1 or 0)

  elseif kind <= 2 then
    -- A bucket: the instant at which it is full again, in microseconds and parts of one.
    local cu, cp, fu, fp, whole
    shape, also, soft, mine, cu, cp, fu, fp, whole, pos = unpack('<I4I4Bdddddd', A, pos + 1)
    local raw = try('GET', key)
    local us, part, dies, _ = 0, 0, 0, nil
    if raw then
      if #raw ~= 29 or byte(raw) ~= 1 then return pack('<Bdd', 4, now, i) end
      _, s, dies, us, part = unpack('<BI4ddd', raw)
      if s ~= shape and s ~= also then return pack('<Bdd', 2, now, i) end
      shape = s
      if part >= whole then us, part = us + 1, 0 end
    end
    out[i] = raw or '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
    if cu + cp > 0 then
      local function after(instant)
        local u, p = us - instant, part
        if u < 0 then u, p = 0, 0 end
        u, p = u + cu, p + cp
        if p >= whole then return u + 1, p - whole end
        return u, p
      end
      local u, p = after(now)
      if u > fu or (u == fu and p > fp) then
        w = u - fu
        if p > fp then w = w + 1 end
      end
      if kind == 2 and soft == 0 then
        local full = us - now + (part > 0 and 1 or 0)
        if full > turn then turn = full end
      end
      act = function(instant)
        if instant > now then u, p = after(instant) end
        put(key, dies, instant + u + 1, '<BI4ddd', 1, shape, instant + u, p)
      end
    end

  elseif kind == 3 then
    -- A window that is counted from its start: aligned to the epoch, or of the calendar, which the caller has looked up.
    local cost, most, W, s0, e0, s1, e1
    shape, also, soft, mine, cost, most, W, s0, e0, s1, e1, pos = unpack('<I4I4Bdddddddd', A, pos + 1)
    local raw = try('GET', key)
    local k, dies, start, fin, used = 3, 0, 0, 0, 0
    if raw then
      if #raw ~= 37 or byte(raw) % 32 ~= 3 then return pack('<Bdd', 4, now, i) end
      k, s, dies, start, fin, used = unpack('<BI4dddd', raw)
      if s ~= shape and s ~= also then return pack('<Bdd', 2, now, i) end
      shape = s
    end
    out[i] = raw or '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
    -- False: the caller has to look the period up that the instant lies in.
    local function begin(instant)
      if W > 0 then
        start = instant - instant % W
        fin = start + W
      elseif instant >= s0 and instant < e0 then
        start, fin = s0, e0
      elseif instant >= s1 and instant < e1 then
        start, fin = s1, e1
      else
        return false
      end
      used, k = 0, 3
      return true
    end
    if now >= fin and not begin(now) then return pack('<Bddd', 3, now, i, now) end
    local earliest = now
    if k > 32 then
      if now < start then earliest = start else k = 3 end
    end
    if cost > 0 then
      if used + cost <= most then w = earliest - now else w = fin - now end
      if W == 0 and soft == 0 and effect == 2 then
        far = far or {}
        far[#far + 1] = function(instant)
          return instant < fin or (instant >= s0 and instant < e0) or (instant >= s1 and instant < e1) or i
        end
      end
      act = function(instant)
        if instant >= fin then begin(instant) elseif instant >= start then k = 3 end
        if instant > now then k = 35 end
        put(key, dies, fin, '<BI4dddd', k, shape, start, fin, used + cost)
      end
    end

  elseif kind == 4 then
    -- The counts of this window and of the one before.
    local cost, most, W
    shape, also, soft, mine, cost, most, W, pos = unpack('<I4I4Bdddd', A, pos + 1)
    local raw = try('GET', key)
    local k, dies, start, previous, current = 4, 0, 0, 0, 0
    if raw then
      if #raw ~= 37 or byte(raw) % 32 ~= 4 then return pack('<Bdd', 4, now, i) end
      k, s, dies, start, previous, current = unpack('<BI4dddd', raw)
      if s ~= shape and s ~= also then return pack('<Bdd', 2, now, i) end
      shape = s
    end
    out[i] = raw or '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
    local function roll(instant)
      if instant >= start + W then
        local first = instant - instant % W
        if first == start + W then previous = current else previous = 0 end
        start, current, k = first, 0, 4
      elseif instant >= start then
        k = 4
      end
    end
    roll(now)
    if cost > 0 then
      local at = now < start and start or now
      local old, room, from = previous, most - cost - current, 0
      if room < 0 then old, room, from = current, most - cost, W end
      -- A product and what rounding took from it: together they are exact.
      local function times(x, y)
        local p, cx, cy = x * y, 134217729 * x, 134217729 * y
        local xh, yh = cx - (cx - x), cy - (cy - y)
        local xl, yl = x - xh, y - yh
        return p, ((xh * yh - p) + xh * yl + xl * yh) + xl * yl
      end
      -- Whether old * (W - elapsed) / W has come down to what there is room for.
      local function fits_at(elapsed)
        if old <= room then return true end
        local a, da = times(old, W - elapsed)
        local b, db = times(room, W)
        return (a - b) + (da - db) <= 0
      end
      local elapsed = at - start
      if from > 0 or not fits_at(elapsed) then
        local x = 0
        if old > room then
          x = math.ceil((old - room) / old * W)
          while not fits_at(x) do x = x + 1 end
          while x > 0 and fits_at(x - 1) do x = x - 1 end
        end
        w = from + x - elapsed + (at - now)
      elseif k > 32 then
        w = at - now
      end
      act = function(instant)
        roll(instant)
        if instant > now then k = 36 end
        put(key, dies, start + 2 * W, '<BI4dddd', k, shape, start, previous, current + cost)
      end
    end

  else
    -- Holds by when they expire, the units of those that are of more than one, and what that comes to: below zero.
    local cost, most, ttl
    soft, cost, most, ttl, pos = unpack('<Bddd', A, pos + 1)
    mine = 0
    local z = try('ZMSCORE', key, 'h', 'd', lease)
    if z.err then return pack('<Bdd', 4, now, i) end
    local held, multi, expired, last, upto = 0, 0, nil, 0, 0
    local function units_of(hold) return multi > 0 and -(call('ZSCORE', key, 'u' .. hold) or -1) or 1 end
    if z[1] then
      held = -z[1] % 131072
      multi = (-z[1] - held) / 131072
      expired = call('ZRANGEBYSCORE', key, '0', string.format('%.0f', now))
      for j = 1, #expired do held = held - units_of(expired[j]) end
      last = tonumber(call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2])
    elseif call('EXISTS', key) == 1 then
      return pack('<Bdd', 4, now, i)
    end
    if cost > 0 and held + cost > most then
      -- When enough of them have expired, or longer: past a few expiries the last one is the answer.
      local need, seen, from = held + cost - most, 0, 0
      upto = now
      while need > 0 and seen <= 8 do
        local some = call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', from, 16)
        if #some == 0 then break end
        for j = 1, #some, 2 do
          local expiry = tonumber(some[j + 1])
          if expiry > upto then
            if need <= 0 then break end
            seen = seen + 1
            if seen > 8 then break end
            upto = expiry
          end
          need = need - units_of(some[j])
        end
        from = from + 16
      end
      if need > 0 then upto = last end
      w = upto - now
    end
    out[i] = pack('<ddd', held, last, upto)
    if cost > 0 then
      act = function()
        for j = 1, expired and #expired or 0 do
          if expired[j] == lease then z[3] = false end
          if multi > 0 and call('ZREM', key, 'u' .. expired[j]) == 1 then multi = multi - 1 end
          call('ZREM', key, expired[j])
        end
        local units, expiry = cost, now + ttl
        if z[3] then
          units, expiry = units + units_of(lease), math.max(expiry, tonumber(z[3]))
          if units - cost > 1 then multi = multi - 1 end
        end
        local total = held + cost + 131072 * (multi + (units > 1 and 1 or 0))
        if units > 1 then call('ZADD', key, -units, 'u' .. lease) end
        if expiry > -(z[2] or 0) then
          local dies = 2 * expiry - now + spare
          call('ZADD', key, -total, 'h', -dies, 'd', string.format('%.0f', expiry), lease)
          call('PEXPIRE', key, string.format('%.0f', (dies - now) / 1000))
        else
          call('ZADD', key, -total, 'h', string.format('%.0f', expiry), lease)
        end
      end
    end
  end

  if w > 0 then
    if soft == 1 then
      act = nil
    else
      if w > wait then wait = w end
      if effect ~= 2 or w > patience or w > mine then fits = false end
    end
  end
  if act then acts[#acts + 1] = act end
end

if effect == 2 and fits and turn > patience then fits = false end
if not fits then return pack('<Bdd', 1, now, wait) .. table.concat(out) end
if effect > 0 then
  local instant = now + wait
  for j = 1, far and wait > 0 and #far or 0 do
    local known = far[j](instant)
    if known ~= true then return pack('<Bddd', 3, now, known, instant) end
  end
  for j = 1, #acts do acts[j](instant) end
end
if n == 1 then return pack('<Bdd', 0, now, wait) .. out[1] end
return pack('<Bdd', 0, now, wait) .. table.concat(out)
)lua";

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

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

Script make(const std::string& text) {
  std::array<unsigned char, SHA_DIGEST_LENGTH> digest;
  SHA1(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  std::string hex;
  for (const unsigned char byte : digest) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return {text, std::move(hex)};
}

}  // namespace

const Script& plan_script() {
  static const std::string text = joined({kFastText, kTermsText, kLogText, kPlanText});
  static const Script script = make(text);
  return script;
}

const Script& tell_script() {
  static const std::string text = joined({kTimeText, kTermsText, kLogText, kTellText});
  static const Script script = make(text);
  return script;
}

const Script& replace_script() {
  static const std::string text(kReplaceText);
  static const Script script = make(text);
  return script;
}

}  // namespace headgate::store::redis
