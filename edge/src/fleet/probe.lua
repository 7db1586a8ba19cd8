-- Whether this server takes writes of a key: a replica does not, nor does a cluster that is down.
-- Needs no right that a heartbeat does not need.
--
-- KEYS[1] is a key that nobody writes. Returns 0.
return redis.call('HDEL', KEYS[1], 'probe')
