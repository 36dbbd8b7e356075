-- KEYS: lease. ARGV: holder, channel, id. Those who wait for the lease hear of
-- it as of a written record.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[2], ARGV[3])
return 1
