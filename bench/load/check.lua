-- A check as an agent's client sends it: 120 bytes of JSON. With PIPELINE=16 in the environment, so many at once.
local body = '{"agent": "agent-17", "operation": "CREATE_COMPONENT", "session": "s-1234567", "context": {"type": "UI_DEVELOPMENT"}}'
wrk.method = "POST"
wrk.body = body
wrk.headers["Content-Type"] = "application/json"

local depth = tonumber(os.getenv("PIPELINE") or "1")
init = function(args)
  local all = {}
  for i = 1, depth do all[i] = wrk.format() end
  request = function() return batch end
  batch = table.concat(all)
end
