// Expected results of the suite, from sources other than the library: the vectors' own expectations, and verdicts
// written down here.

import { expect } from 'bun:test'
import { resolve } from 'node:path'
import { present } from '../../../src/base/assert.ts'
import { sampleHostKey, sampleInstance } from '../instances/instance-attestation.ts'

const folder = resolve(import.meta.dir, '../../vectors')

/**
 * Failed checks by case of real evidence. 'good' is a good verdict, 'not enough' one without a failed check that is not
 * good either.
 */
const REPORT_VERDICTS = {
  'milan-v2.bin': 'good',
  'milan-v3.bin': 'good',
  'genoa-v3.bin': 'good',
  'genoa-v5.bin': 'good',
  'turin-v5.bin': 'good',
  'milan-v3-vlek.bin': 'good',
  'bare-metal-milan.report.bin': 'good',
  'milan-v3.bin, kept chain': 'good',
  'milan-v3.bin, CRL wanted': 'not enough',
  'milan-v3.bin, no policy': 'not enough',
  'milan-v3-vlek.bin, late': ['chain-validity'],
  'milan-v3-vlek.bin, VMPL 0 wanted': ['vmpl'],
  'turin-v5.bin, early': ['chain-validity'],
  'milan-v2.bin, product unnamed': ['report-product', 'vek-product'],
  'milan-v2.bin, Genoa named': ['vek-product'],
  'milan-v2.bin, bad-vcek-legacy.der': ['chain-signatures', 'vek-chip-id', 'vek-tcb', 'report-signature'],
  'milan-v2.bin, bad-vcek-new.der': ['vek-certificate'],
  'milan-v3.bin, another chain': ['vek-product', 'vek-chip-id', 'vek-tcb', 'report-signature'],
  'milan-v3.bin, measurement changed': ['report-signature'],
  'milan-v3.bin, signature changed': ['report-signature'],
  'milan-v3.bin, cut': ['report-format', 'vek-product'],
  'wrong-chip.hcl.bin': ['vek-chip-id', 'report-signature'],
} as const satisfies Verdicts

/** For each simulated product. Only the first list ends a VCEK's chain, only the second a VLEK's. */
const SIMULATED_VERDICTS = {
  'vcek, good': 'good',
  'vcek, revokesAsk': ['chain-revocation'],
  'vcek, revokesAsvk': 'good',
  'vcek, old': ['chain-revocation'],
  'vcek, stranger': ['chain-revocation'],
  'vcek, no CRL': 'not enough',
  'vcek, no CRL wanted': 'good',
  'vcek, AMD alone': ['chain-root', 'chain-names', 'vek-product'],
  'vlek, good': 'good',
  'vlek, revokesAsk': 'good',
  'vlek, revokesAsvk': ['chain-revocation'],
  'vlek, old': ['chain-revocation'],
  'vlek, stranger': ['chain-revocation'],
  'vlek, no CRL': 'not enough',
  'vlek, no CRL wanted': 'good',
  // The chain that comes with it is the VCEK's.
  'vlek, AMD alone': ['chain-certificates'],
} as const satisfies Verdicts

const RECEIPT_VERDICTS = {
  good: 'good',
  native: 'good',
  javascript: 'good',
  nonce: ['statement-nonce'],
  late: ['statement-age'],
  mldsa65: ['signature-mldsa65'],
  mldsa65Native: ['signature-mldsa65'],
  ed25519: ['signature-ed25519'],
  cut: ['receipt-format'],
} as const satisfies Verdicts

const LIVE_VERDICTS = {
  evidence: 'good',
  receipt: 'good',
  forged: ['report-signature'],
  amdAlone: ['chain-certificates'],
} as const satisfies Verdicts

const attested = ['gateway', 'inference-router', 'inference-worker', 'metrics-collector', 'cluster-state-metrics']
const ofEach = (group: string) => attested.map(workload => `${workload}/${group}`)

/** An attestation document of five receipts. Every wrong expectation fails under its own name, and under no other. */
const GATEWAY_VERDICTS: Verdicts = {
  good: 'good',
  nonce: ['attestation-nonce'],
  tls: ['tls-binding'],
  configuration: ['gateway-configuration'],
  // One part's command differs, and with it the digest of the whole list.
  allowlist: ofEach('allowlist').toSpliced(3, 0, 'inference-worker/admission'),
  root: ofEach('evidence'),
  late: ofEach('nonce'),
  nothingExpected: 'good',
  nothingPinned: ['pin-measurement', 'pin-allowlist', 'pin-vmpl'],
  waived: 'good',
  changed: ['attestation-format'],
  twice: ['attestation-format'],
  cut: ['attestation-format'],
}

const RESPONSE_VERDICTS: Verdicts = {
  good: 'good',
  changed: ['response-size', 'response-answer'],
  untrusted: ofEach('evidence'),
  outside: ['response-upstream'],
  accepted: 'good',
}

/** An attestation document of an instance, as the gateway's above. */
const INSTANCE_VERDICTS: Verdicts = {
  good: 'good',
  nonce: ['attestation-nonce'],
  organization: ['instance', 'receipt/claim'],
  hostname: ['instance', 'known-hosts', 'receipt/claim', 'receipt/host-key'],
  ownKey: ['own-key'],
  root: ['receipt/evidence'],
  late: ['receipt/nonce'],
  nothingExpected: 'good',
  nothingPinned: ['pin-measurement', 'pin-operator-key', 'pin-gateway', 'pin-vmpl'],
  waived: 'good',
  image: ['image'],
  launch: ['launch-host-data', 'image'],
  authority: ['known-hosts', 'receipt/host-key'],
  gateway: ['pin-gateway'],
  prompts: ['receipt/claim-document'],
  changed: ['attestation-format'],
  twice: ['attestation-format'],
  cut: ['attestation-format'],
}

type Verdicts = Readonly<Record<string, 'good' | 'not enough' | readonly string[]>>

/** The parts of the results that are looked at. */
type Results = {
  readonly encryption: Record<
    string,
    { key: string; body: string; opened: { text: string; headers: object } } & Record<string, unknown>
  >
  readonly reports: {
    readonly verdicts: Record<string, Told>
    readonly decoded: Record<string, Decoded>
    readonly refused: Record<string, Refused>
    readonly roots: Record<string, { simulated: boolean; stranger: string[] }>
    readonly hcl: Record<string, string>
  }
  readonly launches: {
    readonly reference: readonly { digest: string }[]
    readonly bareMetal: { digest: string; milan: string; hostData: string }
    readonly large: { digest: string; own: string; igvm: string }
    readonly igvm: { directiveOrder: { digest: string }; rewritten: string; qemuKvm: Refused; broken: Refused }
    readonly built: { measured: string; predicted: string }
    readonly idBlock: Record<'good' | 'changed' | 'short', Told & { idKeyDigest: string; authorKeyDigest: string }>
    readonly verity: { root: { rootHash: string }; unsalted: { rootHash: string }; short: Refused }
  }
  readonly tpm: {
    readonly logs: Record<string, { sha1: Pcrs; sha256: Pcrs; good: string[]; bad: string[] }>
    readonly cutLog: Refused
    readonly notAQuote: Refused
    readonly plain: Record<string, Told>
    readonly paravisor: Record<'evidence' | 'good' | 'runtimeDataChanged' | 'pcrMissing', Told>
  }
  readonly simulated: {
    readonly evidence: Record<string, Record<string, Told>>
    readonly receipts: Record<string, { isSame: boolean; verdicts: Record<string, Told> }>
    readonly cbor: Record<string, Refused>
    readonly live: Record<string, Told>
  }
  readonly gateway: {
    readonly simulated: boolean
    readonly verdicts: Record<string, Told>
    readonly gateway: { readonly workload: string }
    readonly responses: Record<string, Told>
    readonly claim: Record<string, unknown>
    readonly refused: { readonly root: Refused }
  }
  readonly instance: {
    readonly verdicts: Record<string, Told>
    readonly simulated: boolean
    readonly knownHost: { readonly line: string }
    readonly xwingPublicKey: string
    readonly bad: unknown
    readonly refused: { readonly manifest: Refused }
  }
}

type Told = { readonly ok: boolean; readonly failed: readonly string[]; readonly checks: readonly string[] }
type Refused = { readonly refused: string }
type Pcrs = Readonly<Record<string, string>>
type Decoded = { readonly report: Record<string, unknown>; readonly reportedTcb: Tcb; readonly currentTcb: Tcb }
type Tcb = { bootloader: number; tee: number; snp: number; microcode: number; fmc: number | null }

/** Throws what `expect` throws. */
export async function expectResults(json: string): Promise<void> {
  const { reports, launches, tpm, simulated, gateway, instance, encryption }: Results = JSON.parse(json)
  await expectReports(reports)
  await expectLaunches(launches)
  await expectTpm(tpm)
  expectSimulated(simulated)
  expectGateway(gateway)
  expectInstance(instance)
  expectEncryption(encryption)
}

/** Both suites: what was sealed opens, and whatever was done to it is refused. */
function expectEncryption(encryption: Results['encryption']): void {
  expect(Object.keys(encryption).sort()).toEqual(['x25519', 'xwing'])
  for (const [suite, { key, opened, body, ...refused }] of Object.entries(encryption)) {
    expect(key.length).toBe(suite === 'x25519' ? 64 : 2240)
    expect(body.length).toBeGreaterThan(100)
    expect(opened).toEqual({ text: '{"text":"ja"}', headers: { 'x-strongroom-receipt': 'abc' } })
    expect(refused).toEqual({
      cut: { refused: 'response: it was cut short' },
      cutWithin: { refused: 'response: it was cut short' },
      changed: { refused: 'response: a frame does not open; it is not of this response, or was changed' },
      asStream: { refused: 'response: it was cut short' },
      plain: { refused: 'response: it is not sealed' },
      otherKey: { refused: 'x25519: a point of small order' },
    })
  }
}

function verdictsOf(told: Readonly<Record<string, Told>>): Verdicts {
  const named = Object.entries(told).map(([name, { ok, failed }]) => {
    if (ok) return [name, failed.length === 0 ? 'good' : ['good in spite of', ...failed]] as const
    return [name, failed.length === 0 ? 'not enough' : failed] as const
  })
  return Object.fromEntries(named)
}

async function expectReports({ verdicts, decoded, refused, roots, hcl }: Results['reports']): Promise<void> {
  expect(verdictsOf(verdicts)).toEqual(REPORT_VERDICTS)
  expect(Object.values(hcl)).toEqual(Array(4).fill(['pass', 'fail']).flat())
  for (const expected of await read<ExpectedReport[]>('reports/expected.json')) {
    const { report, reportedTcb, currentTcb } = decoded[expected.report] ?? {}
    expect(report).toMatchObject({
      version: expected.report_version,
      vmpl: expected.vmpl,
      signer: expected.signer.toLowerCase(),
      measurement: expected.measurement,
      reportData: expected.report_data,
      hostData: expected.host_data,
      policy: `${BigInt(expected.policy)}n`,
      platformInfo: `${BigInt(expected.platform_info)}n`,
    })
    expect(reportedTcb).toEqual(tcbOf(expected.reported_tcb))
    expect(currentTcb).toEqual(tcbOf(expected.current_tcb))
  }
  const { policyTwice, ...ofReports } = refused
  expect(policyTwice?.refused).toBe('policy has the field "debug" twice.')
  for (const { refused: reason } of Object.values(ofReports)) expect(reason).toMatch(/^SNP report: /)
  expect(Object.keys(roots)).toEqual(['genoa', 'milan', 'turin'])
  for (const { simulated, stranger } of Object.values(roots)) {
    expect(simulated).toBe(false)
    expect(stranger).toContain('chain-root')
  }
}

type ExpectedTcb = { fmc?: number; bl: number; tee: number; snp: number; ucode: number }
type ExpectedReport = {
  report: string
  report_version: number
  vmpl: number
  signer: string
  measurement: string
  report_data: string
  host_data: string
  policy: string
  platform_info: string
  reported_tcb: ExpectedTcb
  current_tcb: ExpectedTcb
}

function tcbOf({ fmc, bl, tee, snp, ucode }: ExpectedTcb): Tcb {
  return { bootloader: bl, tee, snp, microcode: ucode, fmc: fmc ?? null }
}

async function expectLaunches({
  reference,
  bareMetal,
  large,
  igvm,
  built,
  ...rest
}: Results['launches']): Promise<void> {
  const digests = await read<{ expected: string }[]>('launch-digest/expected-digests.json')
  expect(reference.map(item => item.digest)).toEqual(digests.map(digest => digest.expected))
  const inputs = await read<{ expected_launch_digest: string; host_data: string }>(
    'launch-digest/bare-metal-milan.inputs.json',
  )
  expect(bareMetal.digest).toBe(inputs.expected_launch_digest)
  expect(bareMetal.milan).not.toBe(inputs.expected_launch_digest)
  expect(bareMetal.hostData).toBe(inputs.host_data)
  expect(large.own).toBe(large.digest)
  expect(large.igvm).not.toBe(large.digest)
  const ld = await Bun.file(resolve(folder, 'igvm/bz-x64-vtl0-encrypted.ld')).text()
  expect(igvm.directiveOrder.digest).toBe(ld.trim())
  const file = await Bun.file(resolve(folder, 'igvm/bz-x64-vtl0-encrypted.igvm')).bytes()
  expect(igvm.rewritten).toBe(new Bun.CryptoHasher('sha256').update(file).digest('hex'))
  expect(igvm.qemuKvm.refused).toContain('where KVM keeps none')
  expect(igvm.broken.refused).toBe('IGVM: checksum')
  expect(built.measured).toBe(built.predicted)
  const { idBlock, verity } = rest
  const { good, changed, short } = idBlock
  expect(verdictsOf({ good, changed, short })).toEqual({
    good: 'good',
    changed: ['id-block-signature'],
    short: ['id-block-format'],
  })
  expect(good.idKeyDigest).toBe(vectorIdKeyDigest)
  expect(good.authorKeyDigest).toBe(vectorAuthorKeyDigest)
  // By `veritysetup format` over the same data.
  expect(verity.root.rootHash).toBe('409b1d7aec89fe1d04a08af1f7ab7a5a339043c0fd1348786abd6efa48f1f219')
  expect(verity.unsalted.rootHash).toBe('286227188fc9f71f7a4c2840a20aa40e8d8f71d76f849ea5eba306e4a5ff369b')
  expect(verity.short.refused).toContain('153599 of 153600 bytes')
}

/** From virtee/sev's tests, whose ID_AUTH it is. */
const vectorIdKeyDigest =
  '59fb2c686dfa4fef49f38339aa775c90051c28d57383ddc3baf3b5eb4b1496df3b0dbbdcbae5fe27677a644820773fe2'
const vectorAuthorKeyDigest =
  'eed81169fb0cb5e0ec34794f128fd4e0c4a46f67c65a1adfa81fcb24bcc088c272369b7ffc3eb2b6af6a4284a1b36c5f'

async function expectTpm({ logs, cutLog, notAQuote, plain, paravisor }: Results['tpm']): Promise<void> {
  type ExpectedLogs = Record<string, { expected_pcrs: { sha1: Pcrs; sha256: Pcrs } }>
  const expected = await read<ExpectedLogs>('tpm/expected-pcrs.json')
  expect(Object.keys(logs)).toEqual(['rhel8-uefi.bin', 'ubuntu-2404-amd-sevsnp.bin'])
  for (const [name, { sha1, sha256, good, bad }] of Object.entries(logs)) {
    expect({ sha1, sha256 }).toEqual(present(expected[name], `${name} is in expected-pcrs.json`).expected_pcrs)
    expect(good.join()).toMatch(/^pass tpm-event-log/)
    expect(bad.join()).toMatch(/^fail tpm-event-log/)
  }
  expect(cutLog.refused).toContain('truncated')
  expect(notAQuote.refused).toContain('magic')
  expect(verdictsOf(plain)).toEqual({
    good: ['vtpm-binding'],
    changed: ['vtpm-binding', 'tpm-quote-signature', 'tpm-quote-pcrs'],
    nonce: ['vtpm-binding', 'tpm-quote-nonce'],
  })
  const { evidence, good, runtimeDataChanged, pcrMissing } = paravisor
  expect(verdictsOf({ evidence, good, runtimeDataChanged, pcrMissing })).toEqual({
    evidence: 'good',
    good: 'good',
    runtimeDataChanged: ['vtpm-report-data'],
    pcrMissing: ['tpm-quote-pcrs'],
  })
}

function expectSimulated({ evidence, receipts, cbor, live }: Results['simulated']): void {
  expect(Object.keys(cbor)).toEqual(['half', 'long', 'pieces', 'tag', 'twice'])
  for (const { refused } of Object.values(cbor)) expect(refused).toMatch(/^cbor: /)
  expect(Object.keys(evidence)).toEqual(['genoa', 'milan', 'turin'])
  for (const verdicts of Object.values(evidence)) {
    expect(verdictsOf(verdicts)).toEqual(SIMULATED_VERDICTS)
    // For what they are, and not for another fault of the list.
    for (const name of ['vcek, revokesAsk', 'vlek, revokesAsvk']) {
      expect(verdicts[name]?.checks.join('\n')).toMatch(/^fail chain-revocation: serial number \w+ is revoked$/m)
    }
  }
  expect(Object.keys(receipts)).toEqual(['build', 'build-dispatch', 'claim', 'workload'])
  for (const { isSame, verdicts } of Object.values(receipts)) {
    expect(isSame).toBe(true)
    expect(verdictsOf(verdicts)).toEqual(RECEIPT_VERDICTS)
  }
  expect(verdictsOf(live)).toEqual(LIVE_VERDICTS)
}

function expectGateway({ simulated, verdicts, gateway, responses, claim, refused }: Results['gateway']): void {
  expect(verdictsOf(verdicts)).toEqual(GATEWAY_VERDICTS)
  expect([simulated, gateway.workload]).toEqual([true, 'gateway'])
  // Values without an expectation are not shown as passed.
  const open = verdicts.nothingExpected?.checks.filter(line => line.startsWith('not-checked ')).join('\n')
  for (const name of [
    'attestation-nonce',
    'tls-binding',
    'gateway-configuration',
    ...ofEach('allowlist'),
    ...ofEach('admission'),
  ]) {
    expect(open).toContain(`not-checked ${name} (not required)`)
  }
  expect(verdictsOf(responses)).toEqual(RESPONSE_VERDICTS)
  expect(claim).toMatchObject({ requestId: 'req_1', model: 'tiny', promptTokens: 3, completionTokens: 4 })
  expect(claim).toMatchObject({ upstream: 'built-in', coverage: 'inside' })
  // The verdict names values that were accepted on the caller's request.
  expect(responses.accepted?.checks.join('\n')).toContain('accepted upstream "other", OUTSIDE what the attestation')
  expect(refused.root.refused).toBe('simulated root: no CERTIFICATE in it')
}

function expectInstance({ verdicts, simulated, knownHost, xwingPublicKey, bad, refused }: Results['instance']): void {
  expect(verdictsOf(verdicts)).toEqual(INSTANCE_VERDICTS)
  expect([simulated, knownHost.line]).toEqual([true, `${sampleInstance.hostname} ${sampleHostKey}`])
  expect([xwingPublicKey.length, bad]).toEqual([2 * 1216, { knownHost: null, xwingPublicKey: null }])
  expect(refused.manifest.refused).toStartWith('manifest: /')
}

async function read<T>(path: string): Promise<T> {
  return await Bun.file(resolve(folder, path)).json()
}
