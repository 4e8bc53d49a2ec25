#include "store/redis/charge_script.h"

#include "store/redis/script_text.h"

namespace headgate::store::redis {
namespace {

// ARGV is an instant and then charge lists, and KEYS are the cells of all of them, one after the other: the
// cost of a call is paid once for all of them. Answers one text, or one for each charge list.
//
// That instant is the deadline: after it the checks have been answered without Redis. So nothing is judged or charged
// then, and one text says so, however many charge lists there are.
//
// In a cluster there is one charge list a call, and the notes about its cells follow them in KEYS (settle_script.cc):
// where one of those has lapsed, nothing is done but to say so.
//
// The usual case is on its own: one sliding window, one unit, nothing to forget. It makes no function and no table,
// which would cost more than all else it does. Whatever is not usual is asked as any other charge list is.
constexpr std::string_view kEachText = R"lua(
local call, unpack, pack = redis.call, struct.unpack, struct.pack
local clock = call('TIME')
local answers, base = nil, 0
clock = clock[1] * 1000000 + clock[2]
if clock > tonumber(ARGV[1]) then return pack('<Bdd', 8, clock, 1) end
for each = 2, #ARGV do
  local A, now, answer = ARGV[each], clock, nil
  if #A <= 22 then
    local key = KEYS[base + 1]
    local _, shape, most, W = unpack('<BI4dd', A)
    local lapses = #A == 22 and call('HGET', KEYS[2], 'e')
    local h = lapses and tonumber(lapses) <= now and '?' or redis.pcall('GETRANGE', key, '0', '135')
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
          if used == most then
            answer = pack('<Bddddd', 6, now, at, used, newest, oldest)
          elseif used < most and at + W <= dies then
            local entry = pack('<I6', at % 140737488355328 + 140737488355328)
            if free < 101 then
              local k = (free - 47) / 3
              call('SETRANGE', key, string.sub('465258647076828894', k + 1, k + 2), entry)
              answer = pack('<Bddd', 5, now, at, used)
            elseif free < 137 then
              local k = (free - 101) / 2
              call('SETRANGE', key, string.sub('100106112118124130', k + 1, k + 3), entry)
              answer = pack('<Bddd', 5, now, at, used)
            else
              local head, cap = unpack('<I3I3', h, 41)
              if head == 0 and size + 15 <= cap then
                call('SETRANGE', key, 136 + 6 * size, string.sub(h, 47, 136))
                call('SETRANGE', key, '0', pack('<BI4I3ddddI3I3', 5, s, size + 15, dies, oldest, at, at, 0, cap)
                  .. entry .. string.rep('\0', 84))
                answer = pack('<Bddd', 5, now, at, used)
              end
            end
          end
        end
      end
    elseif h == '' then
      local dies = now + 2 * W + 1000000
      local entry = pack('<I6', now % 140737488355328 + 140737488355328)
      call('SET', key, pack('<BI4I3ddddI3I3', 5, shape, 0, dies, now, now, now, 0, 0) .. entry .. string.rep('\0', 84),
        'PX', string.format('%.0f', (dies - now) / 1000))
      answer = pack('<Bddd', 5, now, now, 0)
    end
    if not answer then A = pack('<BddddB', #A == 22 and 9 or 1, 0, 0, 0, 0, 1) .. pack('<BI4I4Bdddd', 5, shape, 0, 0, 0, 1, most, W) end
  end
  answer = answer or (function()
)lua";

constexpr std::string_view kEndText = R"lua(
  end)()
  if #ARGV == 2 then return answer end
  if #A == 21 then base = base + 1 else base = base + string.byte(A, 34) end
  answers = answers or {}
  answers[each - 1] = answer
end
return answers
)lua";

// All of a charge list, judged and charged.
constexpr std::string_view kChargeText = R"lua(
local effect, noted, patience, wait, n, pos = op % 8, op >= 24, unpack('<ddB', A, 18)
local fits, turn, out, acts, far = true, 0, {}, {}, nil
local at_once = effect == 3 and {}
if op >= 8 then
  for i = 1, n do
    local lapses = call('HGET', KEYS[n + i], 'e')
    if lapses and tonumber(lapses) <= now then return pack('<Bdd', 7, now, i) end
  end
end

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
  local key, kind, w, act, soft, mine = KEYS[base + i], byte(A, pos), 0, nil, nil, nil
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
          if instant > now then
            slow().append(cost, instant, true, W)
          else
            call('SETRANGE', key, free - 1, pack('<I6', at % Q + Q))
          end
          return noted and pack('<BI4I4ddd', 5, shape, shape, cost, W, instant > now and instant or at)
        end
      else
        act = function(instant)
          if instant > now then
            slow().append(cost, instant, true, W)
          else
            (log or slow()).append(cost, at, false, W)
          end
          return noted and pack('<BI4I4ddd', 5, shape, shape, cost, W, instant > now and instant or at)
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
        if not noted then return end
        local before = math.max(us, instant)
        local last = kind == 2 and before or instant + u - fu + (p > fp and 1 or 0)
        return pack('<BI4I4ddddddd', kind, shape, shape, cu, cp, fu, fp, last, whole, before)
      end
    end

  elseif kind == 3 then
    -- A window that is counted from its start: aligned to the epoch, or of the calendar, which the caller has looked up.
    -- W: its length; negative: no period of that calendar is longer.
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
    local beyond = k == 3 and fin - now > 2 * math.abs(W) and used
    if (now >= fin or beyond) and not begin(now) then return pack('<Bddd', 3, now, i, now) end
    if beyond then
      -- A window that a wrong clock began: its count moves into the present one, and stays there after a denial, too.
      used = beyond
      if effect > 0 then
        put(key, 0, fin, '<BI4dddd', k, shape, start, fin, used)
        dies = 2 * fin - now + spare
      end
    end
    local earliest = now
    if k > 32 then
      if now < start then earliest = start else k = 3 end
    end
    if cost > 0 then
      if used + cost <= most then w = earliest - now else w = fin - now end
      if W < 0 and soft == 0 and effect >= 2 then
        far = far or {}
        far[#far + 1] = function(instant)
          return at_once and at_once[i] or instant < fin or (instant >= s0 and instant < e0) or (instant >= s1 and instant < e1) or i
        end
      end
      act = function(instant)
        if instant >= fin then begin(instant) elseif instant >= start then k = 3 end
        if instant > now then k = 35 end
        put(key, dies, fin, '<BI4dddd', k, shape, start, fin, used + cost)
        return noted and pack('<BI4I4ddd', 3, shape, shape, cost, W, fin)
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
        return noted and pack('<BI4I4ddd', 4, shape, shape, cost, W, start)
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
        return noted and pack('<Bd', 6, ttl)
      end
    end
  end

  if w > 0 then
    if soft == 1 then
      act = nil
    else
      if w > wait then wait = w end
      if effect < 2 or w > patience or w > mine then fits = false end
    end
  end
  acts[i] = act
  if at_once then at_once[i] = w == 0 and kind ~= 2 end
end

if effect >= 2 and fits and turn > patience then fits = false end
if not fits then return pack('<Bdd', 1, now, wait) .. table.concat(out) end
if effect > 0 then
  local instant = now + wait
  for j = 1, far and wait > 0 and #far or 0 do
    local known = far[j](instant)
    if known ~= true then return pack('<Bddd', 3, now, known, instant) end
  end
  for i = 1, n do
    local note = acts[i] and acts[i](at_once and at_once[i] and now or instant)
    if note then
      -- What would undo it, for as long as the cell may matter: it is looked at again when somebody next asks.
      local notes, lapses = KEYS[n + i], now + unpack('<d', A, pos + 8)
      call('HSET', notes, A:sub(pos, pos + 7), pack('<d', lapses) .. lease .. note)
      call('HSETNX', notes, 'e', string.format('%.0f', lapses))
      call('PEXPIRE', notes, call('PTTL', KEYS[i]))
    end
  end
end
if n == 1 then return pack('<Bdd', 0, now, wait) .. out[1] end
return pack('<Bdd', 0, now, wait) .. table.concat(out)
)lua";

}  // namespace

const Script& charge_script() {
  static const std::string kText = join_text({kEachText, kTermsText, kLogText, kChargeText, kEndText});
  static const Script kScript = make_script(kText);
  return kScript;
}

}  // namespace headgate::store::redis
