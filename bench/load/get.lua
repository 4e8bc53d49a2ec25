-- GET / for one of 100,000 agents, named in a header: what nginx's limit_req counts.
local requests = {}

function init(args)
  for i = 1, 20000 do
    requests[i] = wrk.format("GET", "/", {["X-Agent"] = string.format("agent-%05d", math.random(0, 99999))})
  end
end

function request() return requests[math.random(20000)] end
