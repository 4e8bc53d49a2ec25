-- Sends a check to Headgate's gate, and stores the answer in txn.headgate_denied and txn.headgate_retry_after.
-- If Headgate cannot be reached, the request goes through.
core.register_action("headgate", {"http-req"}, function(txn)
  local headers = txn.http:req_get_headers()
  local agent = headers["x-agent"] and headers["x-agent"][0]
  local asked = {
    ["x-original-method"] = {txn.sf:method()},
    ["x-original-uri"] = {txn.sf:path()},
    ["x-real-ip"] = {txn.sf:src()},
  }
  -- With "auth: required", Headgate's own token (role gateway):
  --   asked["authorization"] = {"Bearer " .. os.getenv("HEADGATE_TOKEN")}
  -- Only what is named here is sent: nothing of the client's own headers reaches the gate.
  -- Take the agent from a verified source, not from a header that any client can send.
  if agent then asked["x-headgate-agent"] = {agent} end
  -- The timeout, in milliseconds, must be longer than gate.max_wait of Headgate (default 0: the gate answers at once)
  -- and, with Redis, than store.deadline (default 250ms): after it the request goes through.
  local answer = core.httpclient():get{url = "http://127.0.0.1:7070/v1/gate", headers = asked, timeout = 500}
  if answer and answer.status == 429 then
    txn:set_var("txn.headgate_denied", true)
    txn:set_var("txn.headgate_retry_after", answer.headers["retry-after"] and answer.headers["retry-after"][0] or "1")
  end
end, 0)
