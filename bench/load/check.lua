-- POST /v1/check for one of 100,000 agents, `depth` requests a time.
local depth, requests = 1, {}

function init(args)
  depth = tonumber(args[1] or "1")
  local operation = args[2] or "one"
  math.randomseed(tonumber(args[3] or "1"))
  for i = 1, 20000 do
    local body = string.format('{"agent": "agent-%05d", "operation": "%s", "session": "session-1", "user": "user-42", '
      .. '"context": {"type": "BENCH"}}', math.random(0, 99999), operation)
    requests[i] = wrk.format("POST", "/v1/check", {["Content-Type"] = "application/json"}, body)
  end
end

function request()
  if depth == 1 then return requests[math.random(20000)] end
  local batch = {}
  for i = 1, depth do batch[i] = requests[math.random(20000)] end
  return table.concat(batch)
end
