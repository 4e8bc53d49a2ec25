#include "server/spread_scripts.h"

namespace headgate::server {
namespace {

using store::redis::Script;

constexpr std::string_view kBeat = R"lua(
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZADD', KEYS[2], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now - ARGV[2]))
redis.call('SET', KEYS[3], ARGV[3], 'NX')
return {tonumber(redis.call('GET', KEYS[1]) or 0), redis.call('ZCARD', KEYS[2]), redis.call('GET', KEYS[3])}
)lua";

constexpr std::string_view kPut = R"lua(
local time = redis.call('TIME')
local version = math.max(time[1] * 1000000 + time[2], (redis.call('GET', KEYS[2]) or 0) + 1)
local answer = {}
for i = 2, #ARGV, 3 do
  local field, seen, value = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local now = redis.call('HGET', KEYS[1], field)
  if now and tonumber(string.match(now, '^%d+')) > seen then
    answer[#answer + 1] = 0
  else
    redis.call('SET', KEYS[2], string.format('%.0f', version))
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

}  // namespace headgate::server
