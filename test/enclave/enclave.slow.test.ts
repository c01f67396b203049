// The enclave as a process with the host's whole side: responses to clients, powers of the host, and the path of usage.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { EnclaveBench } from '../../scripts/rigs/enclave/enclave.ts'
import { startUpstream, type TestUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { failure, until } from '../../scripts/rigs/until.ts'
import { newUuid } from '../../src/base/ids.ts'
import { revokeGatewayKey } from '../../src/store/directory/gateway-key.query.ts'
import { sumUsage } from '../../src/store/directory/usage/usage.query.ts'
import { certificateShown } from '../rigs/acme/tls-client.ts'

const testMs = 120_000
let upstream: TestUpstream
beforeAll(async () => {
  upstream = await startUpstream()
})
afterAll(() => upstream.stop())

const period = { organizationId: 'o1', startMs: 0, endMs: Number.MAX_SAFE_INTEGER }
const usageOf = (bench: EnclaveBench) => sumUsage(bench.store.directory.db, period)

function chat(bench: EnclaveBench, vmId: string, key: string, more: Record<string, unknown> = {}): Promise<Response> {
  return fetch(`${bench.url(vmId)}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }], ...more }),
    tls: { ca: bench.caPem },
  })
}

const start = () => EnclaveBench.start({ upstreams: [{ url: upstream.url }] })

describe('a gateway VM', () => {
  test(
    'goal: it serves chat and streams over a certificate of the authority, and its usage is booked once',
    async () => {
      await using bench = await start()
      const key = bench.addKey()
      const { vmId } = await bench.serve()
      const answer = await chat(bench, vmId, key)
      expect([answer.status, await answer.json()]).toMatchObject([200, { usage: { total_tokens: 14 } }])
      const stream = await (await chat(bench, vmId, key, { stream: true })).text()
      expect(stream).toEndWith('data: [DONE]\n\n')
      expect(upstream.seen.at(-1)?.headers.get('authorization')).toBe('Bearer sk-far')
      await until('both rows are booked', 60_000, () => usageOf(bench).requests === 2)
      expect(usageOf(bench)).toMatchObject({ promptTokens: 22n, completionTokens: 6n })
      expect(bench.books.booked(vmId)).toBe(2)
    },
    testMs,
  )

  test(
    'goal: other certificates reach it at once: it sends the requests that the host wants, serves by name, and keeps its key',
    async () => {
      await using bench = await start()
      const name = 'inference.agents.internal'
      let stamp = '00'.repeat(32)
      let wanted: string[] = []
      const asked: string[][] = []
      const { vmId, session } = await bench.serve({
        certificatesStamp: () => stamp,
        certify: async (csr, options) => {
          const good = await bench.certify(csr, options)
          asked.push(options.requests.map(request => request.name))
          // A certificate that differs from all others that it has.
          const named = options.requests.map(request => ({ serverName: request.name, cert: good.guests }))
          return { ...good, named: [...(good.named ?? []), ...named], requests: wanted, stamp }
        },
      })
      const port = Number(new URL(bench.url(vmId)).port)
      const before = await certificateShown(port, name, bench.caPem)
      expect([asked, before.problem]).toEqual([[[]], null])
      wanted = [name]
      stamp = '11'.repeat(32)
      session.pushCertificates()
      // While its listener is replaced, a connection that nobody has accepted yet is reset.
      const shown = () => certificateShown(port, name, bench.caPem).catch(() => before)
      let after = before
      await until('it serves the other', 60_000, async () => {
        after = await shown()
        return after.raw !== before.raw
      })
      expect([asked, after.spki]).toEqual([[[], [], [name]], before.spki])
      // It has these: news of them are none.
      session.pushCertificates()
      stamp = '22'.repeat(32)
      session.pushCertificates()
      await until('it has asked for the newest', 60_000, () => asked.length === 4)
      expect(asked.at(-1)).toEqual([name])
      const verified = () =>
        bench.verify(vmId).then(
          () => true,
          () => false,
        )
      await until('its receipts name the key of every connection', 60_000, verified)
    },
    testMs,
  )

  test(
    'goal: its five receipts bind TLS key, workload.json and operator key, and the host verifies them as anybody would',
    async () => {
      await using bench = await start()
      const { vmId } = await bench.serve()
      const { receiptKey } = await bench.verify(vmId)
      expect(receiptKey).toHaveLength(43)
      const served = await fetch(`${bench.url(vmId)}/workload.json`, { tls: { ca: bench.caPem } })
      expect(await served.text()).toBe(bench.workloadText)
    },
    testMs,
  )

  test(
    'goal: a key that is made, and one that is revoked, counts at once',
    async () => {
      await using bench = await start()
      const { vmId, session } = await bench.serve()
      bench.control.onChange(() => session.pushControl())
      const stopping = new AbortController()
      const watching = bench.control.watch(stopping.signal)
      const key = bench.addKey()
      await until('the key is good', 60_000, async () => (await chat(bench, vmId, key)).status === 200)
      revokeGatewayKey(bench.store.directory.db, { prefix: key.split('_')[1] ?? '', nowMs: 5 })
      await until('the key is not good any more', 60_000, async () => (await chat(bench, vmId, key)).status === 401)
      stopping.abort()
      await watching
    },
    testMs,
  )
})

describe('a daemon that dies', () => {
  test(
    'goal: a stream that runs ends whole, and its usage is booked after the restart, once',
    async () => {
      await using bench = await start()
      const key = bench.addKey()
      const { vmId, session } = await bench.serve()
      const { promise: held, resolve: release } = Promise.withResolvers<void>()
      const { behave } = upstream
      upstream.behave = async (response, seen, gone) => {
        await held
        await behave(response, seen, gone)
      }
      const stream = chat(bench, vmId, key, { stream: true })
      await until('the upstream has the request', 60_000, () => upstream.active() === 1)
      await session.stop()
      bench.disconnect(vmId)
      release()
      upstream.behave = behave
      expect(await (await stream).text()).toEndWith('data: [DONE]\n\n')
      expect((await chat(bench, vmId, key)).status).toBe(200)
      expect(usageOf(bench).requests).toBe(0)
      await bench.connect(vmId)
      const next = bench.newSession(vmId)
      next.start()
      await until('both rows are booked', 60_000, () => usageOf(bench).requests === 2)
      await next.stop()
      expect(bench.books.booked(vmId)).toBe(2)
    },
    testMs,
  )

  test(
    'goal: what a client has whole is in the books, whenever its VM dies',
    async () => {
      await using bench = await start()
      const key = bench.addKey()
      for (const [turn, stream] of [true, false, true, false].entries()) {
        const { vmId } = await bench.serve()
        const answer = await (await chat(bench, vmId, key, { stream })).text()
        bench.kill(vmId)
        const booked = usageOf(bench).requests
        expect(answer).toEndWith(stream ? 'data: [DONE]\n\n' : '}')
        expect(booked).toBe(turn + 1)
      }
    },
    testMs,
  )

  test(
    'goal: without acknowledgement a full spool answers 503, and afterwards every row is there exactly once',
    async () => {
      await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }], machine: { usageRowsMax: 5 } })
      const key = bench.addKey()
      const { vmId, session } = await bench.serve()
      await session.stop()
      const statuses: number[] = []
      for (let count = 0; count < 8; count += 1) statuses.push((await chat(bench, vmId, key)).status)
      expect(statuses).toEqual([200, 200, 200, 200, 200, 503, 503, 503])
      const next = bench.newSession(vmId)
      next.start()
      await until('the rows are booked', 60_000, () => usageOf(bench).requests === 5)
      await until('it serves again', 60_000, async () => (await chat(bench, vmId, key)).status === 200)
      await next.stop()
    },
    testMs,
  )
})

describe('a hostile host', () => {
  test(
    'goal: a workload that is not HOST_DATA, or not canonical, is never in force',
    async () => {
      await using bench = await start()
      const vmId = newUuid()
      await bench.boot(vmId, bench.workloadText)
      bench.workload = { ...bench.workload, upstreams: [] }
      // The ledger says what the platform reports; the host hands over another text.
      bench.forgeWorkload(vmId, bench.workloadText)
      expect(await failure(bench.engine.workload(vmId, 30_000))).toMatchObject({
        message: expect.stringContaining('HOST_DATA of this VM is'),
      })
      const status = (await bench.engine.next(vmId, { known: [], booked: 0, waitMs: 0 }, 30_000)).status
      expect([status.state, status.workload]).toEqual(['waiting', null])
    },
    testMs,
  )

  test(
    'goal: keys count only when the control key has signed them and they are newer than those in force',
    async () => {
      await using bench = await start()
      const key = bench.addKey()
      const { vmId, session } = await bench.serve()
      await session.stop()
      const current = bench.control.current()
      const forged = new Uint8Array(current.signature)
      forged[0] = (forged[0] ?? 0) ^ 1
      const unsigned = await failure(bench.engine.control(vmId, { bytes: current.bytes, signature: forged }, 30_000))
      expect(unsigned.message).toContain('not signed by the control key of workload.json')
      const old = bench.signedSnapshot({ revision: 5, keys: [], prices: [], budgets: [], upstreamKeys: {} })
      expect((await failure(bench.engine.control(vmId, old, 30_000))).message).toContain('revision 5 is below')
      expect((await chat(bench, vmId, key)).status).toBe(200)
      const newer = bench.signedSnapshot({
        revision: current.revision + 1,
        keys: [],
        prices: [],
        budgets: [],
        upstreamKeys: {},
      })
      expect(await bench.engine.control(vmId, newer, 30_000)).toBe(current.revision + 1)
      expect((await chat(bench, vmId, key)).status).toBe(401)
    },
    testMs,
  )

  test(
    'goal: usage that was not signed by the verified key, or is not the next, is not booked',
    async () => {
      await using bench = await start()
      const key = bench.addKey()
      const { vmId, session } = await bench.serve()
      await session.stop()
      await (await chat(bench, vmId, key)).text()
      const { usage } = await bench.engine.next(vmId, { known: [], booked: 0, waitMs: 2_000 }, 30_000)
      if (usage === null) throw new Error('there is a batch')
      const [row] = usage.rows
      if (row === undefined) throw new Error('there is a row')
      const changed = { ...usage, rows: [{ ...row, completionTokens: 0 }] }
      expect(() => bench.books.take(vmId, changed)).toThrow('do not match its digest')
      expect(() => bench.books.take(vmId, { ...usage, from: 7 })).toThrow('begins at row 7; 0 rows are booked')
      expect(() => bench.books.take(vmId, { ...usage, signature: 'A'.repeat(86) })).toThrow('has not signed it')
      expect(usageOf(bench).requests).toBe(0)
      bench.books.take(vmId, usage)
      bench.books.take(vmId, usage)
      expect(usageOf(bench).requests).toBe(1)
    },
    testMs,
  )
})
