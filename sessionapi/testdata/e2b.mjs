// Uses E2B's own client against the API: create, list, inspect, extend, pause,
// connect, kill. Usage: node e2b.mjs TEMPLATE, with E2B_API_URL and E2B_API_KEY.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const template = process.argv[2]
const metadata = { user: 'a b&c=d', app: 'witness' }

const sandbox = await Sandbox.create(template, { timeoutMs: 60_000, metadata, envs: { WHO: 'e2b' } })
const id = sandbox.sandboxId

const listed = async query => {
  const found = []
  const pages = Sandbox.list({ query, limit: 1 })
  while (pages.hasNext) found.push(...await pages.nextItems())
  return found.some(s => s.sandboxId === id)
}
assert(await listed({ metadata, state: ['running'] }), 'not among the running ones')
assert(!await listed({ metadata: { user: 'somebody else' } }), 'listed in spite of its metadata')
assert(!await listed({ state: ['paused'] }), 'running, yet among the paused ones')

const info = await sandbox.getInfo()
assert.equal(info.state, 'running')
assert.equal(info.templateId, template)
assert.deepEqual(info.metadata, metadata)
assert(info.endAt > info.startedAt)

await sandbox.setTimeout(600_000)
assert((await sandbox.getInfo()).endAt - Date.now() > 500_000, 'not extended')

assert.equal(await sandbox.pause(), true)
assert.equal(await sandbox.pause(), false, 'paused twice')
assert.equal((await Sandbox.getInfo(id)).state, 'paused')
assert(await listed({ state: ['paused'] }), 'not among the paused ones')

assert.equal((await Sandbox.connect(id, { timeoutMs: 120_000 })).sandboxId, id)
assert.equal((await Sandbox.getInfo(id)).state, 'running')
await Sandbox.connect(id)

assert.equal(await sandbox.kill(), true)
assert.equal(await Sandbox.kill(id), false, 'killed twice')
await assert.rejects(Sandbox.getInfo(id), { name: 'SandboxNotFoundError' })
await assert.rejects(Sandbox.create('no-such-template'))
await assert.rejects(Sandbox.create(template, { apiKey: 'e2b_wrong' }))
console.log('all of it works')
