// Requests to a gateway's VM over a real socket, and its evidence: of its own launch and workload, and of no other.

import { afterAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { failure } from '../../../scripts/rigs/until.ts'
import { decodeReport } from '../../../src/attest/report/report.ts'
import { fromBase64Url, fromHex, toBase64Url, toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { documentBytesMax, pieceBytesMax } from '../../../src/contract/vm/enclave.ts'
import { type LaunchDocument, launchFormat, launchText } from '../../../src/contract/vm/launch.ts'
import { connectChannel } from '../../../src/host/qemu/agent-channel.ts'
import { openSimulatedHost } from '../../../src/host/simulated-host.ts'
import { openStore } from '../../../src/store/db.ts'
import { recordLaunch } from '../../../src/store/ledger/launch.query.ts'
import { insertVm, moveVm } from '../../../src/store/ledger/vm.query.ts'
import { GatewayVmRequests, gatewayVmChannelLimits } from '../../../src/vm/evidence/gateway-vm.driver.ts'
import type { EvidenceSources } from '../../../src/vm/evidence/report.driver.ts'
import { hostDataOf } from '../../../src/vm/launch/expected.plan.ts'
import { gatewayStatus, startGatewayGuest } from '../../rigs/gateway/guest.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-gateways-'))
afterAll(() => rmSync(dir, { recursive: true }))
const host = await openSimulatedHost({
  stateDir: dir,
  nowMs: systemClock.nowMs,
  random: systemRandom,
  modulusBits: 2048,
})
const timeoutMs = 30_000
const measurement = 'ab'.repeat(48)
const digest = 'cd'.repeat(32)
const document: LaunchDocument = {
  format: launchFormat,
  image: { name: 'inference', rootHash: digest, inputsSha256: digest },
  vehicle: 'ovmf',
  firmwareSha256: digest,
  kernelSha256: digest,
  initrdSha256: digest,
  cmdlineSha256: digest,
  vcpus: 2,
  vcpuType: 'EPYC-v4',
  memoryMib: 2048,
  policy: '0x30000',
  measurement,
}
const launch = launchText(document)
const workload = `{"format":"strongroom/workload/v1","filler":"${'w'.repeat(2 * pieceBytesMax)}"}`
const operatorKey = toHex(host.operatorKey)
const reportData = new Uint8Array(64).fill(9)

type Options = {
  readonly platform?: 'snp' | 'tcg'
  readonly workload?: string | null
  readonly recordedAs?: string
  readonly sources?: Partial<EvidenceSources>
}

async function bench(stack: AsyncDisposableStack, options: Options = {}) {
  const { platform = 'tcg' } = options
  const store = openStore(':memory:')
  stack.defer(() => store.close())
  const { db } = store.ledger
  const vmId = newUuid()
  const text = options.workload === undefined ? workload : options.workload
  insertVm(db, { id: vmId, hostId: 'h', image: 'inference', vcpus: 2, memoryMib: 2048, network: 'gateway', nowMs: 1 })
  moveVm(db, { id: vmId, from: 'waiting', to: 'running', nowMs: 2, platform })
  const hostData = options.recordedAs ?? toHex(hostDataOf({ document: launch, workload: text }))
  recordLaunch(db, { vmId, document: launch, workload: text, measurement, hostData, operatorKey, launchedAtMs: 3 })
  const guest = stack.use(startGatewayGuest(join(dir, vmId)))
  const limits = gatewayVmChannelLimits
  const channel = await connectChannel(guest.path, { idPrefix: 'p', timeoutMs: 20_000, onClose: () => {}, limits })
  stack.defer(() => channel.close())
  const state = { attached: true }
  const gatewayVms = new GatewayVmRequests({
    db,
    sources: { collateral: null, simulated: async () => host, ...options.sources },
    linkOf: () => (state.attached ? { channel } : null),
  })
  return { vmId, guest, gatewayVms, state, hostData }
}

describe('what is said to it', () => {
  test('goal: the workload goes over in pieces, with its digest and what a simulated platform reports', async () => {
    await using stack = new AsyncDisposableStack()
    const { vmId, guest, gatewayVms, hostData } = await bench(stack)
    await gatewayVms.workload(vmId, timeoutMs)
    expect(guest.documents.map(({ kind, bytes }) => [kind, bytes.toString()])).toEqual([['workload', workload]])
    expect(guest.requests.map(({ op }) => op)).toEqual(['piece', 'piece', 'piece', 'workload'])
    expect(guest.requests.at(-1)).toMatchObject({ sha256: hostData, simulated: { measurement, operatorKey, hostData } })
  })

  test('goal: a guest with a report device is told nothing of its launch', async () => {
    await using stack = new AsyncDisposableStack()
    const { vmId, guest, gatewayVms } = await bench(stack, { platform: 'snp' })
    await gatewayVms.workload(vmId, timeoutMs)
    expect(guest.requests.at(-1)).toMatchObject({ op: 'workload', simulated: null })
  })

  test('goal: documents that are sent at the same time arrive whole, one after the other, and only so many wait', async () => {
    await using stack = new AsyncDisposableStack()
    const { vmId, guest, gatewayVms } = await bench(stack)
    const signature = new Uint8Array(64)
    const snapshots = [1, 2, 3].map(fill => new Uint8Array(pieceBytesMax * fill + fill).fill(fill))
    const sent = [
      ...snapshots.map(bytes => gatewayVms.control(vmId, { bytes, signature }, timeoutMs)),
      gatewayVms.workload(vmId, timeoutMs),
    ]
    const [bytes = new Uint8Array()] = snapshots
    expect(await failure(gatewayVms.control(vmId, { bytes, signature }, timeoutMs))).toMatchObject({
      code: 'channel.refused',
    })
    expect((await Promise.all(sent)).slice(0, 3)).toEqual([3, 3, 3])
    expect(guest.documents.map(({ bytes }) => bytes.length)).toEqual([
      ...snapshots.map(({ length }) => length),
      workload.length,
    ])
    // And afterwards it takes more.
    expect(await gatewayVms.control(vmId, { bytes, signature }, timeoutMs)).toBe(3)
  })

  test('goal: a document over its bound is refused before a byte of it is sent; one at the bound goes over', async () => {
    await using stack = new AsyncDisposableStack()
    const { vmId, guest, gatewayVms } = await bench(stack)
    const signature = new Uint8Array(64)
    const whole = new Uint8Array(documentBytesMax.control)
    const tooLong = { bytes: new Uint8Array(documentBytesMax.control + 1), signature }
    expect(await failure(gatewayVms.control(vmId, tooLong, timeoutMs))).toMatchObject({ code: 'channel.refused' })
    expect(guest.requests).toEqual([])
    expect(await gatewayVms.control(vmId, { bytes: whole, signature }, timeoutMs)).toBe(3)
  })

  test('goal: every other operation gets its typed response, and a response of another kind is refused', async () => {
    await using stack = new AsyncDisposableStack()
    const { vmId, guest, gatewayVms, state } = await bench(stack)
    const asked = { known: ['a'], booked: 7, waitMs: 0 }
    expect(await gatewayVms.next(vmId, asked, timeoutMs)).toEqual({ status: gatewayStatus, wants: [], usage: null })
    const from = { logFrom: 5, metricsFrom: 0 }
    expect(await gatewayVms.report(vmId, from, timeoutMs)).toEqual({ metrics: 'up 1\n', metricsChars: 5, log: [] })
    await gatewayVms.tell(vmId, { op: 'addresses', hosts: { 'upstream.test': ['192.0.2.9'] } }, timeoutMs)
    await gatewayVms.tell(
      vmId,
      { op: 'evidence_for', want: 'w', evidence: null, problem: 'no certificates' },
      timeoutMs,
    )
    await gatewayVms.tell(vmId, { op: 'certificate_for', want: 'w', clients: 'PEM', guests: 'PEM' }, timeoutMs)
    await gatewayVms.tell(vmId, { op: 'drain' }, timeoutMs)
    expect(guest.requests.map(({ id: _, ...request }) => request)).toEqual([
      { op: 'next', ...asked },
      { op: 'report', ...from },
      { op: 'addresses', hosts: { 'upstream.test': ['192.0.2.9'] } },
      { op: 'evidence_for', want: 'w', evidence: null, problem: 'no certificates' },
      { op: 'certificate_for', want: 'w', clients: 'PEM', guests: 'PEM' },
      { op: 'drain' },
    ])
    guest.answer = () => ({})
    for (const work of [
      gatewayVms.next(vmId, asked, timeoutMs),
      gatewayVms.report(vmId, { logFrom: 0, metricsFrom: 0 }, timeoutMs),
      gatewayVms.control(vmId, { bytes: new Uint8Array(1), signature: new Uint8Array(64) }, timeoutMs),
    ])
      expect(await failure(work)).toMatchObject({ code: 'channel.refused' })
    state.attached = false
    expect(await failure(gatewayVms.tell(vmId, { op: 'drain' }, timeoutMs))).toMatchObject({ code: 'channel.closed' })
  })

  test('goal: what a guest says out of all bounds is no answer', async () => {
    await using stack = new AsyncDisposableStack()
    const { vmId, guest, gatewayVms } = await bench(stack)
    const row = {
      id: 'r',
      atMs: 1,
      organizationId: 'o',
      keyPrefix: 'k',
      instanceId: null,
      model: 'm',
      upstream: 'u',
      promptTokens: 1,
      completionTokens: 1,
      tokensSource: 'reported',
      outcome: 'completed',
    }
    const usage = { from: 0, rows: [row], before: digest, digest, signature: 'A'.repeat(86) }
    const hostile = [
      { usage: { ...usage, rows: Array(129).fill(row) } },
      { usage: { ...usage, rows: [{ ...row, prompt: 'text' }] } },
      { usage: { ...usage, rows: [{ ...row, promptTokens: -1 }] } },
      { wants: Array(17).fill({ id: 'w', kind: 'certificate', csr: 'AA' }) },
      { wants: [{ id: 'w', kind: 'shell', csr: 'AA' }] },
      { status: { ...gatewayStatus, problem: 'p'.repeat(513) } },
    ]
    const asked = { known: [], booked: 0, waitMs: 0 }
    for (const change of hostile) {
      guest.answer = () => ({ next: { status: gatewayStatus, wants: [], usage: null, ...change } })
      expect(await failure(gatewayVms.next(vmId, asked, 100))).toMatchObject({ code: 'channel.timeout' })
    }
    guest.answer = () => ({ next: { status: gatewayStatus, wants: [], usage } })
    expect((await gatewayVms.next(vmId, asked, timeoutMs)).usage?.rows).toHaveLength(1)
  })
})

describe('evidence', () => {
  const wanted = { reportData: toBase64Url(reportData), report: null }

  test('goal: the simulated platform reports the workload as HOST_DATA, and the launch document comes beside it', async () => {
    await using stack = new AsyncDisposableStack()
    const { vmId, gatewayVms, hostData } = await bench(stack)
    const found = await gatewayVms.completeEvidence(vmId, wanted)
    const report = decodeReport(fromBase64Url(found.evidence.report) ?? new Uint8Array())
    expect([toHex(report.hostData), toHex(report.measurement), toHex(report.idKeyDigest)]).toEqual([
      hostData,
      measurement,
      operatorKey,
    ])
    expect(report.reportData).toEqual(reportData)
    expect(found).toMatchObject({ launch, workload, simulated: true, operatorKey: host.operatorKey })
    expect(Object.keys(found.evidence)).toEqual(['report', 'vek', 'chain', 'crl'])
  })

  test('goal: a report of another launch, workload, operator or statement is refused before anybody is asked for certificates', async () => {
    await using stack = new AsyncDisposableStack()
    let asked = 0
    const collateral: EvidenceSources['collateral'] = async () => {
      asked += 1
      return { ok: false, reason: 'away', retryAfterMs: null }
    }
    const { vmId, gatewayVms, hostData } = await bench(stack, { platform: 'snp', sources: { collateral } })
    const own = {
      reportData,
      measurement: fromHex(measurement) ?? new Uint8Array(),
      hostData: fromHex(hostData) ?? new Uint8Array(),
    }
    const complete = async (change: Partial<Parameters<typeof host.evidence>[0]>) => {
      const { report } = await host.evidence({ ...own, ...change })
      const failed = await failure(gatewayVms.completeEvidence(vmId, { ...wanted, report: toBase64Url(report) }))
      return `${failed.code} ${failed.message}`
    }
    expect(await complete({ hostData: hostDataOf({ document: launch, workload: null }) })).toMatch(/refused.*HOST_DATA/)
    expect(await complete({ hostData: hostDataOf({ document: launch, workload: `${workload} ` }) })).toMatch(
      /refused.*HOST_DATA/,
    )
    expect(await complete({ measurement: new Uint8Array(48) })).toMatch(/refused.*MEASUREMENT/)
    expect(await complete({ operatorKey: new Uint8Array(48) })).toMatch(/refused.*ID_KEY_DIGEST/)
    expect(await complete({ reportData: new Uint8Array(64) })).toMatch(/refused.*REPORT_DATA/)
    expect(asked).toBe(0)
    // Its own: now the certificates are missing, and that is said.
    expect(await complete({})).toMatch(/attest\.unavailable.*away/)
    expect(asked).toBe(1)
    // Without a report device on a host with one, and the other way round.
    expect(await failure(gatewayVms.completeEvidence(vmId, wanted))).toMatchObject({ code: 'channel.refused' })
  })

  test('goal: a VM that was launched without a workload, or with another than is on record, gets none', async () => {
    await using stack = new AsyncDisposableStack()
    for (const [options, words] of [
      [{ workload: null }, 'without a workload'],
      [{ recordedAs: '00'.repeat(32) }, 'not the one that it was launched with'],
    ] as const) {
      const { vmId, gatewayVms, guest } = await bench(stack, options)
      for (const work of [gatewayVms.completeEvidence(vmId, wanted), gatewayVms.workload(vmId, timeoutMs)]) {
        const failed = await failure(work)
        expect([failed.code, failed.message]).toEqual(['attest.unavailable', expect.stringContaining(words)])
      }
      expect(guest.requests).toEqual([])
    }
  })

  test('goal: bytes that are no canonical base64url are refused', async () => {
    await using stack = new AsyncDisposableStack()
    const { vmId, gatewayVms } = await bench(stack)
    const work = gatewayVms.completeEvidence(vmId, { ...wanted, reportData: `${'A'.repeat(85)}B` })
    expect(await failure(work)).toMatchObject({ code: 'channel.refused' })
  })

  test('goal: certificates that break the bounds of the wire are refused', async () => {
    await using stack = new AsyncDisposableStack()
    const simulated: EvidenceSources['simulated'] = async () => ({
      evidence: async asked => ({ ...(await host.evidence(asked)), crl: new Uint8Array(16_385) }),
    })
    const { vmId, gatewayVms } = await bench(stack, { sources: { simulated } })
    const failed = await failure(gatewayVms.completeEvidence(vmId, wanted))
    expect([failed.code, failed.message]).toEqual(['channel.refused', expect.stringContaining('/crl')])
  })
})
