-- A heartbeat: reports that an instance is alive, and its part in the watch of the chain. Atomic.
--
-- KEYS[1] is a hash of
--   M<instance>  when it was last seen
--   leader       instance:fence:renewed:lease, the newest leader
--   polled       when the leader polled the chain
--   state        the state of the chain that it published then
--   epoch        the newest epoch of the chain that an instance named
-- ARGV: instance, alive, part, fence, lease, epoch, polled, state, channel. Times are in milliseconds
-- of this server's clock. part is member, candidate, leader or resign. A leader's fence is newer than
-- all earlier ones, even if this record was lost. A leader with an older fence publishes nothing.
-- Returns now, instances, fence, epoch, polled and state: fence is 0 unless the caller leads.
local key, me, alive, part = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local fields = redis.call('HGETALL', key)
local record, instances = {}, 1
for i = 1, #fields, 2 do
  local field, value = fields[i], fields[i + 1]
  if field:sub(1, 1) ~= 'M' then
    record[field] = value
  elseif field ~= 'M' .. me then
    if math.abs(now - tonumber(value)) < alive then
      instances = instances + 1
    else
      redis.call('HDEL', key, field)
    end
  end
end
redis.call('HSET', key, 'M' .. me, now)
redis.call('PEXPIRE', key, 2 * alive)
if tonumber(ARGV[6]) > tonumber(record.epoch or 0) then
  record.epoch = ARGV[6]
  redis.call('HSET', key, 'epoch', record.epoch)
end

local leader, newest, renewed, lease = (record.leader or ''):match('^(%x+):(%d+):(%d+):(%d+)$')
newest, renewed, lease = tonumber(newest or 0), tonumber(renewed or 0), tonumber(lease or 0)
-- a clock that stepped back would prolong the lease
local is_led = renewed <= now and now < renewed + lease
local fence = 0
local function lead(number, length)
  redis.call('HSET', key, 'leader', me .. ':' .. number .. ':' .. now .. ':' .. length)
end
if is_led and leader == me and newest == tonumber(ARGV[4]) and part ~= 'candidate' then
  if part == 'resign' then
    lead(newest, 0)
  elseif part == 'leader' then
    fence = newest
    lead(fence, ARGV[5])
    record.polled = math.min(tonumber(ARGV[7]), now)
    redis.call('HSET', key, 'polled', record.polled, 'state', ARGV[8])
    -- followers poll at once; without the permission to publish, they poll later
    if record.state ~= ARGV[8] then redis.pcall('PUBLISH', ARGV[9], fence) end
    record.state = ARGV[8]
  end
elseif (part == 'candidate' or part == 'leader') and (not is_led or leader == me) then
  fence = math.max(newest + 1, now)
  lead(fence, ARGV[5])
end
return {
  now, instances, fence,
  tonumber(record.epoch or 0), tonumber(record.polled or 0), record.state or '',
}
