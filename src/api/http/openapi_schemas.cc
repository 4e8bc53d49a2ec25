#include "api/http/openapi.h"

namespace headgate::api {

const std::string& openapi_schemas() {
  static const std::string kText = std::string(R"JSON({
"Error": {"type": "object", "required": ["error", "message"], "properties": {
  "error": {"type": "string", "description": "a code for programs"},
  "message": {"type": "string", "description": "what, where, and what to do"}}},
"Check": {"type": "object", "required": ["operation"], "additionalProperties": false, "properties": {
  "operation": {"type": "string", "maxLength": 512},
  "agent": {"type": "string", "maxLength": 512},
  "session": {"type": "string", "maxLength": 512},
  "user": {"type": "string", "maxLength": 512},
  "tenant": {"type": "string", "maxLength": 512},
  "plan": {"type": "string", "maxLength": 512},
  "channel": {"type": "string", "maxLength": 512, "default": "http"},
  "ip": {"type": "string", "description": "the caller's own unless it is on the server's machine or an admin"},
  "resource": {"type": "string", "maxLength": 512},
  "context": {"type": "object", "properties": {"type": {"type": "string"}}, "additionalProperties": {"type": ["string", "number", "boolean"]}},
  "contextType": {"type": "string", "description": "the same as context.type"},
  "cost": {"oneOf": [{"type": "number", "minimum": 0}, {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}]},
  "peek": {"type": "boolean", "description": "judge, and charge nothing"},
  "max_wait_ms": {"type": "number", "minimum": 0},
  "hold": {"type": "boolean", "description": "take out a lease on what is charged"},
  "priority": {"type": "integer"},
  "parent": {"oneOf": [{"type": "string"}, {"type": "object", "required": ["session"]}], "description": "whose budgets are debited, too"}}},
"Warning": {"type": "object", "required": ["policy_id", "kind", "remaining", "capacity", "message"], "properties": {
  "policy_id": {"type": "string"},
  "kind": {"enum": ["approaching", "exceeded", "burst", "monitor"]},
  "remaining": {"type": "number"},
  "capacity": {"type": "number"},
  "message": {"type": "string"}}},
"Decision": {"type": "object",
  "required": ["allowed", "action", "reason", "policy_ids", "limit", "remaining", "reset_time", "retry_after_ms", "delay_ms", "throttle_factor", "warnings", "lease"], "properties": {
  "allowed": {"type": "boolean"},
  "action": {"enum": ["allow", "block", "throttle", "warn", "log"]},
  "reason": {"type": "string"},
  "policy_id": {"type": "string", "description": "of the policy that denied"},
  "message": {"type": "string", "description": "of that policy"},
  "error": {"type": "string", "description": "a code, such as cost_exceeds_limit"},
  "policy_ids": {"type": "array", "items": {"type": "string"}},
  "limit": {"type": ["number", "null"]},
  "remaining": {"type": ["number", "null"]},
  "reset_time": {"type": "integer"},
  "retry_after_ms": {"type": "integer", "description": "-1: no wait could help"},
  "backoff_ms": {"type": "integer", "description": "the same as retry_after_ms, where that is longer than the limit needs, since this was denied several times in a row"},
  "delay_ms": {"type": "integer"},
  "waited_ms": {"type": "integer"},
  "throttle_factor": {"type": "number"},
  "stand_in": {"type": "boolean", "description": "the shared store is away, and this server judged alone"},
  "tier": {"type": "string"},
  "warnings": {"type": "array", "items": {"$ref": "#/components/schemas/Warning"}},
  "lease": {"type": ["string", "null"]}}},
"Batch": {"type": "object", "required": ["checks"], "properties": {
  "checks": {"type": "array", "minItems": 1, "maxItems": 1000, "items": {"$ref": "#/components/schemas/Check"}}}},
"Decisions": {"type": "object", "required": ["decisions"], "properties": {
  "decisions": {"type": "array", "items": {"oneOf": [{"$ref": "#/components/schemas/Decision"}, {"$ref": "#/components/schemas/Error"}]}}}},
"Settlement": {"type": "object", "required": ["cost"], "properties": {
  "cost": {"oneOf": [{"type": "number", "minimum": 0}, {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}]}}},
"Settled": {"type": "object", "required": ["costs", "overrun", "again"], "properties": {
  "costs": {"type": "object", "additionalProperties": {"type": "number"}, "description": "by unit: what is charged now"},
  "overrun": {"type": "number", "description": "what no limit had room for"},
  "again": {"type": "boolean", "description": "it had ended before: nothing was done"}}},
"Renewed": {"type": "object", "required": ["lease", "expires_at"], "properties": {
  "lease": {"type": "string"},
  "expires_at": {"type": "integer"}}},
"GateDenial": {"type": "object", "required": ["error", "retry_after_ms", "tier", "policy_id", "message"], "properties": {
  "error": {"const": "rate_limited"},
  "retry_after_ms": {"type": "integer"},
  "tier": {"type": ["string", "null"]},
  "policy_id": {"type": ["string", "null"]},
  "message": {"type": "string"}}},
"Health": {"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}},
"Readiness": {"type": "object", "required": ["status", "reasons"], "properties": {
  "status": {"enum": ["ready", "not_ready"]},
  "reasons": {"type": "array", "items": {"type": "string"}}}},
"OpenApi": {"type": "object", "required": ["openapi", "info", "paths", "components"], "properties": {
  "openapi": {"type": "string"}, "info": {"type": "object"}, "paths": {"type": "object"}, "components": {"type": "object"}}},
"TierLimit": {"type": "object", "required": ["capacity", "refill_per_minute"], "properties": {
  "capacity": {"type": "integer", "minimum": 1},
  "refill_per_minute": {"type": "integer", "minimum": 1}}},
"Tiers": {"type": "object", "properties": {
  "light": {"$ref": "#/components/schemas/TierLimit"},
  "normal": {"$ref": "#/components/schemas/TierLimit"},
  "heavy": {"$ref": "#/components/schemas/TierLimit"}}},
"RateLimits": {"type": "object", "required": ["defaults", "in_force", "overrides", "whitelist"], "properties": {
  "defaults": {"$ref": "#/components/schemas/Tiers"},
  "in_force": {"type": "boolean", "description": "whether the tiers' limits apply at all"},
  "overrides": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Tiers"}},
  "whitelist": {"type": "array", "items": {"type": "string"}}}},
"Defaults": {"type": "object", "required": ["defaults", "in_force"], "properties": {
  "kept": {"type": "boolean"}, "not_kept": {"type": "string"},
  "defaults": {"$ref": "#/components/schemas/Tiers"},
  "in_force": {"type": "boolean"}}},
"Override": {"type": "object", "required": ["agent", "override"], "properties": {
  "spread": {"type": "boolean", "description": "false: the shared store is away; other servers hear of it when that is back"},
  "kept": {"type": "boolean"}, "not_kept": {"type": "string"},
  "agent": {"type": "string"},
  "override": {"oneOf": [{"$ref": "#/components/schemas/Tiers"}, {"type": "null"}]}}},
"Agents": {"type": "object", "required": ["agents"], "properties": {"agents": {"type": "array", "items": {"type": "string"}}}},
"AgentName": {"type": "object", "required": ["agent"], "properties": {"agent": {"type": "string"}}},
"Whitelist": {"type": "object", "required": ["agents"], "properties": {
  "kept": {"type": "boolean"}, "not_kept": {"type": "string"},
  "spread": {"type": "boolean", "description": "false: the shared store is away; other servers hear of it when that is back"},
  "agents": {"type": "array", "items": {"type": "string"}}}},
)JSON") + R"JSON(
"Problem": {"type": "object", "required": ["file", "line", "column", "message"], "properties": {
  "file": {"type": "string"}, "line": {"type": "integer"}, "column": {"type": "integer"}, "message": {"type": "string"}}},
"Document": {"type": "object", "description": "a policy document, or {\"text\": \"...\"} with one in it", "additionalProperties": true},
"Policy": {"type": "object", "properties": {"id": {"type": "string", "description": "that of the path, if it is given"}}, "additionalProperties": true},
"PolicySummary": {"type": "object", "required": ["id", "name", "mode", "priority", "limits", "action", "behavior", "key", "unit", "least_cost", "holds", "source"], "properties": {
  "id": {"type": "string"},
  "name": {"type": "string"},
  "mode": {"enum": ["enforce", "monitor", "off"]},
  "priority": {"type": "integer"},
  "limits": {"type": "array", "items": {"type": "string"}},
  "action": {"enum": ["block", "throttle", "warn", "log"]},
  "behavior": {"enum": ["reject", "queue"]},
  "key": {"type": "array", "items": {"type": "string"}},
  "unit": {"type": "string"},
  "least_cost": {"type": ["number", "null"], "description": "what a check is charged at least; null: what it costs"},
  "holds": {"type": "boolean", "description": "false: the end of a hold gives nothing back"},
  "source": {"enum": ["files", "api", "built_in"]}}},
"Policies": {"type": "object", "required": ["version", "source", "enforcement", "mode", "text", "changes", "policies"], "properties": {
  "version": {"type": "integer"},
  "source": {"enum": ["files", "api"]},
  "enforcement": {"enum": ["graded", "strict"]},
  "mode": {"enum": ["enforce", "monitor", "off"]},
  "text": {"type": "string", "description": "the document, without single changes"},
  "changes": {"type": "object", "properties": {"put": {"type": "object"}, "deleted": {"type": "array", "items": {"type": "string"}}}},
  "policies": {"type": "array", "items": {"$ref": "#/components/schemas/PolicySummary"}}}},
"Changed": {"type": "object", "required": ["version", "policies"], "properties": {
  "kept": {"type": "boolean"}, "not_kept": {"type": "string"},
  "version": {"type": "integer"}, "policies": {"type": "integer"}}},
"ChangedPolicy": {"type": "object", "required": ["version", "id"], "properties": {
  "kept": {"type": "boolean"}, "not_kept": {"type": "string"},
  "version": {"type": "integer"}, "id": {"type": "string"}}},
"Validation": {"type": "object", "required": ["ok", "problems", "notes"], "properties": {
  "ok": {"type": "boolean"},
  "problems": {"type": "array", "items": {"$ref": "#/components/schemas/Problem"}},
  "notes": {"type": "array", "items": {"$ref": "#/components/schemas/Problem"}}}},
"Simulation": {"type": "object", "required": ["trace"], "properties": {
  "text": {"type": "string", "description": "a document; the one in force if left out"},
  "trace": {"type": "string", "description": "JSON lines or CSV, at most 16 MiB and 1,000,000 lines"}}},
"SimulationReport": {"type": "object",
  "required": ["lines", "checks", "allowed", "denied", "invalid", "queued", "warnings", "escalations", "without_effect", "start_time", "duration_ms", "policies", "agents", "first_denial", "over_time"], "properties": {
  "lines": {"type": "integer"}, "checks": {"type": "integer"}, "allowed": {"type": "integer"}, "denied": {"type": "integer"},
  "invalid": {"type": "integer"}, "queued": {"type": "integer"}, "warnings": {"type": "integer"}, "escalations": {"type": "integer"},
  "without_effect": {"type": "integer"}, "start_time": {"type": "number"}, "duration_ms": {"type": "number"},
  "policies": {"type": "array", "items": {"type": "object"}},
  "agents": {"type": "array", "items": {"type": "object"}},
  "first_denial": {"type": ["object", "null"]},
  "over_time": {"type": "object"}}},
"Explanation": {"type": "object", "required": ["decision", "policies"], "properties": {
  "decision": {"$ref": "#/components/schemas/Decision"},
  "policies": {"type": "array", "items": {"$ref": "#/components/schemas/Explained"}}}},
"Explained": {"type": "object", "required": ["id", "matches", "why_not", "key", "enforced", "variant", "least_cost", "holds", "cells"], "properties": {
  "id": {"type": "string"},
  "matches": {"type": "boolean"},
  "why_not": {"type": ["string", "null"]},
  "key": {"type": "string"},
  "enforced": {"type": "boolean"},
  "variant": {"type": ["string", "null"]},
  "least_cost": {"type": ["number", "null"]},
  "holds": {"type": "boolean"},
  "cells": {"type": "array", "items": {"type": "object", "required": ["limit", "capacity", "remaining", "reset_after_ms", "fits"]}}}},
"VersionSummary": {"type": "object", "required": ["id", "time", "who", "source", "note"], "properties": {
  "id": {"type": "integer"}, "time": {"type": "integer"}, "who": {"type": "string"}, "source": {"enum": ["files", "api", "rollback"]}, "note": {"type": "string"}}},
"Versions": {"type": "object", "required": ["versions"], "properties": {
  "versions": {"type": "array", "items": {"$ref": "#/components/schemas/VersionSummary"}}}},
"Version": {"type": "object", "required": ["id", "time", "who", "source", "note", "text"], "properties": {
  "id": {"type": "integer"}, "time": {"type": "integer"}, "who": {"type": "string"}, "source": {"type": "string"}, "note": {"type": "string"},
  "text": {"type": "string", "description": "JSON: {from, texts, policies, deleted, tiers}"}}},
"Rollback": {"type": "object", "required": ["version"], "properties": {"version": {"type": "integer"}}},
"RolledBack": {"type": "object", "required": ["version", "restored"], "properties": {
  "kept": {"type": "boolean"}, "not_kept": {"type": "string"},
  "version": {"type": "integer"}, "restored": {"type": "integer"}}},
"Reason": {"type": "object", "required": ["reason"], "properties": {"reason": {"type": "string", "minLength": 1, "maxLength": 500}}},
"Emergency": {"type": "object", "required": ["active", "reason", "enabled_at", "enabled_by", "automatic"], "properties": {
  "spread": {"type": "boolean", "description": "false: the shared store is away; other servers hear of it when that is back"},
  "kept": {"type": "boolean"}, "not_kept": {"type": "string"},
  "active": {"type": "boolean"}, "reason": {"type": ["string", "null"]}, "enabled_at": {"type": ["integer", "null"]},
  "enabled_by": {"type": ["string", "null"]}, "automatic": {"type": "boolean"}}},
"LoadReport": {"type": "object", "required": ["load"], "properties": {"load": {"type": "number", "minimum": 0, "maximum": 1}}},
"Load": {"type": "object", "required": ["load", "reported", "sensors", "level", "factor"], "properties": {
  "load": {"type": ["number", "null"], "description": "the worst of what is known"}, "reported": {"type": ["number", "null"]},
  "sensors": {"type": "boolean", "description": "whether limits follow this machine's sensors"}, "level": {"type": "string"}, "factor": {"type": "number"}}},
"Cleared": {"type": "object", "required": ["space", "cells"], "properties": {
  "space": {"type": "string"}, "cells": {"type": "integer"}}},
"AuditEntry": {"type": "object", "required": ["id", "time", "who", "action", "target", "before", "after"], "properties": {
  "id": {"type": "integer"}, "time": {"type": "integer"}, "who": {"type": "string"}, "action": {"type": "string"},
  "target": {"type": ["string", "null"]}, "before": {}, "after": {}}},
"Audit": {"type": "object", "required": ["entries", "next"], "properties": {
  "entries": {"type": "array", "items": {"$ref": "#/components/schemas/AuditEntry"}},
  "next": {"type": ["integer", "null"], "description": "give it as before to go on"}}},
"Token": {"type": "object", "required": ["id", "role", "agent", "user", "tenant", "plan", "name", "created_at", "expires_at"], "properties": {
  "id": {"type": "string"}, "role": {"enum": ["admin", "viewer", "gateway", "agent"]}, "agent": {"type": ["string", "null"]}, "name": {"type": "string"},
  "user": {"type": ["string", "null"]}, "tenant": {"type": ["string", "null"]}, "plan": {"type": ["string", "null"]},
  "created_at": {"type": "integer"}, "expires_at": {"type": ["integer", "null"]}}},
"Tokens": {"type": "object", "required": ["tokens"], "properties": {
  "tokens": {"type": "array", "items": {"$ref": "#/components/schemas/Token"}}}},
"TokenRequest": {"type": "object", "required": ["role"], "properties": {
  "role": {"enum": ["admin", "viewer", "gateway", "agent"]}, "agent": {"type": "string"}, "user": {"type": "string"}, "tenant": {"type": "string"},
  "plan": {"type": "string"}, "name": {"type": "string"}, "ttl_ms": {"type": "integer", "minimum": 1}}},
"NewToken": {"type": "object", "required": ["id", "secret", "role", "agent", "user", "tenant", "plan", "name", "created_at", "expires_at"], "properties": {
  "id": {"type": "string"}, "secret": {"type": "string"}, "role": {"enum": ["admin", "viewer", "gateway", "agent"]}, "agent": {"type": ["string", "null"]},
  "user": {"type": ["string", "null"]}, "tenant": {"type": ["string", "null"]}, "plan": {"type": ["string", "null"]},
  "name": {"type": "string"}, "created_at": {"type": "integer"}, "expires_at": {"type": ["integer", "null"]}}},
"Revoked": {"type": "object", "required": ["id", "revoked"], "properties": {"kept": {"type": "boolean"}, "not_kept": {"type": "string"}, "id": {"type": "string"}, "revoked": {"type": "boolean"}}},
"AgentSummary": {"type": "object", "required": ["agent", "rate_limited", "violations", "allowed", "denied", "last_seen", "exempt"], "properties": {
  "agent": {"type": "string"}, "rate_limited": {"type": "boolean"}, "violations": {"type": "integer"}, "allowed": {"type": "integer"},
  "denied": {"type": "integer"}, "last_seen": {"type": ["integer", "null"]}, "exempt": {"type": "boolean"}}},
"AgentList": {"type": "object", "required": ["agents"], "properties": {
  "agents": {"type": "array", "items": {"$ref": "#/components/schemas/AgentSummary"}}}},
"TierUsage": {"type": "object", "required": ["limit", "remaining", "used", "reset_after_ms", "overridden"], "properties": {
  "limit": {"type": "number"}, "remaining": {"type": "number"}, "used": {"type": "number"}, "reset_after_ms": {"type": "integer"}, "overridden": {"type": "boolean"}}},
"Agent": {"type": "object", "required": ["agent", "rate_limited", "violations", "allowed", "denied", "last_seen", "exempt", "override", "usage"], "properties": {
  "agent": {"type": "string"}, "rate_limited": {"type": "boolean"}, "violations": {"type": "integer"}, "allowed": {"type": "integer"},
  "denied": {"type": "integer"}, "last_seen": {"type": ["integer", "null"]}, "exempt": {"type": "boolean"},
  "override": {"oneOf": [{"$ref": "#/components/schemas/Tiers"}, {"type": "null"}]},
  "usage": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/TierUsage"}}}}},
"Overview": {"type": "object",
  "required": ["version", "uptime_ms", "started_at", "checks", "rates", "latency", "cells", "connections", "leases", "waiting", "load", "emergency", "top_agents", "top_policies", "offenders", "policies"], "properties": {
  "version": {"type": "string"}, "uptime_ms": {"type": "integer"}, "started_at": {"type": "integer"},
  "checks": {"type": "object", "required": ["allowed", "denied", "errors"]},
  "rates": {"type": "object", "required": ["checks_per_second", "denied_per_second", "errors_per_second"]},
  "latency": {"type": "object", "required": ["p50_us", "p99_us"]},
  "cells": {"type": "object", "required": ["count", "max", "evicted", "refused"]},
  "connections": {"type": "object", "required": ["http", "resp", "grpc"]},
  "leases": {"type": "integer"}, "waiting": {"type": "integer"},
  "load": {"$ref": "#/components/schemas/Load"},
  "emergency": {"type": "object", "required": ["active", "reason", "enabled_at", "enabled_by"]},
  "top_agents": {"type": "array", "items": {"type": "object", "required": ["agent", "allowed", "denied", "rate_limited"]}},
  "top_policies": {"type": "array", "items": {"type": "object", "required": ["policy_id", "admitted", "denied"]}},
  "offenders": {"type": "array", "items": {"type": "object", "required": ["agent", "violations"]}},
  "policies": {"type": "object", "required": ["count", "version"]}}},
"History": {"type": "object", "required": ["step_ms", "points"], "properties": {
  "step_ms": {"type": "integer", "description": "how far apart the points are: the step asked for, rounded up to what is kept"},
  "points": {"type": "array", "items": {"type": "object", "required": ["time", "allowed", "denied", "errors"]}}}},
"Alert": {"type": "object", "required": ["id", "kind", "time", "agent", "operation", "policy_id", "to", "text", "value", "count", "first_at", "last_at", "acknowledged_by", "acknowledged_at"], "properties": {
  "id": {"type": "integer"}, "kind": {"type": "string"}, "time": {"type": "integer"}, "agent": {"type": ["string", "null"]},
  "operation": {"type": ["string", "null"]}, "to": {"type": ["string", "null"], "description": "whom an escalation names"},
  "value": {"type": ["number", "null"]}, "count": {"type": "integer", "minimum": 1, "description": "how often it came"},
  "first_at": {"type": "integer"}, "last_at": {"type": "integer"},
  "policy_id": {"type": ["string", "null"]}, "text": {"type": "string"}, "acknowledged_by": {"type": ["string", "null"]},
  "acknowledged_at": {"type": ["integer", "null"]}}},
"Alerts": {"type": "object", "required": ["alerts"], "properties": {
  "alerts": {"type": "array", "items": {"$ref": "#/components/schemas/Alert"}}}},
"SignedOut": {"type": "object", "required": ["signed_out"], "properties": {"signed_out": {"type": "boolean"}}},
)JSON" + R"JSON(
"QuotaCheck": {"type": "object", "required": ["type"], "additionalProperties": false, "properties": {
  "user": {"type": "string", "maxLength": 512, "description": "an agent's token may leave it out: it is its own"},
  "type": {"type": "string", "maxLength": 512, "description": "shell, code, test, review, refactor or any other"},
  "session": {"type": "string", "maxLength": 512},
  "plan": {"type": "string", "description": "of the user, if no rule says; an admin only"},
  "size": {"type": "number", "minimum": 0, "description": "of the command, in bytes"},
  "estimated_cpu": {"type": "number", "minimum": 0, "description": "percent of one core"},
  "estimated_mem": {"type": "number", "minimum": 0, "description": "MB"},
  "max_wait_ms": {"type": "integer", "minimum": 0, "maximum": 86400000},
  "priority": {"type": "integer", "minimum": -1000, "maximum": 1000},
  "peek": {"type": "boolean", "description": "judge, and charge nothing"},
  "run": {"type": "string", "maxLength": 64, "description": "the asker's name for this run"}}},
"QuotaDecision": {"type": "object",
  "required": ["allowed", "reason", "user", "type", "counted_as", "plan", "remaining_today", "remaining_week", "remaining_month", "resets_at", "throttle_factor", "warning", "estimated_start_ms", "retry_after_ms", "delay_ms", "waited_ms", "run", "run_ttl_ms", "policy_id", "lease"], "properties": {
  "allowed": {"type": "boolean"}, "reason": {"type": "string"},
  "error": {"type": "string", "description": "when denied: quota_exceeded, throttled, queue_full, timed_out, or a policy's"},
  "user": {"type": "string"}, "type": {"type": "string"},
  "counted_as": {"type": "string", "description": "the type, or other"}, "plan": {"type": "string"},
  "remaining_today": {"type": ["integer", "null"], "minimum": 0, "description": "null: no limit"}, "remaining_week": {"type": ["integer", "null"], "minimum": 0, "description": "null: no limit"}, "remaining_month": {"type": ["integer", "null"], "minimum": 0, "description": "null: no limit"},
  "resets_at": {"type": "object", "additionalProperties": {"type": "integer"}, "description": "daily, weekly, monthly"},
  "throttle_factor": {"type": "number", "description": "the pace to run at: 1 is full speed"},
  "warning": {"type": "string", "description": "for the user; may be empty"},
  "estimated_start_ms": {"type": ["integer", "null"]},
  "retry_after_ms": {"type": "integer", "description": "-1: no wait could help"},
  "delay_ms": {"type": "integer"}, "waited_ms": {"type": "integer"},
  "run": {"type": ["string", "null"], "description": "to be renewed and ended by; null: it is not counted"},
  "run_ttl_ms": {"type": ["integer", "null"]},
  "policy_id": {"type": ["string", "null"]}, "lease": {"type": ["string", "null"]}}},
"Execution": {"type": "object", "required": ["command_type"], "additionalProperties": false, "properties": {
  "user_id": {"type": "string"}, "session_id": {"type": ["string", "null"]}, "command_type": {"type": "string"},
  "command_hash": {"type": ["string", "null"], "pattern": "^[0-9a-fA-F]{64}$"},
  "duration_ms": {"type": "integer", "minimum": 0}, "cpu_usage_percent": {"type": "number", "minimum": 0},
  "memory_usage_mb": {"type": "number", "minimum": 0}, "exit_code": {"type": "integer"},
  "error_message": {"type": ["string", "null"]}, "executed_at": {"type": "integer", "description": "default: now"},
  "plan": {"type": "string", "description": "that it was checked with, if no rule says"},
  "run": {"type": "string", "description": "which ends with it"}}},
"Recorded": {"type": "object", "required": ["recorded"], "properties": {"recorded": {"type": "boolean"}}},
"Executions": {"type": "object", "required": ["executions", "next_cursor"], "properties": {
  "executions": {"type": "array", "items": {"type": "object", "required": ["id", "user_id", "session_id", "command_type", "command_hash", "duration_ms", "cpu_usage_percent", "memory_usage_mb", "exit_code", "error_message", "executed_at"], "properties": {
    "id": {"type": "integer"}, "user_id": {"type": "string"}, "session_id": {"type": ["string", "null"]},
    "command_type": {"type": "string"}, "command_hash": {"type": ["string", "null"]}, "duration_ms": {"type": "integer"},
    "cpu_usage_percent": {"type": "number"}, "memory_usage_mb": {"type": "number"}, "exit_code": {"type": "integer"},
    "error_message": {"type": ["string", "null"]}, "executed_at": {"type": "integer"}}}},
  "next_cursor": {"type": ["string", "null"]}}},
"QuotaPeriod": {"type": "object", "additionalProperties": {"type": "object", "required": ["limit", "used", "remaining", "resets_at"], "properties": {
  "limit": {"type": ["integer", "null"], "minimum": 0, "description": "null: no limit"}, "used": {"type": "integer"}, "remaining": {"type": ["integer", "null"], "minimum": 0, "description": "null: no limit"}, "resets_at": {"type": "integer"}}}},
"QuotaStatus": {"type": "object", "required": ["user", "plan", "timezone", "mode", "rule", "daily", "weekly", "monthly", "throttle_factor", "system_load", "warning"], "properties": {
  "user": {"type": "string"}, "plan": {"type": "string"}, "timezone": {"type": "string"},
  "mode": {"enum": ["enforce", "monitor", "off"]},
  "rule": {"oneOf": [{"$ref": "#/components/schemas/QuotaRule"}, {"type": "null"}]},
  "daily": {"$ref": "#/components/schemas/QuotaPeriod"}, "weekly": {"$ref": "#/components/schemas/QuotaPeriod"},
  "monthly": {"$ref": "#/components/schemas/QuotaPeriod"},
  "throttle_factor": {"type": "number"}, "system_load": {"type": ["number", "null"]}, "warning": {"type": "string"}}},
"QuotaAmounts": {"type": "object", "additionalProperties": false, "properties": {
  "daily": {"$ref": "#/components/schemas/Amount"}, "weekly": {"$ref": "#/components/schemas/Amount"},
  "monthly": {"$ref": "#/components/schemas/Amount"}, "session": {"$ref": "#/components/schemas/Amount"},
  "estimated_cpu": {"type": "number"}, "estimated_mem": {"type": "number"}}},
"Amount": {"oneOf": [{"type": "integer", "minimum": 0}, {"enum": ["unlimited"]}, {"type": "null"}], "description": "null: no limit in a plan, as the plan says in a rule"},
"QuotaRule": {"type": "object", "additionalProperties": false, "properties": {
  "plan": {"type": ["string", "null"]}, "timezone": {"type": ["string", "null"]},
  "mode": {"enum": ["enforce", "monitor", "off", null]}, "weight": {"type": ["number", "null"]},
  "types": {"type": ["object", "null"], "additionalProperties": {"oneOf": [{"$ref": "#/components/schemas/QuotaAmounts"}, {"type": "null"}]}}}},
"UserRule": {"type": "object", "required": ["user", "rule"], "properties": {
  "kept": {"type": "boolean"}, "not_kept": {"type": "string"},
  "user": {"type": "string"}, "rule": {"oneOf": [{"$ref": "#/components/schemas/QuotaRule"}, {"type": "null"}]}}},
"UserRules": {"type": "object", "required": ["users", "next"], "properties": {
  "users": {"type": "array", "items": {"$ref": "#/components/schemas/UserRule"}}, "next": {"type": ["string", "null"]}}},
"QuotaPlan": {"type": "object", "additionalProperties": false, "properties": {
  "timezone": {"type": ["string", "null"]}, "mode": {"enum": ["enforce", "monitor", "off"]}, "weight": {"type": "number"},
  "types": {"type": "object", "additionalProperties": {"oneOf": [{"$ref": "#/components/schemas/QuotaAmounts"}, {"type": "null"}]}}}},
"Plans": {"type": "object", "required": ["default_plan", "timezone", "mode", "plans"], "properties": {
  "default_plan": {"type": "string"}, "timezone": {"type": "string"}, "mode": {"type": "string"},
  "plans": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/QuotaPlan"}}}},
"PlanRules": {"type": "object", "required": ["plan", "rules"], "properties": {
  "kept": {"type": "boolean"}, "not_kept": {"type": "string"},
  "plan": {"type": "string"}, "rules": {"oneOf": [{"$ref": "#/components/schemas/QuotaPlan"}, {"type": "null"}]}}},
"UsageList": {"type": "object", "required": ["usage", "truncated"], "properties": {
  "usage": {"type": "array", "items": {"type": "object", "properties": {
    "user_id": {"type": "string"}, "command_type": {"type": "string"}, "day": {"type": "string", "format": "date"},
    "day_start": {"type": "integer"}, "commands": {"type": "integer"}, "refused": {"type": "integer"},
    "would_refuse": {"type": "integer"}, "throttled": {"type": "integer"}, "runs": {"type": "integer"},
    "failures": {"type": "integer"}, "duration_ms": {"type": "integer"}, "cpu_ms": {"type": "integer"},
    "memory_mb": {"type": "number", "description": "per run, on average"}}}},
  "truncated": {"type": "boolean"}}},
"QuotaReport": {"type": "object", "required": ["since", "until", "users"], "properties": {
  "since": {"type": "integer"}, "until": {"type": "integer"},
  "users": {"type": "array", "items": {"type": "object", "properties": {
    "user_id": {"type": "string"}, "command_type": {"type": "string"}, "commands": {"type": "integer"},
    "refused": {"type": "integer"}, "would_refuse": {"type": "integer"}, "throttled": {"type": "integer"},
    "days": {"type": "integer"},
    "worst_day": {"type": "object", "properties": {"day": {"type": "string"}, "commands": {"type": "integer"}}}}}}}},
"QuotaQueue": {"type": "object", "required": ["concurrent", "factor", "running", "waiting", "line", "runs"], "properties": {
  "concurrent": {"type": "integer", "description": "0: no bound"}, "factor": {"type": "number"},
  "running": {"type": "integer"}, "waiting": {"type": "integer"},
  "line": {"type": "array", "items": {"type": "object", "properties": {
    "run": {"type": "string"}, "user": {"type": "string"}, "type": {"type": "string"}, "session": {"type": ["string", "null"]},
    "priority": {"type": "integer"}, "position": {"type": "integer"}, "waited_ms": {"type": "integer"},
    "estimated_start_ms": {"type": ["integer", "null"]}}}},
  "runs": {"type": "array", "items": {"type": "object", "properties": {
    "run": {"type": "string"}, "user": {"type": "string"}, "type": {"type": "string"}, "session": {"type": ["string", "null"]},
    "running_ms": {"type": "integer"}}}}}},
"RunRenewed": {"type": "object", "required": ["run", "expires_in_ms", "throttle_factor"], "properties": {
  "run": {"type": "string"}, "expires_in_ms": {"type": "integer"}, "throttle_factor": {"type": "number"}}},
"RunEnded": {"type": "object", "required": ["run", "ended"], "properties": {"run": {"type": "string"}, "ended": {"type": "boolean"}}}
})JSON";
  return kText;
}

}  // namespace headgate::api
