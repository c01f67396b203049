// Evidence of a claimed VM, from a guest on a real socket to a receipt that verifies; and hostile guests, missing
// certificates and many callers at a time.

import { afterAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { failure, until } from '../../../scripts/rigs/until.ts'
import type { TrustedRoot } from '../../../src/attest/amd/roots.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import type { Receipt } from '../../../src/attest/receipt/receipt.ts'
import { reportDataOf } from '../../../src/attest/receipt/statement.ts'
import { verifyReceipt } from '../../../src/attest/receipt/verifiers.ts'
import { decodeReport } from '../../../src/attest/report/report.ts'
import { fromBase64Url, fromHex, toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { type LaunchDocument, launchFormat, launchText } from '../../../src/contract/vm/launch.ts'
import { CollateralKeeper } from '../../../src/host/kds/collateral.ts'
import { createKds } from '../../../src/host/kds/kds.ts'
import { connectChannel } from '../../../src/host/qemu/agent-channel.ts'
import { openSimulatedHost } from '../../../src/host/simulated-host.ts'
import { fetchDirectly } from '../../../src/linux/net/outgoing.ts'
import { openStore } from '../../../src/store/db.ts'
import { recordLaunch } from '../../../src/store/ledger/launch.query.ts'
import { insertVm, moveVm } from '../../../src/store/ledger/vm.query.ts'
import { readSimulatedRoot } from '../../../src/verifier/simulated-root.ts'
import { EvidenceTaker } from '../../../src/vm/evidence/evidence.driver.ts'
import type { EvidenceSources } from '../../../src/vm/evidence/report.driver.ts'
import { hostDataOf } from '../../../src/vm/launch/expected.plan.ts'
import { type GuestOptions, startClaimedGuest } from '../../rigs/guest/claimed-guest.ts'
import { type KdsServer, startKdsServer } from '../../rigs/kds-server.ts'
import { hello } from '../../rigs/launch/vm-engine.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-evidence-'))
afterAll(() => rmSync(dir, { recursive: true }))
const host = await openSimulatedHost({
  stateDir: dir,
  nowMs: systemClock.nowMs,
  random: systemRandom,
  modulusBits: 2048,
})
const simulatedRoot = readSimulatedRoot(new Uint8Array(await Bun.file(host.rootFile).arrayBuffer()))
const timeoutMs = 20_000
const nonce = new Uint8Array(32).fill(5)
const measurement = 'ab'.repeat(48)
const digest = 'cd'.repeat(32)
const document: LaunchDocument = {
  format: launchFormat,
  image: { name: 'instance', rootHash: digest, inputsSha256: digest },
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
const texts = { document: launchText(document), workload: null }
const operatorKey = toHex(host.operatorKey)

type Options = {
  readonly platform?: 'snp' | 'tcg'
  readonly guest?: Partial<GuestOptions>
  readonly sources?: Partial<EvidenceSources>
  readonly isRecorded?: boolean
  /** With which the VM was launched; this host's own unless given. */
  readonly launchedBy?: string
}

async function bench(stack: AsyncDisposableStack, options: Options = {}) {
  const { platform = 'tcg', isRecorded = true } = options
  const store = openStore(':memory:')
  stack.defer(() => store.close())
  const { db } = store.ledger
  const vmId = newUuid()
  insertVm(db, { id: vmId, hostId: 'h', image: 'instance', vcpus: 2, memoryMib: 2048, nowMs: 1 })
  moveVm(db, { id: vmId, from: 'waiting', to: 'running', nowMs: 2, platform })
  const hostData = toHex(hostDataOf(texts))
  if (isRecorded)
    recordLaunch(db, {
      vmId,
      ...texts,
      measurement,
      hostData,
      operatorKey: options.launchedBy ?? operatorKey,
      launchedAtMs: 3,
    })
  const ownLaunch = platform === 'snp' ? { measurement, operatorKey } : null
  const guest = stack.use(startClaimedGuest(join(dir, vmId), { report: null, ownLaunch, ...options.guest }))
  const channel = await connectChannel(guest.path, { idPrefix: 'p', timeoutMs: 20_000, onClose: () => {} })
  stack.defer(() => channel.close())
  const state = {
    hello: { ...hello, platform: platform === 'snp' ? ('snp' as const) : ('none' as const) },
    attached: true,
  }
  const taker = new EvidenceTaker({
    db,
    clock: systemClock,
    sources: { collateral: null, simulated: async () => host, ...options.sources },
    linkOf: () =>
      state.attached
        ? { channel, observe: () => ({ closed: false, stopped: false, paused: false, hello: state.hello }) }
        : null,
  })
  return { vmId, guest, taker, state, take: (of = nonce, ms = timeoutMs) => taker.take(vmId, of, ms) }
}

function verdictOf(receipt: Receipt, roots: readonly TrustedRoot[], asOf: number, of = nonce) {
  const launch = {
    measurements: [fromHex(measurement) ?? nonce],
    hostData: hostDataOf(texts),
    idKeyDigest: host.operatorKey,
  }
  return verifyReceipt(JSON.stringify(receipt), {
    kind: 'claim',
    nonce: of,
    asOf,
    ageMsMax: 'any',
    roots,
    requireCrl: true,
    policy: { ...strictPolicy(), ...launch },
    expected: {
      organization: { equals: 'acme' },
      name: { equals: 'abcd1234' },
      hostname: { equals: 'abcd1234.acme.agents.test' },
      sshHostKeyDigest: 'any',
      publicKeyDigest: 'any',
      operatorKey: 'any',
      imageName: 'any',
      claimDigest: 'any',
      inferenceUrl: 'any',
      inferenceModel: 'any',
      gateway: 'any',
      gatewayDigest: 'any',
      resolvers: 'any',
      egressLimitBytes: 'any',
      egressNames: 'any',
      egressPolicy: 'any',
      gatewayKeyDigest: 'any',
      loginKeys: 'any',
      secrets: 'any',
      published: 'any',
    },
    tpm: 'any',
  })
}

const failed = ({ checks }: { readonly checks: readonly { name: string; outcome: string }[] }) =>
  checks.filter(check => check.outcome === 'fail').map(check => check.name)

describe('on a development platform', () => {
  test('a receipt verifies below the simulated root, for its own nonce only', async () => {
    // Goal: guest, launch and simulated platform together give what service A and clients verify.
    await using stack = new AsyncDisposableStack()
    const { take, guest } = await bench(stack)
    const { receipt, launch, simulated } = await take()
    expect([launch, simulated]).toEqual([launchText(document), true])
    expect(failed(await verdictOf(receipt, [simulatedRoot], Date.now()))).toEqual([])
    expect(failed(await verdictOf(receipt, [simulatedRoot], Date.now(), new Uint8Array(32)))).toEqual([
      'statement-nonce',
    ])
    const report = decodeReport(fromBase64Url(receipt.evidence.report) ?? nonce)
    expect(toHex(report.reportData)).toBe(toHex(reportDataOf(fromBase64Url(receipt.statement) ?? nonce)))
    expect(guest.requests).toMatchObject([{ op: 'evidence', simulated: { measurement, operatorKey } }])
  })

  test('a VM stays one of the operator key that it was launched with', async () => {
    // Goal: evidence follows the record of the launch, whatever has become of this host's key since.
    await using stack = new AsyncDisposableStack()
    const { take } = await bench(stack, { launchedBy: 'ee'.repeat(48) })
    const { receipt } = await take()
    const { idKeyDigest, policy } = decodeReport(fromBase64Url(receipt.evidence.report) ?? nonce)
    expect([toHex(idKeyDigest), policy]).toEqual(['ee'.repeat(48), 0x30000n])
    expect(failed(await verdictOf(receipt, [simulatedRoot], Date.now()))).toContain('id-key-digest')
  })

  test('the receipt is handed back whole', async () => {
    // Goal: the verifier inside reads the very receipt that the host completed.
    await using stack = new AsyncDisposableStack()
    const { take, taker, vmId, guest } = await bench(stack)
    const { receipt } = await take()
    await taker.hand(vmId, receipt, timeoutMs)
    const [, handed] = guest.requests
    if (handed?.op !== 'receipt') throw new Error('the receipt was not handed over')
    expect(JSON.parse(handed.receipt)).toEqual(receipt)
    const huge = { ...receipt, statement: 'A'.repeat(98_304) }
    expect(await failure(taker.hand(vmId, huge, timeoutMs))).toMatchObject({ code: 'channel.refused' })
  })

  test('the simulated platform signs nothing but a claim of this launch over this nonce', async () => {
    // Goal: a guest that wants the host's simulator to sign anything else is refused before any work is done.
    await using stack = new AsyncDisposableStack()
    let signed = 0
    const counted: EvidenceSources['simulated'] = async () => ({
      evidence: async launch => {
        signed += 1
        return host.evidence(launch)
      },
    })
    const { take, guest } = await bench(stack, { sources: { simulated: counted } })
    const other = (fill: number, size: number) => new Uint8Array(size).fill(fill)
    const lies: [string, typeof guest.state][] = [
      ['another nonce', statement => ({ ...statement, nonce: other(9, 32) })],
      ['other keys', statement => ({ ...statement, keysDigest: other(9, 32) })],
      ['another operator key', statement => ({ ...statement, operatorKey: other(9, 48) })],
      ['another image', statement => ({ ...statement, image: { ...statement.image, name: 'strongroom' } })],
      ['another measurement', statement => ({ ...statement, image: { name: 'instance', measurement: other(9, 48) } })],
      [
        'a build, not a claim',
        ({ format, issuedAt, keysDigest, operatorKey, image, sshHostKeyDigest: a, publicKeyDigest: b }) =>
          ({
            format,
            issuedAt,
            keysDigest,
            operatorKey,
            image,
            kind: 'build',
            scope: 'build-only',
            nonce: other(1, 8),
            dispatchDigest: a,
            provenanceDigest: a,
            sourceDigest: b,
            networkPolicy: 'none',
          }) as never,
      ],
    ]
    for (const [what, lie] of lies) {
      guest.state = lie
      const error = await failure(take())
      expect([what, error.code, error.message.includes(what)]).toEqual([what, 'channel.refused', true])
    }
    guest.state = statement => statement
    const garbage: [string, typeof guest.send][] = [
      ['evidence of VM', evidence => ({ ...evidence, statement: 'AAAA' })],
      ['canonical', evidence => ({ ...evidence, keys: { ...evidence.keys, ed25519: `${'A'.repeat(42)}B` } })],
      ['report device', evidence => ({ ...evidence, report: 'A'.repeat(1579) })],
    ]
    for (const [what, send] of garbage) {
      guest.send = send
      const error = await failure(take())
      expect([what, error.code, error.message.includes(what)]).toEqual([what, 'channel.refused', true])
    }
    expect(signed).toBe(0)
    // The schema of the wire refuses a wrong size.
    guest.send = evidence => ({ ...evidence, signatures: { ...evidence.signatures, mldsa65: 'AAAA' } })
    expect(await failure(take(nonce, 300))).toMatchObject({ code: 'channel.timeout' })
    guest.send = evidence => evidence
    expect((await take()).simulated).toBe(true)
  })

  test('of one VM one at a time is taken, a few wait, and all have their bound', async () => {
    // Goal: callers, or a silent guest, cannot pile up work.
    await using stack = new AsyncDisposableStack()
    const { take, guest } = await bench(stack)
    const opened = Promise.withResolvers<void>()
    guest.gate = opened.promise
    const taken = [1, 2, 3, 4].map(fill => take(new Uint8Array(32).fill(fill)))
    expect(await failure(take())).toMatchObject({ code: 'channel.refused' })
    await until('the first has asked', 60_000, () => guest.requests.length > 0)
    await Bun.sleep(50)
    expect(guest.requests).toHaveLength(1)
    opened.resolve()
    const all = await Promise.all(taken)
    expect(new Set(all.map(item => item.receipt.statement)).size).toBe(4)
    guest.gate = new Promise(() => {})
    const late = await Promise.all([failure(take(nonce, 200)), failure(take(nonce, 200))])
    expect(late.map(item => item.code)).toEqual(['channel.timeout', 'channel.timeout'])
    guest.gate = Promise.resolve()
    expect((await take()).simulated).toBe(true)
  })

  test('a guest of the wrong platform, none at all, and one without a record are told apart', async () => {
    // Goal: each says what is wrong and what to do, and nothing is asked of such a guest.
    await using stack = new AsyncDisposableStack()
    const { take, state, guest } = await bench(stack)
    state.hello = { ...state.hello, platform: 'snp' }
    expect((await failure(take())).message).toContain('started on tcg, but its guest reports a report device')
    state.attached = false
    expect(await failure(take())).toMatchObject({ code: 'channel.closed' })
    expect(guest.requests).toEqual([])
    const old = await bench(stack, { isRecorded: false })
    const error = await failure(old.take())
    expect([error.code, error.message.includes('Delete the instance')]).toEqual(['attest.unavailable', true])
  })
})

const product = 'genoa'
const asOf = Date.UTC(2026, 10, 20)
/** The stand-in's root is none of AMD's: only such a platform may call itself `snp`. */
const notAmds = ['platform']

async function onSnp(stack: AsyncDisposableStack, options: { limits?: object; timeoutMs?: number } = {}) {
  const server = stack.use(await startKdsServer(product))
  const clock = { ...systemClock, nowMs: () => asOf }
  const roots = [server.platform.authority.root]
  const cacheDir = join(dir, `kds-${newUuid()}`)
  const kds = createKds({
    baseUrl: server.url,
    cacheDir,
    roots,
    clock,
    log: silentLogger,
    send: fetchDirectly,
    timeoutMs: options.timeoutMs ?? 20_000,
    limits: options.limits ?? {},
  })
  const keeper = new CollateralKeeper({ kds, product, clock, log: silentLogger })
  const device = { measurement: fromHex(measurement) ?? nonce, hostData: hostDataOf(texts) }
  const report = (reportData: Uint8Array, change: object = {}) =>
    server.platform.report({
      reportData,
      ...device,
      report: { idKeyDigest: host.operatorKey, platformInfo: 0x21n },
      ...change,
    })
  const started = await bench(stack, {
    platform: 'snp',
    guest: { report: reportData => report(reportData) },
    sources: { collateral: of => keeper.forReport(of) },
  })
  return { ...started, server, roots, report }
}

const troubles = [
  ['blocked', () => new Promise<Response>(() => {}), 'key distribution service'],
  [
    'throttled',
    () => new Response('', { status: 429, headers: { 'retry-after': '3600' } }),
    'the next attempt may be made in 3600 s',
  ],
  ['away', () => new Response('', { status: 503 }), 'kds.base_url'],
] as const

describe('on snp', () => {
  test('the guest reports, the host adds the certificates, and AMD is asked once', async () => {
    // Goal: a client needs no network; what is kept serves while the service is away.
    await using stack = new AsyncDisposableStack()
    const { take, server, roots, guest } = await onSnp(stack)
    const first = await take()
    expect(first.simulated).toBe(false)
    expect(failed(await verdictOf(first.receipt, roots, asOf))).toEqual(notAmds)
    expect(guest.requests).toMatchObject([{ op: 'evidence', simulated: null }])
    server.respond = () => new Response('', { status: 500 })
    expect(failed(await verdictOf((await take()).receipt, roots, asOf))).toEqual(notAmds)
    const vceks = (of: KdsServer) => of.requests.filter(path => path.includes('blSPL='))
    expect(vceks(server)).toHaveLength(1)
  })

  test.each(troubles)('a key distribution service that is %s is survived', async (_, respond, told) => {
    // Goal: the failure comes within its bound and says what to do; afterwards all is as if nothing had been.
    await using stack = new AsyncDisposableStack()
    // A service that answers has the time for it.
    const isSilent = told === 'key distribution service'
    const limits = { waitMsMax: isSilent ? 100 : 20_000, vcekIntervalMs: 0 }
    const { take, server, roots } = await onSnp(stack, { limits, timeoutMs: isSilent ? 300 : 20_000 })
    server.respond = respond
    const error = await failure(take())
    expect([error.code, error.message.includes(told)]).toEqual(['attest.unavailable', true])
    expect(error.message).toContain('let this host reach kds.base_url')
    if (told.includes('3600')) return
    server.respond = server.serve
    let again: Receipt | null = null
    await until('the service is asked again', 60_000, async () => {
      again = await take().then(
        evidence => evidence.receipt,
        () => null,
      )
      return again !== null
    })
    expect(failed(await verdictOf(again ?? ({} as Receipt), roots, asOf))).toEqual(notAmds)
  })

  test('a report that is not of this launch and statement is refused before AMD is asked', async () => {
    // Goal: a guest cannot make this host ask AMD for certificates of chips that it makes up.
    await using stack = new AsyncDisposableStack()
    const { server, report } = await onSnp(stack)
    const other = (size: number) => new Uint8Array(size).fill(9)
    const lies = {
      REPORT_DATA: () => report(other(64)),
      MEASUREMENT: (data: Uint8Array) => report(data, { measurement: other(48) }),
      HOST_DATA: (data: Uint8Array) => report(data, { hostData: other(32) }),
      ID_KEY_DIGEST: (data: Uint8Array) => report(data, { report: { idKeyDigest: other(48) } }),
    }
    for (const [field, lie] of Object.entries(lies)) {
      const collateral = () => Promise.reject(new Error('asked'))
      const { take } = await bench(stack, { platform: 'snp', guest: { report: lie }, sources: { collateral } })
      const error = await failure(take())
      expect([field, error.code, error.message.includes(field)]).toEqual([field, 'channel.refused', true])
    }
    expect(server.requests).toEqual([])
  })

  test('without a device, or without certificates for this processor, that is said', async () => {
    // Goal: an operator reads what to change.
    await using stack = new AsyncDisposableStack()
    const silent = await bench(stack, { platform: 'snp', guest: { ownLaunch: { measurement, operatorKey } } })
    expect((await failure(silent.take())).message).toContain('its guest reports no report device')
    silent.state.hello = { ...silent.state.hello, platform: 'none' }
    expect((await failure(silent.take())).message).toContain('its guest reports no report device')
    const { report } = await onSnp(stack)
    const unknown = await bench(stack, { platform: 'snp', guest: { report: data => report(data) } })
    const error = await failure(unknown.take())
    expect([error.code, error.message.includes('no known EPYC product')]).toEqual(['attest.unavailable', true])
  })
})
