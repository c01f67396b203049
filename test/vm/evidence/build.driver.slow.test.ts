// Evidence of a build VM, from a guest on a real socket to receipts that service C's judge accepts; and hostile guests.

import { afterAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { failure } from '../../../scripts/rigs/until.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { decodeReport } from '../../../src/attest/report/report.ts'
import { issueSimulatedCrl } from '../../../src/attest/simulator/certificates.ts'
import { concat, fromBase64Url, fromHex, toBase64Url, toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { type BuildProof, judgeBuild } from '../../../src/builds/evidence.verify.ts'
import type { AttestedStage, BuildEvidence } from '../../../src/contract/vm/build-agent.ts'
import { type LaunchDocument, launchFormat, launchText } from '../../../src/contract/vm/launch.ts'
import type { CollateralResult } from '../../../src/host/kds/collateral.ts'
import { connectChannel } from '../../../src/host/qemu/agent-channel.ts'
import { openSimulatedHost } from '../../../src/host/simulated-host.ts'
import { openStore } from '../../../src/store/db.ts'
import { recordLaunch } from '../../../src/store/ledger/launch.query.ts'
import { insertVm, moveVm } from '../../../src/store/ledger/vm.query.ts'
import { readSimulatedRoot } from '../../../src/verifier/simulated-root.ts'
import type { VmEvidence } from '../../../src/vm/engine.ts'
import { VmBuilds } from '../../../src/vm/evidence/build.driver.ts'
import type { EvidenceSources } from '../../../src/vm/evidence/report.driver.ts'
import { hostDataOf } from '../../../src/vm/launch/expected.plan.ts'
import {
  type BuildingGuest,
  type BuildingGuestOptions,
  dispatchWords,
  provenanceBytes,
  startBuildingGuest,
  type VouchedRequest,
} from '../../rigs/build/building-guest.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-build-evidence-'))
afterAll(() => rmSync(dir, { recursive: true }))
const host = await openSimulatedHost({
  stateDir: dir,
  nowMs: systemClock.nowMs,
  random: systemRandom,
  modulusBits: 2048,
})
const simulatedRoot = readSimulatedRoot(new Uint8Array(await Bun.file(host.rootFile).arrayBuffer()))
const timeoutMs = 20_000
const jobId = '4f9d2c1e-0000-4000-8000-000000000001'
const wholeNonce = new Uint8Array(16).fill(5)
const measurement = 'ab'.repeat(48)
const digest = 'cd'.repeat(32)
const document: LaunchDocument = {
  format: launchFormat,
  image: { name: 'builder', rootHash: digest, inputsSha256: digest },
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
const operatorKey = toHex(host.operatorKey)
const other = (size: number) => new Uint8Array(size).fill(9)

type Options = {
  readonly platform?: 'snp' | 'tcg'
  readonly nonce?: Uint8Array
  readonly guest?: Partial<BuildingGuestOptions>
  readonly sources?: Partial<EvidenceSources>
}

async function bench(stack: AsyncDisposableStack, options: Options = {}) {
  const { platform = 'tcg', nonce = wholeNonce } = options
  const store = openStore(':memory:')
  stack.defer(() => store.close())
  const { db } = store.ledger
  const vmId = newUuid()
  insertVm(db, { id: vmId, hostId: 'h', image: 'builder', vcpus: 2, memoryMib: 2048, nowMs: 1 })
  moveVm(db, { id: vmId, from: 'waiting', to: 'running', nowMs: 2, platform })
  const hostData = toHex(hostDataOf({ document: launchText(document), workload: null }))
  recordLaunch(db, {
    vmId,
    document: launchText(document),
    workload: null,
    measurement,
    hostData,
    operatorKey,
    launchedAtMs: 3,
  })
  const ownLaunch = platform === 'snp' ? { measurement, operatorKey } : null
  const guest = stack.use(
    startBuildingGuest(join(dir, vmId), { jobId, nonce, report: null, ownLaunch, ...options.guest }),
  )
  const channel = await connectChannel(guest.path, { idPrefix: 'p', timeoutMs: 20_000, onClose: () => {} })
  stack.defer(() => channel.close())
  const signed: string[] = []
  const simulated: EvidenceSources['simulated'] = async () => ({
    evidence: async launch => {
      signed.push(toHex(launch.reportData))
      return host.evidence(launch)
    },
  })
  const state = { attached: true }
  const builds = new VmBuilds({
    db,
    sources: { collateral: null, simulated, ...options.sources },
    linkOf: () => (state.attached ? { channel } : null),
  })
  const vouch = async (stage: AttestedStage = guest.stage, of = nonce): Promise<VmEvidence> => {
    const accepted: VmEvidence[] = []
    await builds.vouch(vmId, { stage, nonce: of }, evidence => accepted.push(evidence) > 0, timeoutMs)
    const [evidence] = accepted
    if (evidence === undefined) throw new Error('nothing was accepted')
    return evidence
  }
  const handed = () => guest.requests.filter((request): request is VouchedRequest => request.op === 'vouched')
  return { vmId, guest, builds, state, vouch, signed, handed }
}

function judge({ receipt, launch, operatorKey: key }: VmEvidence, earlier: BuildProof | null, nonce = wholeNonce) {
  return judgeBuild(
    { receipt, launch, operatorKey: key },
    {
      stage: earlier === null ? 'dispatch' : 'completion',
      jobId,
      nonce: toHex(nonce),
      mayFetch: false,
      asOf: Date.now(),
      earlier,
      trust: { roots: [simulatedRoot], simulated: true, operatorKeys: [host.operatorKey] },
    },
  )
}

const bytesOf = (base64url: string | undefined) => fromBase64Url(base64url ?? '') ?? new Uint8Array()

describe('on a development platform', () => {
  test('dispatch and completion are proved, one after the other, and the guest gets both receipts', async () => {
    // Goal: guest, launch and simulated platform together give a receipt that service C accepts and the guest puts into
    // the result.
    await using stack = new AsyncDisposableStack()
    const { guest, vouch, handed } = await bench(stack)
    const dispatch = await vouch()
    expect([dispatch.launch, dispatch.simulated]).toEqual([launchText(document), true])
    const first = await judge(dispatch, null)
    if (!first.ok) throw new Error(first.failed.join(', '))
    guest.stage = 'completion'
    const completion = await vouch()
    const provenance = toHex(sha256(provenanceBytes))
    expect(await judge(completion, first.proof)).toMatchObject({ ok: true, proof: { provenance } })
    expect(guest.requests.map(({ op }) => op)).toEqual(['vouch', 'vouched', 'vouch', 'vouched'])
    expect(guest.requests[0]).toMatchObject({ simulated: { measurement, operatorKey } })
    const [item, two] = handed()
    expect([item?.stage, item?.provenance]).toEqual(['dispatch', null])
    expect([JSON.parse(item?.receipt ?? ''), JSON.parse(two?.receipt ?? '')]).toEqual([
      dispatch.receipt,
      completion.receipt,
    ])
    const { reportData } = decodeReport(bytesOf(two?.provenance?.report))
    expect(reportData).toEqual(concat(sha256(provenanceBytes), wholeNonce, new Uint8Array(16)))
    expect(bytesOf(two?.provenance?.ark)).toEqual(bytesOf(completion.receipt.evidence.chain[1]))
  })

  test('evidence that is not accepted does not reach the guest, and is taken again', async () => {
    // Goal: the daemon records evidence before the guest goes on with it, so no kill comes between.
    await using stack = new AsyncDisposableStack()
    const { vmId, guest, builds, vouch, handed } = await bench(stack)
    await builds.vouch(vmId, { stage: 'dispatch', nonce: wholeNonce }, () => false, timeoutMs)
    const broken = builds.vouch(
      vmId,
      { stage: 'dispatch', nonce: wholeNonce },
      () => Promise.reject(new Error('no')),
      timeoutMs,
    )
    expect((await failure(broken)).message).toBe('no')
    expect(handed()).toEqual([])
    const dispatch = await vouch()
    expect(handed().map(({ receipt }) => JSON.parse(receipt))).toEqual([dispatch.receipt])
    expect(guest.requests.map(({ op }) => op)).toEqual(['vouch', 'vouch', 'vouch', 'vouched'])
  })

  test('a nonce of fewer than 16 bytes has no report over the provenance', async () => {
    // Goal: the report's 16 bytes of nonce are never padded, so no short nonce passes for a longer one.
    await using stack = new AsyncDisposableStack()
    const nonce = new Uint8Array(15).fill(5)
    const { guest, vouch, signed, handed } = await bench(stack, { nonce })
    const first = await judge(await vouch(), null, nonce)
    guest.stage = 'completion'
    const second = await judge(await vouch(), first.ok ? first.proof : null, nonce)
    expect([first.ok, second.ok, signed.length, handed()[1]?.provenance]).toEqual([true, true, 2, null])
    guest.send = evidence => ({ ...evidence, provenance: { sha256: digest, report: null } })
    const error = await failure(vouch())
    expect([error.code, error.message.includes('not wanted here'), signed.length]).toEqual(['channel.refused', true, 2])
  })

  type Lie = { stage: AttestedStage; state?: BuildingGuest['state']; send?: (evidence: BuildEvidence) => unknown }
  const dispatchDigest = other(32)
  const lies: readonly [string, Lie][] = [
    ['another nonce', { stage: 'dispatch', state: fields => ({ ...fields, nonce: other(16) }) }],
    // A prefix of the nonce, as a guest might cut it to meet another build's.
    ['another nonce', { stage: 'completion', state: fields => ({ ...fields, nonce: wholeNonce.slice(0, 8) }) }],
    [
      'another measurement',
      { stage: 'dispatch', state: fields => ({ ...fields, image: { ...fields.image, measurement: other(48) } }) },
    ],
    [
      'another image',
      { stage: 'completion', state: fields => ({ ...fields, image: { ...fields.image, name: 'instance' } }) },
    ],
    ['another operator key', { stage: 'dispatch', state: fields => ({ ...fields, operatorKey: other(48) }) }],
    [
      'other keys',
      {
        stage: 'completion',
        send: evidence => ({ ...evidence, keys: { ...evidence.keys, ed25519: toBase64Url(other(32)) } }),
      },
    ],
    [
      'states a build, not a build-dispatch',
      {
        stage: 'dispatch',
        state: fields => {
          const { nonce, operatorKey: key, image } = fields
          const common = { nonce, operatorKey: key, image, sourceDigest: dispatchDigest, networkPolicy: 'none' }
          return { ...common, kind: 'build', dispatchDigest, provenanceDigest: dispatchDigest }
        },
      },
    ],
    [
      'states a build-dispatch, not a build',
      {
        stage: 'completion',
        state: fields => {
          const { nonce, operatorKey: key, image } = fields
          const common = { nonce, operatorKey: key, image, sourceDigest: dispatchDigest, networkPolicy: 'none' }
          return { ...common, ...dispatchWords, kind: 'build-dispatch', jobId }
        },
      },
    ],
    ['at dispatch, not at completion', { stage: 'completion', send: item => ({ ...item, stage: 'dispatch' }) }],
    ['at completion, not at dispatch', { stage: 'dispatch', send: item => ({ ...item, stage: 'completion' }) }],
    ['provenance is missing', { stage: 'completion', send: item => ({ ...item, provenance: null }) }],
    [
      'provenance is not wanted here',
      { stage: 'dispatch', send: item => ({ ...item, provenance: { sha256: digest, report: null } }) },
    ],
    ['a report device of its own', { stage: 'dispatch', send: item => ({ ...item, report: 'A'.repeat(1579) }) }],
    ['evidence of VM', { stage: 'dispatch', send: item => ({ ...item, statement: 'AAAA' }) }],
    [
      'keys.ed25519 is not canonical',
      { stage: 'dispatch', send: item => ({ ...item, keys: { ...item.keys, ed25519: `${'A'.repeat(42)}B` } }) },
    ],
  ]

  test('the simulated platform signs nothing but a build of this launch, stage and nonce', async () => {
    // Goal: a guest cannot use the host's simulator to vouch for anything else, and gets no receipt for it.
    await using stack = new AsyncDisposableStack()
    const { guest, vouch, signed, handed } = await bench(stack)
    for (const [what, { stage, state, send }] of lies) {
      guest.stage = stage
      guest.state = state ?? (fields => fields)
      guest.send = send ?? (evidence => evidence)
      const error = await failure(vouch(stage))
      expect([what, error.code, error.message.includes(what)]).toEqual([what, 'channel.refused', true])
    }
    expect([signed, handed()]).toEqual([[], []])
    guest.state = fields => fields
    guest.send = evidence => ({
      ...evidence,
      provenance: evidence.provenance === null ? null : { ...evidence.provenance, report: 'A'.repeat(1579) },
    })
    guest.stage = 'completion'
    expect((await failure(vouch())).message).toContain('a report device of its own')
    expect(handed()).toEqual([])
    guest.send = evidence => evidence
    expect((await vouch()).simulated).toBe(true)
  })

  test('order, progress and cancel reach the guest; without a guest that is said', async () => {
    // Goal: what service C asks of a VM is asked of that VM alone, and one that is not attached costs no wait.
    await using stack = new AsyncDisposableStack()
    const { builds, vmId, guest, state, vouch } = await bench(stack)
    const order = {
      jobId,
      nonce: toHex(wholeNonce),
      projectDir: null,
      toolchain: null,
      reproduce: false,
      options: null,
      waivers: [] as never[],
      fetch: null,
      accepts: { caSha256: null, cratesMirror: null },
      imageSummary: null,
      source: { kind: 'archive', name: null, sizeBytes: 1, sha256: digest },
      builderId: 'https://builds.test/builder',
      limits: {
        sourceBytes: 1,
        sourceEntries: 1,
        fetchSeconds: 1,
        fetchBytes: 1,
        buildSeconds: 1,
        memoryBytes: 1,
        pids: 1,
        diskBytes: 1,
        logBytes: 1,
        artifactBytes: 1,
        artifactCount: 1,
      },
    } as const
    await builds.order(vmId, order, timeoutMs)
    expect(await builds.progress(vmId, 7, timeoutMs)).toMatchObject({ waitsFor: 'dispatch', result: null })
    await builds.cancel(vmId, timeoutMs)
    expect(guest.requests).toMatchObject([{ op: 'build', order }, { op: 'progress', from: 7 }, { op: 'cancel' }])
    state.attached = false
    for (const work of [vouch(), builds.progress(vmId, 0, timeoutMs), builds.cancel(vmId, timeoutMs)])
      expect(await failure(work)).toMatchObject({ code: 'channel.closed' })
    expect(guest.requests).toHaveLength(3)
  })
})

describe('on snp', () => {
  const device = {
    measurement: fromHex(measurement) ?? other(48),
    hostData: hostDataOf({ document: launchText(document), workload: null }),
  }
  const reportOf = async (reportData: Uint8Array, change: object = {}) =>
    (await simulatedPlatform('genoa')).report({
      reportData,
      ...device,
      report: { idKeyDigest: host.operatorKey },
      ...change,
    })

  /** The answer of AMD's service for each of its reports. */
  const collateralOf = async (): Promise<Extract<CollateralResult, { ok: true }>> => {
    const platform = await simulatedPlatform('genoa')
    const { ask, ark } = platform.authority.root
    const validity = { thisUpdate: new Date('2026-11-01T00:00:00Z'), nextUpdate: new Date('2026-12-01T00:00:00Z') }
    const crl = await issueSimulatedCrl(platform.authority, { ...validity, revoked: [] })
    return { ok: true, collateral: { vek: platform.vcek, chain: [ask, ark], crl } }
  }

  test('reports of the guest, with certificates, at both stages', async () => {
    // Goal: on hardware nothing is simulated, and evidence.json gets the device's own report.
    await using stack = new AsyncDisposableStack()
    const known = await collateralOf()
    const asked: string[] = []
    const collateral: EvidenceSources['collateral'] = async report => {
      asked.push(toHex(decodeReport(report).reportData))
      return known
    }
    const { guest, vouch, handed, signed } = await bench(stack, {
      platform: 'snp',
      guest: { report: data => reportOf(data) },
      sources: { collateral },
    })
    expect((await vouch()).simulated).toBe(false)
    guest.stage = 'completion'
    const { receipt } = await vouch()
    expect(receipt.platform).toBe('snp')
    expect(guest.requests).toMatchObject([{ simulated: null }, {}, { simulated: null }, {}])
    const { provenance } = handed()[1] ?? {}
    expect(asked).toHaveLength(3)
    expect(asked[2]).toBe(toHex(decodeReport(bytesOf(provenance?.report)).reportData))
    expect([bytesOf(provenance?.vek), bytesOf(provenance?.ask)]).toEqual([
      known.collateral.vek,
      known.collateral.chain[0],
    ])
    expect(signed).toEqual([])
  })

  const reportLies = {
    REPORT_DATA: () => reportOf(other(64)),
    MEASUREMENT: (data: Uint8Array) => reportOf(data, { measurement: other(48) }),
    HOST_DATA: (data: Uint8Array) => reportOf(data, { hostData: other(32) }),
    ID_KEY_DIGEST: (data: Uint8Array) => reportOf(data, { report: { idKeyDigest: other(48) } }),
  }
  test.each(Object.entries(reportLies))(
    'a report with another %s is refused before AMD is asked',
    async (field, lie) => {
      // Goal: a build VM cannot pass for another launch, nor make this host ask AMD for chips that it makes up.
      await using stack = new AsyncDisposableStack()
      const collateral = () => Promise.reject(new Error('asked'))
      const { vouch, handed } = await bench(stack, { platform: 'snp', guest: { report: lie }, sources: { collateral } })
      const error = await failure(vouch())
      expect([error.code, error.message.includes(field)]).toEqual(['channel.refused', true])
      expect(handed()).toEqual([])
    },
  )

  test('a report over the provenance that is of another launch is refused, too', async () => {
    // Goal: the report in evidence.json, which other verifiers read alone, is held to the same launch.
    await using stack = new AsyncDisposableStack()
    let count = 0
    const report = (data: Uint8Array) => {
      count += 1
      return count === 1 ? reportOf(data) : reportOf(data, { measurement: other(48) })
    }
    const sources = { collateral: collateralOf }
    const { guest, vouch, handed } = await bench(stack, { platform: 'snp', guest: { report }, sources })
    guest.stage = 'completion'
    expect((await failure(vouch())).message).toContain('MEASUREMENT of its report')
    expect(handed()).toEqual([])
  })

  test('a guest without a device is refused', async () => {
    // Goal: on a host that started it with SEV-SNP no simulation takes the place of its report.
    await using stack = new AsyncDisposableStack()
    const { vouch, signed } = await bench(stack, { platform: 'snp' })
    expect((await failure(vouch())).message).toContain('no report device')
    expect(signed).toEqual([])
  })
})
