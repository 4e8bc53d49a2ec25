#include "cluster/spread_scripts.h"

namespace headgate::cluster {
namespace {

using store::redis::Script;

constexpr std::string_view kBeat = R"lua(
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZADD', KEYS[2], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now - ARGV[2]))
redis.call('SET', KEYS[3], ARGV[3], 'NX')
local there = redis.call('ZSCORE', KEYS[2], ARGV[4])
return {tonumber(redis.call('GET', KEYS[1]) or 0), redis.call('ZCARD', KEYS[2]), redis.call('GET', KEYS[3]), there and 1 or 0}
)lua";

// A field is written as new, under a version of its own, unless there is one that the writer has not seen; or as it was
// under the version `again`, unless there is that one or a newer. Either way the revision of all fields moves on.
constexpr std::string_view kPut = R"lua(
local time = redis.call('TIME')
local revision = math.max(time[1] * 1000000 + time[2], (redis.call('GET', KEYS[2]) or 0) + 1)
local answer = {}
for i = 2, #ARGV, 4 do
  local field, seen, again, value = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ARGV[i + 3]
  local now = redis.call('HGET', KEYS[1], field)
  local there = now and tonumber(string.match(now, '^%d+')) or -1
  if there > seen or (again > 0 and there >= again) then
    answer[#answer + 1] = 0
  else
    local version = again > 0 and again or math.max(revision, seen + 1)
    redis.call('SET', KEYS[2], string.format('%.0f', revision))
    redis.call('HSET', KEYS[1], field, string.format('%.0f %s %s', version, ARGV[1], value))
    answer[#answer + 1] = version
  end
end
return answer
)lua";

}  // namespace

const Script& beat_script() {
  static const Script kScript = store::redis::make_script(kBeat);
  return kScript;
}

const Script& put_script() {
  static const Script kScript = store::redis::make_script(kPut);
  return kScript;
}

}  // namespace headgate::cluster
