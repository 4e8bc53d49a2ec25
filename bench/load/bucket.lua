-- The token bucket that a user of Redis writes: two fields of a hash, the server's clock, one expiry.
local state = redis.call("HMGET", KEYS[1], "tokens", "at")
local capacity, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = redis.call("TIME")
now = tonumber(now[1]) + tonumber(now[2]) / 1000000
local tokens = tonumber(state[1]) or capacity
local at = tonumber(state[2]) or now
tokens = math.min(capacity, tokens + (now - at) * rate)
local allowed = 0
if tokens >= 1 then
  tokens = tokens - 1
  allowed = 1
end
redis.call("HSET", KEYS[1], "tokens", tostring(tokens), "at", tostring(now))
redis.call("PEXPIRE", KEYS[1], math.ceil(capacity / rate * 1000))
return {allowed, math.floor(tokens)}
