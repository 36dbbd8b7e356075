-- KEYS: record, lease. ARGV: doc, holder, lease's ttl in ms, channel, id.
-- A repeated call (the client's retry after a lost answer) succeeds.
if redis.call('EXISTS', KEYS[1]) == 1 then
  if redis.call('GET', KEYS[2]) == ARGV[2] then return 'ok' end
  return 'exists'
end
redis.call('HSET', KEYS[1], 'doc', ARGV[1], 'rev', 1, 'fence', 1)
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 'ok'
