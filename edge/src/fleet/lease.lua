-- One message about one client: reports what was admitted, and leases more. Atomic.
--
-- KEYS[1] is the client's record: a hash of
--   <cell>       requests admitted in that cell of the store's clock
--   L<holder>    number:granted:expires, the newest message of a holder and its lease. An instance
--                that evicted the client is a new holder afterwards
--   t            the newest time seen
-- ARGV: holder, number, acknowledged, quota, window, cell, life, want, hold, uses. Times are in
-- milliseconds. uses is "number:age:count;…": admissions, each with the number of the first message
-- that reported it, so that a repeated message counts once. hold is the unused rest of the caller's
-- lease.
-- Returns granted (including hold), left (held by nobody), retry (the time until more may be left)
-- and live (the number of others with leases). granted is -1 if the record is lost, and -2 if a
-- newer message overtook this one.
local key, me = KEYS[1], 'L' .. ARGV[1]
local number, acknowledged = tonumber(ARGV[2]), tonumber(ARGV[3])
local quota, window, cell = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local life, want, hold = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
-- two clocks may drift by a percent, and the lease must end at its holder first
local held = math.ceil(life * 1.01)

local fields = redis.call('HGETALL', key)
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local seen = 0
for i = 1, #fields, 2 do
  local value = fields[i + 1]
  if fields[i] == 't' then
    -- A clock that steps back shortens no window. If it steps back further, it was ahead before.
    local newest = tonumber(value)
    if newest > now and newest <= now + window then now = newest end
  elseif fields[i] == me then
    seen = tonumber(value:match('^(%d+):'))
  end
end
if number <= seen then return { -2, 0, 0, 0 } end
if seen < acknowledged then return { -1, 0, 0, 0 } end

local current = math.floor(now / cell)
local counts, changed, gone = {}, {}, {}
local admitted, others, live, soonest = 0, 0, 0, now + window
local function ends(at)
  if at < soonest then soonest = at end
end
local function admit(at, count)
  counts[at] = (counts[at] or 0) + count
  admitted = admitted + count
  ends((at + 1) * cell + window)
end
for i = 1, #fields, 2 do
  local field, value = fields[i], fields[i + 1]
  local at = tonumber(field)
  if at then
    if (at + 1) * cell + window <= now then
      gone[#gone + 1] = field
    elseif at > current then
      gone[#gone + 1] = field
      admit(current, tonumber(value))
      changed[current] = true
    else
      admit(at, tonumber(value))
    end
  elseif field ~= 't' and field ~= me then
    local granted, expires = value:match(':(%d+):(%d+)$')
    granted, expires = tonumber(granted), math.min(tonumber(expires), now + held)
    if expires + window <= now then
      gone[#gone + 1] = field
    else
      -- a lease that was not returned counts as used when it ends
      others = others + granted
      if expires > now then live = live + 1 end
      if granted > 0 then ends(expires + window) end
    end
  end
end
for sent, age, count in ARGV[10]:gmatch('(%d+):(%d+):(%d+)') do
  local at = math.floor((now - age) / cell)
  if tonumber(sent) > seen and (at + 1) * cell + window > now then
    admit(at, tonumber(count))
    changed[at] = true
  end
end

local left = quota - admitted - others
local granted = hold
if left > hold and want > hold then
  granted = math.max(hold, math.min(want, math.max(1, math.floor(left / (2 * (live + 1))))))
end
if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
for at in pairs(changed) do redis.call('HSET', key, at, counts[at]) end
local expires = now
if granted > 0 then expires = now + held end
redis.call('HSET', key, 't', now, me, number .. ':' .. granted .. ':' .. expires)
redis.call('PEXPIRE', key, window + held + cell)
return { granted, math.max(0, left - granted), math.max(1, soonest - now), live }
