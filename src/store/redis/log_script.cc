#include "store/redis/script_text.h"

namespace headgate::store::redis {

const std::string_view kTermsText = R"lua(
local op, given, lease = unpack('<Bdc8', A)
local spare = 1000000
if given > 0 then
  now, spare = given, 3600000000 -- by a clock of the caller's own; the server's must not run out before it
end
)lua";

const std::string_view kLogText = R"lua(
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

std::string join_text(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

}  // namespace headgate::store::redis
