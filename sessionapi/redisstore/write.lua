-- KEYS: record, lease. ARGV: rev, doc, fence or '', holder, release, expire in
-- ms or 0, channel, id.
local now = redis.call('HMGET', KEYS[1], 'rev', 'fence')
if not now[1] then return 'missing' end
if ARGV[3] ~= '' and now[2] ~= ARGV[3] then return 'lost' end
if now[1] ~= ARGV[1] then return 'changed' end
redis.call('HSET', KEYS[1], 'doc', ARGV[2])
redis.call('HINCRBY', KEYS[1], 'rev', 1)
if ARGV[6] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[6]) end
if ARGV[5] == '1' and redis.call('GET', KEYS[2]) == ARGV[4] then redis.call('DEL', KEYS[2]) end
redis.call('PUBLISH', ARGV[7], ARGV[8])
return 'ok'
