// A charge list over several slots of a cluster is charged in each of them on its own. Until it is known whether all of
// them had room, each cell has a note next to it, in a hash of its slot: under the charge list's name, what would undo
// the charge, and when it lapses. Then the charge list is settled: the note goes, alone or with the charge. A
// call that meets a lapsed note undoes its charge: the server that wrote it is lost.
#include "store/redis/charge_script.h"
#include "store/redis/script_text.h"

namespace headgate::store::redis {
namespace {

// KEYS: cells, then the notes about each. Under 'e' stands an instant that no note lapses before.
constexpr std::string_view kSettleText = R"lua(
local n = #KEYS / 2
for i = 1, n do
  local key, notes = KEYS[i], KEYS[n + i]
  local function undo(id, note)
    give_back(key, note, 17, 3, note:sub(9, 16)) -- not where the limit has changed since: what units were are others now
    call('HDEL', notes, id)
  end
  if op == 1 then
    call('HDEL', notes, lease)
  elseif op == 2 then
    local note = call('HGET', notes, lease)
    if note then undo(lease, note) end
  else
    local all, first = call('HGETALL', notes), nil
    for j = 1, #all, 2 do
      if #all[j] == 8 then
        local lapses = unpack('<d', all[j + 1])
        if lapses <= now then
          undo(all[j], all[j + 1])
        elseif not first or lapses < first then
          first = lapses
        end
      end
    end
    if first then call('HSET', notes, 'e', string.format('%.0f', first)) end
  end
  if call('HLEN', notes) == 1 then call('DEL', notes) end
end
return 1
)lua";

}  // namespace

const Script& settle_script() {
  static const std::string kText = join_text({kTimeText, kTermsText, kLogText, kGiveBackText, kSettleText});
  static const Script kScript = make_script(kText);
  return kScript;
}

}  // namespace headgate::store::redis
