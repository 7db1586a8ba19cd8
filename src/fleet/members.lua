-- Enters an instance into the list of those that are alive, and returns how many there are.
--
-- KEYS[1] is a hash of instance and when it was last seen, by the store's clock. ARGV: instance,
-- and how long one counts as alive, in milliseconds.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local life = tonumber(ARGV[2])
redis.call('HSET', KEYS[1], ARGV[1], now)
local members, alive = redis.call('HGETALL', KEYS[1]), 0
for i = 1, #members, 2 do
  if math.abs(now - tonumber(members[i + 1])) < life then
    alive = alive + 1
  else
    redis.call('HDEL', KEYS[1], members[i])
  end
end
redis.call('PEXPIRE', KEYS[1], 2 * life)
return alive
