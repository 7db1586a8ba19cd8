-- A lock that one instance holds: takes, extends or releases it. Atomic.
--
-- KEYS[1] names its holder. ARGV: the instance, and the time in milliseconds; 0 releases the lock.
-- Returns 1, or 0 if another instance holds it.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
elseif ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
