// A gateway VM whose host is in a fleet: it serves each key within the part that its host is granted.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { EnclaveBench } from '../../scripts/rigs/enclave/enclave.ts'
import { startUpstream, type TestUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../scripts/rigs/until.ts'
import type { Amounts, ShareAnswer } from '../../src/contract/vm/shares.ts'
import type { SessionDeps } from '../../src/enclave-host/session.ts'

const testMs = 120_000
let upstream: TestUpstream
beforeAll(async () => {
  upstream = await startUpstream()
})
afterAll(() => upstream.stop())

type RenewArguments = Parameters<NonNullable<SessionDeps['shares']>['renew']>

function chat(bench: EnclaveBench, vmId: string, key: string): Promise<Response> {
  return fetch(`${bench.url(vmId)}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }] }),
    tls: { ca: bench.caPem },
  })
}

async function served(isShared: boolean, share: Amounts) {
  const bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }], isShared })
  const asked: RenewArguments[] = []
  const scripted = { share, isAway: false }
  const shares = async (...given: RenewArguments): Promise<ShareAnswer> => {
    asked.push(given)
    if (scripted.isAway) throw new Error('away')
    const { share } = scripted
    const more = { moreInMs: [60_000, 60_000, 60_000] as Amounts, isWanted: false }
    return {
      goodMs: 300_000,
      grants: given[1].asks.map(({ keyPrefix }) => ({ keyPrefix, share, keep: share, ...more })),
    }
  }
  const key = bench.addKey({ requestsPerMinute: 50 })
  const { vmId, session } = await bench.serve({ shares: { renew: shares, end: async () => {} } })
  return { bench, asked, scripted, session, ask: () => chat(bench, vmId, key) }
}

// Goal: the first request of a key waits until the VM has asked its host; what the host grants bounds the key, its own
// limits do as well, and the headers say both.
test(
  'a key is served within its share',
  async () => {
    const { bench, asked, scripted, session, ask } = await served(true, [2, 1_000_000, 10])
    await using _ = bench
    const first = await ask()
    expect(first.status).toBe(200)
    expect(first.headers.get('x-ratelimit-limit-requests')).toBe('50')
    expect(first.headers.get('x-ratelimit-remaining-requests')).toBe('1')
    expect(asked[0]?.[0]).toBe(session.status?.receiptKey ?? '')
    expect((await ask()).status).toBe(200)
    const refused = await ask()
    expect([refused.status, refused.headers.get('x-ratelimit-remaining-requests')]).toEqual([429, '0'])
    expect(Number(refused.headers.get('retry-after'))).toBeWithin(1, 62)
    expect(JSON.stringify(await refused.json())).toContain('hosts of this fleet share it')
    // The host hears of the demand, and grants more than the key has: the key's own limit holds.
    const renewed = () => asked.some(([, { asks }]) => asks.some(({ held, least }) => held[0] === 2 && least[0] === 3))
    await until('the demand is told', 60_000, renewed)
    scripted.share = [1_000_000, 1_000_000, 10]
    await until('it is served again', 60_000, async () => (await ask()).status === 200)
    for (let status = 200; status === 200; ) status = (await ask()).status
    expect(upstream.seen.length).toBe(50)
    // The host's silence ends nothing that was granted.
    scripted.isAway = true
    const before = asked.length
    await until('it was not answered', 60_000, () => asked.length > before + 1)
    expect(session.status?.problem).toBeNull()
  },
  testMs,
)

// Goal: a VM whose host is in no fleet has all of each key's limits and asks for no share.
test(
  'a VM in no fleet asks nobody',
  async () => {
    const { bench, asked, ask } = await served(false, [0, 0, 0])
    await using _ = bench
    const first = await ask()
    expect([first.status, first.headers.get('x-ratelimit-remaining-requests')]).toEqual([200, '49'])
    expect(asked).toEqual([])
  },
  testMs,
)

// Goal: a VM that is asked to lower a budget says what it keeps, over the real wire; one that does not serve says
// nothing.
test(
  'a budget is lowered',
  async () => {
    const { bench, session, ask } = await served(true, [9, 1_000_000, 10])
    await using _ = bench
    expect((await ask()).status).toBe(200)
    const scope = { organizationId: 'nobody', keyPrefix: '', month: '2026-11' }
    expect(await session.lowerBudget(scope)).toEqual({ nanoUsd: 0, tokens: 0 })
    expect(await session.lowerBudget({ ...scope, keyPrefix: 'none' })).toEqual({ nanoUsd: 0, tokens: 0 })
    session.drain()
    await until('it drains', 60_000, () => session.status?.state === 'draining')
    expect(await session.lowerBudget(scope)).toBeNull()
  },
  testMs,
)
