// A host that turns against its gateway VM over the channel, with the real enclave: nothing it sends affects clients.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { EnclaveBench } from '../../scripts/rigs/enclave/enclave.ts'
import { EnclaveMachine } from '../../scripts/rigs/enclave/machine.ts'
import { startUpstream, type TestUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { failure, until } from '../../scripts/rigs/until.ts'
import { loadX509 } from '../../src/attest/x509/runtime.ts'
import { toBase64Url } from '../../src/base/bytes.ts'
import { systemClock } from '../../src/base/clock.ts'
import { Fault } from '../../src/base/fault.ts'
import { newUuid, systemRandom } from '../../src/base/ids.ts'
import { documentBytesMax, pieceBytesMax } from '../../src/contract/vm/enclave.ts'
import type { GatewayVmEngine } from '../../src/enclave-host/types.ts'
import { type Authority, openAuthority } from '../../src/http/authority.ts'
import { openRawChannel } from '../rigs/raw-channel.ts'

const testMs = 120_000
let upstream: TestUpstream
beforeAll(async () => {
  upstream = await startUpstream()
})
afterAll(() => upstream.stop())

const start = () => EnclaveBench.start({ upstreams: [{ url: upstream.url }] })

function chat(bench: EnclaveBench, vmId: string, key: string): Promise<Response> {
  return fetch(`${bench.url(vmId)}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }] }),
    tls: { ca: bench.caPem },
  })
}

/** The lines of its log, as its host reads them. */
async function logOf(bench: EnclaveBench, vmId: string): Promise<string> {
  const lines: string[] = []
  for (let logFrom = 0; ; ) {
    const { log } = await bench.engine.report(vmId, { logFrom, metricsFrom: Number.MAX_SAFE_INTEGER }, 30_000)
    if (log.length === 0) return lines.join('\n')
    lines.push(...log.map(item => item.line))
    logFrom = (log.at(-1)?.seq ?? 0) + 1
  }
}

describe('documents', () => {
  test(
    'goal: pieces that are too many, out of order, of another document in between or no base64 make no document, and the right one is taken after all',
    async () => {
      await using bench = await start()
      const vmId = newUuid()
      bench.addRow(vmId)
      await bench.boot(vmId, bench.workloadText)
      const text = Buffer.from(bench.workloadText)
      const piece = (offset: number, bytes: Uint8Array, document: 'workload' | 'control' = 'workload') =>
        bench.request(vmId, { op: 'piece', document, offset, bytes: Buffer.from(bytes).toString('base64') })
      const [head, tail] = [text.subarray(0, 100), text.subarray(100)]
      const whole = { op: 'workload', sha256: 'ab'.repeat(32), simulated: null } as const

      expect((await failure(piece(1, head))).message).toContain('the next piece of this document begins at 0')
      await piece(0, head)
      for (const offset of [99, 101, 200, Number.MAX_SAFE_INTEGER]) {
        expect((await failure(piece(offset, tail))).message).toContain('the next piece of this document begins at 100')
      }
      await piece(0, head, 'control')
      expect((await failure(piece(100, tail))).message).toContain('the next piece of this document begins at 0')
      expect((await failure(bench.request(vmId, whole))).message).toContain('its pieces do not have this digest')
      // Repeated from its beginning it is the same document, not twice the first piece.
      await piece(0, head)
      await piece(0, text)
      expect((await failure(bench.request(vmId, whole))).message).toContain('its pieces do not have this digest')
      const bad = { op: 'piece', document: 'workload', offset: 0, bytes: 'QQ' } as const
      expect((await failure(bench.request(vmId, bad))).message).toContain('not canonical base64')
      const full = new Uint8Array(pieceBytesMax)
      let offset = 0
      for (; offset + full.length <= documentBytesMax.workload; offset += full.length) await piece(offset, full)
      expect((await failure(piece(offset, full))).message).toContain(`longer than ${documentBytesMax.workload} bytes`)
      expect((await failure(piece(offset, new Uint8Array(1)))).message).toContain('begins at 0')
      const control = { op: 'control', sha256: 'ab'.repeat(32), signature: 'A'.repeat(86) } as const
      expect((await failure(bench.request(vmId, control))).message).toContain('no workload has been received')

      const { status } = await bench.engine.next(vmId, { known: [], booked: 0, waitMs: 0 }, 30_000)
      expect([status.state, status.workload]).toEqual(['waiting', null])
      await using session = Object.assign(bench.newSession(vmId), {
        async [Symbol.asyncDispose]() {
          await session.stop()
        },
      })
      session.start()
      await until('the gateway is ready', 60_000, () => session.status?.state === 'ready')
    },
    testMs,
  )
})

describe('certificates', () => {
  const dayMs = 86_400_000
  const authorityAt = (bench: EnclaveBench, shiftMs: number): Promise<Authority> =>
    openAuthority({
      kind: 'clients',
      stateDir: `${bench.dir}/at-${shiftMs}`,
      names: ['localhost'],
      random: systemRandom,
      nowMs: () => systemClock.nowMs() + shiftMs,
    })
  const spkiOf = async (csr: Uint8Array) => {
    const x509 = await loadX509()
    return new Uint8Array(new x509.Pkcs10CertificateRequest(Uint8Array.from(csr)).publicKey.rawData)
  }
  type Chains = { clients: string; guests: string }
  const BAD: [
    what: string,
    make: (bench: EnclaveBench, csr: Uint8Array, good: Chains) => Promise<Chains>,
    why: string,
  ][] = [
    [
      'for another key',
      async (bench, _csr, good) => ({
        ...good,
        clients: (await (await authorityAt(bench, 0)).issue(['127.0.0.1'], 1)).cert,
      }),
      'the private key does not belong to the certificate',
    ],
    [
      'that has ended',
      async (bench, csr, good) => {
        const authority = await authorityAt(bench, -30 * dayMs)
        return { ...good, clients: await authority.certify(await spkiOf(csr), ['127.0.0.1'], 1) }
      },
      'it has ended at',
    ],
    [
      'for a time to come',
      async (bench, csr, good) => {
        const authority = await authorityAt(bench, 30 * dayMs)
        return { ...good, guests: await authority.certify(await spkiOf(csr), ['127.0.0.1'], 1) }
      },
      'it is not valid before',
    ],
    ['of an authority', async (bench, _csr, good) => ({ ...good, clients: bench.caPem }), 'certificate for clients'],
    ['that is garbage', async (_bench, _csr, good) => ({ ...good, clients: 'garbage' }), 'holds no PEM certificate'],
    [
      'that is garbage in PEM',
      async (_bench, _csr, good) => ({
        ...good,
        guests: '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n',
      }),
      'the certificate cannot be read',
    ],
  ]

  test(
    'goal: with one that it cannot serve a gateway stays starting, says why, asks again, and serves with a good one',
    async () => {
      await using bench = await start()
      const key = bench.addKey()
      await Promise.all(
        BAD.map(async ([what, make, why]) => {
          const states: unknown[] = []
          const { vmId, session } = await bench.begin({
            certify: async (csr, options) => {
              const good = await bench.certify(csr, options)
              states.push(session.status?.state)
              return states.length === 1 ? make(bench, csr, good) : good
            },
          })
          await until(`it is served after one ${what}`, 60_000, async () => {
            if (session.status?.state !== 'ready' || session.status.revision === 0) return false
            return (await chat(bench, vmId, key)).status === 200
          })
          expect([what, states]).toEqual([what, ['starting', 'starting']])
          expect(await logOf(bench, vmId)).toContain(why)
        }),
      )
    },
    testMs,
  )
})

describe('evidence', () => {
  test(
    'goal: of another statement, another chain, none at all: no receipt of it verifies, clients are served on, and with good evidence all is well',
    async () => {
      await using bench = await start()
      const key = bench.addKey()
      const { engine } = bench
      let complete: GatewayVmEngine['completeEvidence'] = engine.completeEvidence
      const completeEvidence: GatewayVmEngine['completeEvidence'] = (...args) => complete(...args)
      const { vmId } = await bench.serve({ engine: { ...engine, completeEvidence } })
      const change =
        (changes: (evidence: { report: string; vek: string; chain: [string, string] }) => object) =>
        async (...[id, want]: Parameters<typeof complete>) => {
          const found = await engine.completeEvidence(id, want)
          return { ...found, evidence: { ...found.evidence, ...changes(found.evidence) } }
        }
      const ANSWERS: [what: string, answer: typeof complete, found: string][] = [
        ['a problem', () => Promise.reject(new Fault('attest.unavailable', 'no certificates today')), 'status 503'],
        ['base64url of no bytes', change(({ report }) => ({ report: `${report.slice(0, -1)}B` })), 'status 503'],
        ['a report of nothing', change(() => ({ report: 'A'.repeat(1_579) })), 'status 503'],
        ['another HOST_DATA', change(({ report }) => ({ report: flipped(report, 0xc0) })), 'status 503'],
        ['another REPORT_DATA', change(({ report }) => ({ report: flipped(report, 0x50) })), 'status 503'],
        ['another measurement', change(({ report }) => ({ report: flipped(report, 0x90) })), 'status 503'],
        ['another signature', change(({ report }) => ({ report: flipped(report, 0x2a0) })), 'gateway/'],
        ['another chain', change(({ chain }) => ({ chain: [chain[1], chain[0]] })), 'gateway/'],
        ['another VCEK', change(({ chain }) => ({ vek: chain[0] })), 'gateway/'],
        [
          'evidence of another statement',
          (id, want) => engine.completeEvidence(id, { ...want, reportData: toBase64Url(systemRandom(64)) }),
          'status 503',
        ],
      ]
      for (const [what, answer, found] of ANSWERS) {
        complete = answer
        const { message } = await failure(bench.verify(vmId))
        expect([what, message]).toEqual([what, expect.stringContaining(found)])
        expect((await chat(bench, vmId, key)).status).toBe(200)
      }
      complete = engine.completeEvidence
      await bench.verify(vmId)
    },
    testMs,
  )

  test(
    'goal: answers to what nobody has asked for, or asks for no more, or to another kind of question, have no effect',
    async () => {
      await using bench = await start()
      const key = bench.addKey()
      const { vmId } = await bench.serve()
      for (const want of ['w1', 'w2', 'w999', '__proto__']) {
        await bench.engine.tell(vmId, { op: 'certificate_for', want, clients: 'garbage', guests: 'garbage' }, 30_000)
        await bench.engine.tell(vmId, { op: 'evidence_for', want, evidence: null, problem: 'x' }, 30_000)
      }
      await bench.verify(vmId)
      expect((await chat(bench, vmId, key)).status).toBe(200)
    },
    testMs,
  )
})

/** With one bit of the byte at `at` changed. */
function flipped(base64Url: string, at: number): string {
  const bytes = Buffer.from(base64Url, 'base64url')
  bytes[at] = (bytes[at] ?? 0) ^ 1
  return bytes.toString('base64url')
}

describe('books', () => {
  test(
    'goal: a host that says it has booked more than was sent, or less than before, is noted, and no row is lost or told twice',
    async () => {
      await using bench = await start()
      const key = bench.addKey()
      const { vmId, session } = await bench.serve()
      await session.stop()
      const ask = (booked: number) => bench.engine.next(vmId, { known: [], booked, waitMs: 0 }, 30_000)
      for (let count = 0; count < 3; count += 1) await (await chat(bench, vmId, key)).text()
      // Rows that arrive while a batch is being sent are in the next.
      let usage = (await ask(0)).usage
      let booked = 0
      let asked = 0
      while (usage !== null) {
        const after = booked + usage.rows.length
        for (const wrong of [after + 1, 1_000, Number.MAX_SAFE_INTEGER, ...(booked === 0 ? [] : [0, booked - 1])]) {
          expect((await ask(wrong)).usage).toEqual(usage)
          asked += 1
        }
        bench.books.take(vmId, usage)
        booked = after
        usage = (await ask(booked)).usage
      }
      expect((await logOf(bench, vmId)).match(/the host has a different ledger/g)?.length).toBe(asked)
      expect([bench.books.booked(vmId), new Set(bench.rows.map(row => row.id)).size]).toEqual([3, 3])
      // A host that has lost its books gets nothing twice: what it says it lacks is gone.
      await (await chat(bench, vmId, key)).text()
      expect((await ask(0)).usage).toMatchObject({ from: 3, rows: [{ model: 'm' }] })
    },
    testMs,
  )
})

describe('floods', () => {
  /** A VM that serves, and its channel in the hands of the test. */
  async function flooded(bench: EnclaveBench) {
    const key = bench.addKey()
    const { vmId, session } = await bench.serve()
    await session.stop()
    const machine = bench.machine(vmId)
    if (!(machine instanceof EnclaveMachine)) throw new Error('an enclave of its own')
    return { key, vmId, machine }
  }
  test(
    'goal: of a thousand requests for news at once each is held or refused, clients are served, and all is well afterwards',
    async () => {
      await using bench = await start()
      const { key, vmId, machine } = await flooded(bench)
      bench.disconnect(vmId)
      const raw = await openRawChannel(machine.socketPath)
      const news = (at: number) => JSON.stringify({ id: `n${at}`, op: 'next', known: [], booked: 0, waitMs: 3_000 })
      // The first is answered immediately with the status, and so are those before it.
      await raw.write(`\n${Array.from({ length: 1_000 }, (_, at) => news(at)).join('\n')}\n`)
      await until('the enclave has refused', 60_000, () => raw.said.some(item => !item.ok))
      for (let count = 0; count < 20; count += 1) expect((await chat(bench, vmId, key)).status).toBe(200)
      // A peer that has not read its answers loses some; none is duplicated.
      await until('those that were held are answered', 60_000, () => raw.said.filter(item => item.ok).length > 0)
      expect(new Set(raw.said.map(item => item.id)).size).toBe(raw.said.length)
      expect([...new Set(raw.said.filter(item => !item.ok).map(item => item.message))]).toEqual([
        'too many requests at once',
      ])
      raw[Symbol.dispose]()
      await bench.connect(vmId)
      const next = bench.newSession(vmId)
      next.start()
      await until('its usage is booked', 60_000, () => bench.rows.length === 20)
      await next.stop()
    },
    testMs,
  )
})
