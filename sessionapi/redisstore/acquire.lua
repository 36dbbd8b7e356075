-- KEYS: record, lease. ARGV: holder, ttl in ms. Gives the fence, 0 when the
-- lease is held, -1 when there is no record.
local fence = redis.call('HGET', KEYS[1], 'fence')
if not fence then return -1 end
local holder = redis.call('GET', KEYS[2])
if holder == ARGV[1] then return tonumber(fence) end -- a retry
if holder then return 0 end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return redis.call('HINCRBY', KEYS[1], 'fence', 1)
