// A relay's messages to the owner about the upstream of a request: their order and number.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { failure } from '../../../scripts/rigs/until.ts'
import type { RequestEnd } from '../../../src/inference/metering/account.ts'
import { Link, type RelayTarget } from '../../../src/inference/relay/link.ts'
import type { FromRelay } from '../../../src/inference/relay/wire.ts'
import type { Lease } from '../../../src/inference/upstream/router.ts'
import type { UpstreamTarget } from '../../../src/inference/upstream/target.ts'

const owner = { organizationId: 'o1', keyPrefix: 'k1' }
const end: RequestEnd = {
  outcome: 'completed',
  tokens: { prompt: 1, completion: 1 },
  tokensSource: 'reported',
  status: 200,
  errorCode: null,
}

function setUp() {
  const sent: FromRelay[] = []
  const upstreams = [
    { name: 'a', key: 'old' },
    { name: 'b', key: null },
  ] as unknown as RelayTarget[]
  const link = new Link({ send: message => void sent.push(message), upstreams, clock: createManualClock() })
  /** Answers the newest message, and returns it. */
  const reply = (value: unknown): FromRelay | undefined => {
    const asked = sent.at(-1)
    if (asked !== undefined && 'ask' in asked) link.handleReply(asked.ask, { value })
    return asked
  }
  const acquire = (except: readonly RelayTarget[] = [], signal = new AbortController().signal) =>
    link.acquire('m', { id: 'r1', promptEstimate: 1, except: new Set(except), signal, owner }) as Promise<
      Lease<UpstreamTarget>
    >
  const admit = async () => {
    const entering = link.enter({ id: 'r1', operation: 'chat', headers: new Headers(), fault: null, tokens: 1 })
    reply({ ok: true, caller: owner, hasBudget: false, countsEndUser: false, headers: {} })
    const entry = await entering
    if (!entry.ok) throw new Error('it is admitted')
    return entry.open(null)
  }
  return { link, sent, upstreams, reply, acquire, admit }
}

// Goal: a request that ends in the turn in which its upstream does costs one message, which has the upstream's health;
// a lease that ends alone is reported in the same turn.
test('the end of a lease', async () => {
  const { sent, reply, acquire, admit } = setUp()
  const account = await admit()
  const leasing = acquire()
  reply({ target: 0, paceMs: 5 })
  const lease = await leasing
  sent.length = 0
  lease.release('healthy')
  lease.release('unhealthy')
  void account.close(end)
  await null
  expect(sent).toMatchObject([{ kind: 'close', id: 'r1', released: 'healthy' }])

  const again = acquire()
  reply({ target: 1, paceMs: 5 })
  const other = await again
  sent.length = 0
  other.release('unknown')
  await null
  expect(sent).toEqual([{ kind: 'release', id: 'r1', health: 'unknown' }])
})

// Goal: the owner refuses a request with two upstreams, so it hears of the failed one's end before the next is asked
// for, and the message about the request's end does not repeat it.
test('the next upstream after one that failed', async () => {
  const { sent, upstreams, reply, acquire, admit } = setUp()
  const account = await admit()
  const leasing = acquire()
  reply({ target: 0, paceMs: 5 })
  const lease = await leasing
  sent.length = 0
  lease.release('unhealthy')
  const next = acquire(upstreams.slice(0, 1))
  expect(sent).toMatchObject([
    { kind: 'release', id: 'r1', health: 'unhealthy' },
    { kind: 'acquire', id: 'r1', except: [0] },
  ])
  reply({ target: 1, paceMs: 5 })
  expect((await next).target.name).toBe('b')
  sent.length = 0
  void account.close(end)
  await null
  expect(sent).toMatchObject([{ kind: 'close', id: 'r1', released: null }])
})

// Goal: a client that leaves its queue frees the place at once; the keys that a late reply names are not lost, because
// the owner names them only once.
test('a client that leaves while its request waits', async () => {
  const { sent, upstreams, reply, acquire, admit, link } = setUp()
  await admit()
  const leaving = new AbortController()
  const leasing = acquire([], leaving.signal)
  const asked = sent.at(-1)
  leaving.abort(new Error('gone'))
  expect(String(await failure(leasing))).toContain('gone')
  expect(sent.at(-1)).toEqual({ kind: 'cancel', id: 'r1' })
  if (asked === undefined || !('ask' in asked)) throw new Error('it asks')
  link.handleReply(asked.ask, { value: { target: 0, key: 'new', paceMs: 5 } })
  await null
  expect(upstreams[0]?.key).toBe('new')

  const unknown = acquire()
  reply({ target: 7, paceMs: 5 })
  expect(String(await failure(unknown))).toContain('an unknown upstream')
  expect(() => acquire([], leaving.signal)).toThrow('gone')
})
