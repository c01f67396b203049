// The attestation library: verification of reports and receipts, launch digests, hash trees, and what a browser has to
// load. Each figure stands beside what the platform itself needs for the same work, measured in turns with it in the
// same run.

import { mkdtempSync, rmSync, statfsSync, statSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import {
  decodeReceipt,
  decodeReport,
  decodeStatement,
  type EvidenceSource,
  launchDigest,
  prepareChain,
  readIgvm,
  readVeritySuperblock,
  strictPolicy,
  verifyEvidence,
  verifyReceipt,
  verityRootOf,
} from '../../src/attest/index.ts'
import { portableVerifiers } from '../../src/attest/receipt/verifiers.ts'
import {
  createSimulatedAuthority,
  issueSimulatedCrl,
  issueSimulatedVcek,
  type SimulatedRoot,
} from '../../src/attest/simulator/certificates.ts'
import { SIMULATED_AUTHORITY_ALGORITHM } from '../../src/attest/simulator/keys.ts'
import { simulateReport } from '../../src/attest/simulator/report.ts'
import { veritySuperblockBytes } from '../../src/attest/verity/superblock.ts'
import { decodeCertificate } from '../../src/attest/x509/certificate.ts'
import { assert, present } from '../../src/base/assert.ts'
import { toHex } from '../../src/base/bytes.ts'
import { nativeSha256, nativeSha384 } from '../../src/client/measure/native.ts'
import { browserBundle, gzipBytes, verifierEntry } from '../build-verifier.ts'
import {
  allowlistDigest,
  measurement,
  operatorKey,
  questionOf,
  sampleReceipt,
} from '../rigs/gateway/receipt-samples.ts'
import {
  authorityValidity,
  chipIdOf,
  makeVekKey,
  SIMULATED_TCBS,
  vekValidity,
} from '../rigs/launch/simulated-platform.ts'
import { measureColdStarts } from './attest/cold.ts'
import { measurePackageRequests } from './attest/package-requests.ts'
import type { Figures } from './bench-report.ts'
import type { BenchContext } from './main.ts'

const vectors = resolve(import.meta.dir, '../../test/vectors')
const asOf = new Date('2026-11-20T12:00:00Z')

const rounds = 200
const launchRounds = 30
const firmwareBytes = 4 * 1024 * 1024
const verityBytes = 1024 ** 3
const verityRounds = 3
/** The data, veritysetup's tree, and room for everybody else. */
const freeBytesMin = 3 * verityBytes
const veritysetupTimeoutMs = 120_000

/** Figures of one run, all of this process; the aims are the project's. */
export async function run({ note, signal }: BenchContext): Promise<Figures> {
  const reports = await measureReports()
  note('reports measured')
  const receipts = await measureReceipts()
  note('receipts measured')
  const launches = await measureLaunches()
  note('launch digests measured')
  signal.throwIfAborted()
  const starts = await measureColdStarts()
  note('starts of the command line measured')
  const requests = await measurePackageRequests()
  note('requests of the package measured')
  signal.throwIfAborted()
  const verity = await measureVerity({ note, signal })
  const { text } = await browserBundle(verifierEntry)
  return {
    ...reports,
    ...receipts,
    ...launches,
    ...starts,
    ...requests,
    ...verity,
    bundleKiB: { value: round(gzipBytes(text) / 1024), unit: 'KiB', aim: { atMost: 120_000 / 1024 } },
    bundleMinifiedKiB: { value: round(text.length / 1024), unit: 'KiB', aim: null },
  }
}

/** A real report of Turin with AMD's chain. Warm: the chain was verified before. Cold: chain and signatures anew. */
async function measureReports(): Promise<Figures> {
  const report = await vector('reports/turin-v5.bin')
  const vek = await Bun.file(join(vectors, 'reports/turin-v5.chain.pem')).text()
  const question = { report, asOf, requireCrl: false, policy: strictPolicy() }
  const prepared = await prepareChain({ vek })
  const certificate = present(prepared.found, 'the vector has a chain').vek
  const bare = await bareVerify(report, certificate.publicKey.spki)
  const der = certificate.der
  const [warm, cold, base, decode, decodeCert] = await inTurns(rounds, [
    async () => good(await verifyEvidence({ ...question, prepared })),
    async () => good(await verifyEvidence({ ...question, vek })),
    bare,
    async () => many(100, () => decodeReport(report)),
    async () => many(100, () => decodeCertificate(der)),
  ])
  return {
    reportVerifyMs: { value: median(warm), unit: 'ms', aim: { atMost: 2 }, baseline: 'p384VerifyMs' },
    reportVerifyMsP99: { value: percentile(warm, 99), unit: 'ms', aim: null },
    reportVerifyColdMs: { value: median(cold), unit: 'ms', aim: null, baseline: 'p384VerifyMs' },
    p384VerifyMs: { value: median(base), unit: 'ms', aim: null },
    reportDecodesPerSecond: { value: perSecond(decode, 100), unit: '/s', aim: null },
    certificateDecodesPerSecond: { value: perSecond(decodeCert, 100), unit: '/s', aim: null },
  }
}

/** WebCrypto's cost of the signature alone: key import, ECDSA P-384 with SHA-384 over the report's signed bytes. */
async function bareVerify(report: Uint8Array, spki: Uint8Array): Promise<() => Promise<void>> {
  const { r, s } = decodeReport(report).signature
  const signature = Uint8Array.from([...r.slice(0, 48).reverse(), ...s.slice(0, 48).reverse()])
  const signed = report.slice(0, 0x2a0)
  const curve = { name: 'ECDSA', namedCurve: 'P-384' }
  const key = await crypto.subtle.importKey('spki', Uint8Array.from(spki), curve, false, ['verify'])
  const algorithm = { name: 'ECDSA', hash: 'SHA-384' }
  return async () =>
    assert(await crypto.subtle.verify(algorithm, key, signature, signed), 'the bare signature verifies')
}

/** A simulated receipt of a workload, as text, with RSA keys as long as AMD's; never seen before. */
async function measureReceipts(): Promise<Figures> {
  const { root, evidenceSource } = await simulatedEvidence()
  const text = JSON.stringify(await sampleReceipt('workload', { evidenceSource }))
  const question = { ...(await questionOf('workload')), roots: [root] }
  const { keys, signatures, statement } = decodeReceipt(text)
  const context = new TextEncoder().encode('strongroom/attest-pq/v1')
  const mldsa = async () =>
    assert(
      await portableVerifiers.mldsa65(signatures.mldsa65, statement, keys.mldsa65, context),
      'the bare ML-DSA signature verifies',
    )
  const [whole, javascript, base, decode, decodeBody] = await inTurns(rounds, [
    async () => good(await verifyReceipt(text, question)),
    async () => good(await verifyReceipt(text, { ...question, verifiers: portableVerifiers })),
    mldsa,
    async () => many(10, () => decodeReceipt(text)),
    async () => many(10, () => decodeStatement(statement)),
  ])
  return {
    receiptVerifyMs: { value: median(whole), unit: 'ms', aim: { atMost: 6 }, baseline: 'mldsa65VerifyMs' },
    receiptVerifyMsP99: { value: percentile(whole, 99), unit: 'ms', aim: null },
    receiptVerifyJavaScriptMs: { value: median(javascript), unit: 'ms', aim: null, baseline: 'mldsa65VerifyMs' },
    mldsa65VerifyMs: { value: median(base), unit: 'ms', aim: null },
    receiptDecodesPerSecond: { value: perSecond(decode, 10), unit: '/s', aim: null },
    statementDecodesPerSecond: { value: perSecond(decodeBody, 10), unit: '/s', aim: null },
    receiptKiB: { value: round(text.length / 1024), unit: 'KiB', aim: null },
  }
}

/** AMD's authorities have keys of 4096 bits; the platform of the tests has shorter ones. */
async function simulatedEvidence(): Promise<{ root: SimulatedRoot; evidenceSource: EvidenceSource }> {
  const authorityKey = () => crypto.subtle.generateKey(SIMULATED_AUTHORITY_ALGORITHM, true, ['sign', 'verify'])
  const [ark, ask, vek] = await Promise.all([authorityKey(), authorityKey(), makeVekKey()])
  // No VLEK is issued, so its authority needs no key of its own.
  const authority = await createSimulatedAuthority(
    'genoa',
    { ark, ask, asvk: ask, vcek: vek, vlek: vek },
    authorityValidity,
  )
  const shared = { tcb: SIMULATED_TCBS.genoa, chipId: chipIdOf('genoa') }
  const vcek = await issueSimulatedVcek(authority, { ...shared, validity: vekValidity })
  const month = { thisUpdate: new Date('2026-11-01T00:00:00Z'), nextUpdate: new Date('2026-12-01T00:00:00Z') }
  const crl = await issueSimulatedCrl(authority, { ...month, revoked: [] })
  const evidenceSource: EvidenceSource = async reportData => {
    const wanted = { ...shared, product: 'genoa', version: 3, signer: 'vcek', reportData, measurement } as const
    const rest = { hostData: allowlistDigest, report: { idKeyDigest: operatorKey } }
    const report = await simulateReport({ ...wanted, ...rest }, vek.privateKey)
    return { report, vek: vcek, chain: [authority.root.ask, authority.root.ark], crl }
  }
  return { root: authority.root, evidenceSource }
}

/** Firmware of 4 MiB with one kernel and two processors. The baseline hashes each page once, natively, and no more. */
async function measureLaunches(): Promise<Figures> {
  const firmware = noise(firmwareBytes)
  firmware.set(await vector('ovmf/ovmf_AmdSev_suffix.bin'), firmwareBytes - 4096)
  const input = {
    firmware,
    kernel: noise(1024),
    vcpus: 2,
    vcpuType: 'EPYC-Milan',
    features: 1n,
    profile: 'qemu-kvm',
  } as const
  const igvm = await vector('igvm/bz-x64-vtl0-encrypted.igvm')
  const [portable, native, base, parse] = await inTurns(launchRounds, [
    async () => void (await launchDigest(input)),
    async () => void (await launchDigest({ ...input, sha384: nativeSha384 })),
    async () => {
      for (let at = 0; at < firmwareBytes; at += 4096) nativeSha384(firmware.subarray(at, at + 4096))
    },
    async () => many(10, () => readIgvm(igvm)),
  ])
  return {
    launchDigest4MiBMs: { value: median(portable), unit: 'ms', aim: { atMost: 25 }, baseline: 'sha384Pages4MiBMs' },
    launchDigest4MiBNativeMs: { value: median(native), unit: 'ms', aim: null, baseline: 'sha384Pages4MiBMs' },
    sha384Pages4MiBMs: { value: median(base), unit: 'ms', aim: null },
    igvmReadsPerSecond: { value: perSecond(parse, 10), unit: '/s', aim: null },
  }
}

/** Both read the same file, from the page cache after the first time; only veritysetup writes its tree. */
async function measureVerity({ note, signal }: Pick<BenchContext, 'note' | 'signal'>): Promise<Figures> {
  const folder = mkdtempSync(join(tmpdir(), 'srt-bench-'))
  try {
    const { bavail, bsize } = statfsSync(folder)
    assert(bavail * bsize >= freeBytesMin, `${folder} has less than ${freeBytesMin} bytes free`)
    const data = join(folder, 'data')
    const hashes = join(folder, 'hashes')
    await writeNoise(data, verityBytes)
    const ours: Cost[] = []
    const theirs: Cost[] = []
    for (let i = 0; i <= verityRounds; i += 1) {
      signal.throwIfAborted()
      const reference = await veritysetup(data, hashes)
      const own = await ownRoot(data, hashes)
      assert(own.root === reference.root, 'the root is the one that veritysetup finds')
      // The first turn fills the page cache.
      if (i > 0) ours.push(own)
      if (i > 0) theirs.push(reference)
      note(`hash tree of 1 GiB: ${Math.round(own.ms)} ms, veritysetup ${Math.round(reference.ms)} ms`)
    }
    // The least disturbed turn of each: what else the machine does slows the two down by different amounts.
    const [own, reference] = [lowestCost(ours), lowestCost(theirs)]
    return {
      verityRatio: { value: round(own.ms / reference.ms), unit: '', aim: { atMost: 1.5 } },
      verity1GiBMs: { value: own.ms, unit: 'ms', aim: null, baseline: 'veritysetup1GiBMs' },
      veritysetup1GiBMs: { value: reference.ms, unit: 'ms', aim: null },
      verity1GiBCpuMs: { value: own.cpuMs, unit: 'ms', aim: null, baseline: 'veritysetup1GiBCpuMs' },
      veritysetup1GiBCpuMs: { value: reference.cpuMs, unit: 'ms', aim: null },
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

type Cost = { readonly ms: number; readonly cpuMs: number }

function lowestCost(costs: readonly Cost[]): Cost {
  const of = (name: keyof Cost) => round(Math.min(...costs.map(cost => cost[name])))
  return { ms: of('ms'), cpuMs: of('cpuMs') }
}

async function veritysetup(data: string, hashes: string): Promise<Cost & { root: string }> {
  rmSync(hashes, { force: true })
  const startedMs = performance.now()
  const child = Bun.spawn(['veritysetup', 'format', `--salt=${'5a'.repeat(32)}`, data, hashes], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'inherit',
    timeout: veritysetupTimeoutMs,
  })
  const [output, exitCode] = await Promise.all([child.stdout.text(), child.exited])
  const ms = performance.now() - startedMs
  assert(exitCode === 0, `veritysetup ends with 0, not ${exitCode}`)
  const root = present(/^Root hash:\s+([0-9a-f]{64})$/m.exec(output)?.[1], 'veritysetup names a root hash')
  return { root, ms, cpuMs: Number(child.resourceUsage()?.cpuTime.total ?? Number.NaN) / 1000 }
}

/** As the command line does it: our tree over native hashes, with the parameters of veritysetup's superblock. */
async function ownRoot(data: string, hashes: string): Promise<Cost & { root: string }> {
  const parameters = readVeritySuperblock(await Bun.file(hashes).slice(0, veritySuperblockBytes).bytes())
  await using file = await open(data)
  const source = { read: (offset: number, length: number) => readAt(file, offset, length) }
  const before = process.cpuUsage()
  const { value, ms } = await timed(() => verityRootOf(source, parameters, { hash: nativeSha256 }))
  const { user, system } = process.cpuUsage(before)
  return { root: toHex(value.rootHash), ms, cpuMs: (user + system) / 1000 }
}

async function readAt(file: FileHandle, offset: number, length: number): Promise<Uint8Array> {
  const buffer = new Uint8Array(length)
  const { bytesRead } = await file.read(buffer, 0, length, offset)
  return buffer.subarray(0, bytesRead)
}

async function writeNoise(path: string, sizeBytes: number): Promise<void> {
  const piece = noise(4 * 1024 * 1024)
  const writer = Bun.file(path).writer()
  for (let at = 0; at < sizeBytes; at += piece.length) {
    piece[0] = at / piece.length
    writer.write(Uint8Array.from(piece))
    await writer.flush()
  }
  await writer.end()
  assert(statSync(path).size === sizeBytes, 'the file is as large as it should be')
}

/** Repeatable bytes that do not compress. */
function noise(sizeBytes: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(sizeBytes)
  let state = 1
  for (let at = 0; at < sizeBytes; at += 1) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    bytes[at] = state >>> 16
  }
  return bytes
}

type Task = () => Promise<void>

/** Milliseconds of each task, in as many turns; a fifth as many before that warm the compiler up. */
async function inTurns<const Tasks extends readonly Task[]>(
  turns: number,
  tasks: Tasks,
): Promise<{ [Index in keyof Tasks]: number[] }> {
  const times = tasks.map((): number[] => [])
  for (let turn = -Math.ceil(turns / 5); turn < turns; turn += 1) {
    for (const [index, task] of tasks.entries()) {
      const { ms } = await timed(task)
      if (turn >= 0) times[index]?.push(ms)
    }
  }
  return times as { [Index in keyof Tasks]: number[] }
}

async function timed<T>(task: () => Promise<T>): Promise<{ value: T; ms: number }> {
  const startedMs = performance.now()
  const value = await task()
  return { value, ms: performance.now() - startedMs }
}

function many(count: number, task: () => unknown): void {
  for (let i = 0; i < count; i += 1) task()
}

/** A benchmark of refusals would be a fast one. */
function good({ ok }: { readonly ok: boolean }): void {
  assert(ok, 'the verdict is good')
}

async function vector(path: string): Promise<Uint8Array> {
  return await Bun.file(join(vectors, path)).bytes()
}

function median(values: readonly number[]): number {
  return percentile(values, 50)
}

function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return round(sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)] ?? Number.NaN)
}

function perSecond(timesMs: readonly number[], count: number): number {
  return Math.round((count * 1000) / median(timesMs))
}

function round(value: number): number {
  return Math.round(value * 1000) / 1000
}
