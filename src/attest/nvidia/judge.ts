// One verdict on the GPUs of a machine: their reports, their certificates, a policy, and the results of files. Pure.
// Never throws for bad evidence. NVIDIA's own verifier is NVIDIA/nvtrust, local_gpu_verifier.
//
// verify.ts judges manifests and OCSP responses for relying parties, which have the files. A VM has none, so this
// module does not load the code that reads them.

import { equalConstantTime } from '../../base/bytes.ts'
import { GPU_POLICY_CHECKS } from '../check-names.ts'
import { parsed } from '../malformed.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../verdict.ts'
import { type Certificate, commonNameOf } from '../x509/certificate.ts'
import type { Devtools } from './bound.ts'
import { type Chain, checkChain, decodeChain, deviceFault } from './chain.ts'
import { type Comparison, nothingCompared } from './comparison.ts'
import { firmwareIdentityOf } from './dice.ts'
import type { GpuEvidence } from './evidence.ts'
import type { JudgedRim } from './manifests.ts'
import type { GpuFields } from './opaque.ts'
import { type Architecture, appraiseGpu, type GpuFacts, type GpuPolicy } from './policy.ts'
import type { Rim } from './rim.ts'
import { type DecodedRoots, decodeRoots, type NvidiaRoots } from './roots.ts'
import { isSignedByKeyOf, type VerifyP384 } from './signature.ts'
import { type DeviceReport, decodeGpuReport, type GpuReport } from './spdm.ts'

export type GpuEvidenceQuestion = {
  readonly evidence: readonly GpuEvidence[]
  /** Nonce of 32 bytes that every report must contain. */
  readonly nonce: Uint8Array
  readonly roots: readonly NvidiaRoots[]
  readonly policy: GpuPolicy
  readonly asOfMs: number
  /** DevTools mode reported by the measured guest's software, if its own evidence binds it. Null if it reports none. */
  readonly devtools: Devtools | null
  readonly verify: VerifyP384
}

export type ComparisonChecks = Omit<Comparison, 'checks'> & { readonly checks: readonly Check[] }

/** Results of manifests and OCSP responses. */
export type GpuFiles = {
  /** Failed checks of unreadable responses. */
  readonly checks: readonly Check[]
  readonly rims: readonly JudgedRim[]
  readonly hasOcsp: boolean
  /** Checks the revocation of a GPU's chain. */
  readonly checkRevocation: (name: string, chain: Chain | null) => Check
  /** Compares measurements with the manifests of the GPU's driver and VBIOS. */
  readonly compare: (report: GpuReport, facts: GpuFacts) => ComparisonChecks
}

/** Returns the results for no files: checks that need one stay open. */
export function noFiles(): GpuFiles {
  return {
    checks: [],
    rims: [],
    hasOcsp: false,
    checkRevocation: name => notChecked(name, 'no OCSP response was given', true),
    compare: (_report, { driverVersion, vbiosVersion }) => {
      const checks = [noManifest('driver', driverVersion), noManifest('vbios', vbiosVersion)]
      const nothing = nothingCompared('a manifest is missing')
      return { ...nothing, checks: [...checks, ...nothing.checks] }
    },
  }
}

export function noManifest(kind: Rim['kind'], version: string): Check {
  return notChecked(manifestCheckName(kind), `no good manifest of ${kind} ${version} was given`, true)
}

export function manifestCheckName(kind: Rim['kind']): string {
  return `gpu-${kind}-rim`
}

export type JudgedGpu = {
  /** Trust these only in a good verdict. Null if the report or the chain is unreadable. */
  readonly facts: GpuFacts | null
  readonly hwmodel: string | null
  /** Board name in NVIDIA's manifest of the VBIOS. */
  readonly board: string | null
  readonly uncompared: readonly number[]
}

export type GpuVerdict = Verdict & {
  /** True if any chain ends at a root that is not NVIDIA's. */
  readonly simulated: boolean
  readonly gpus: readonly JudgedGpu[]
  readonly rims: readonly (Pick<Rim, 'kind' | 'version' | 'product'> | null)[]
}

/** Judges GPUs. Throws Malformed if a root, which the relying party supplies, is unreadable. */
export function judgeGpus(question: GpuEvidenceQuestion, files: GpuFiles): GpuVerdict {
  const roots = decodeRoots(question.roots)
  const { rims } = files
  const judged = question.evidence.map(evidence => judgeGpu(evidence, { ...question, roots, files }))
  const all = [
    check('gpu-evidence', judged.length > 0, 'there is no GPU in it', judged.map(summaryOf).join('; ')),
    distinctCheck(judged.map(({ facts }) => facts)),
    ...files.checks,
    ...rims.flatMap((rim, at) => under(`rim-${at}`, rim.checks)),
    ...judged.flatMap((gpu, at) => under(`gpu-${at}`, gpu.checks)),
  ]
  return {
    ...verdict(all),
    simulated: [...rims, ...judged].some(({ simulated }) => simulated),
    gpus: judged.map(({ facts, hwmodel, board, uncompared }) => ({ facts, hwmodel, board, uncompared })),
    rims: rims.map(({ rim }) => (rim === null ? null : { kind: rim.kind, version: rim.version, product: rim.product })),
  }
}

/** Requires distinct GPUs. Otherwise one GPU, listed several times, could pass as several. */
function distinctCheck(facts: readonly (GpuFacts | null)[]): Check {
  const serials = facts.flatMap(known => (known === null ? [] : [known.deviceSerial]))
  return check('gpu-distinct', new Set(serials).size === serials.length, 'one GPU stands in it twice')
}

function summaryOf({ facts, hwmodel }: JudgedGpu): string {
  if (facts === null) return 'a GPU that cannot be judged'
  return `${hwmodel}, driver ${facts.driverVersion}, VBIOS ${facts.vbiosVersion}, ueid ${facts.ueid}`
}

export function under(group: string, checks: readonly Check[]): Check[] {
  return checks.map(made => ({ ...made, name: `${group}/${made.name}` }))
}

export const notGood = 'report or chain is not good'
/** Checks of a report with a good chain. */
const ofReport = ['gpu-report-signature', 'gpu-nonce', 'gpu-firmware'] as const

export type DeviceQuestion = Omit<GpuEvidenceQuestion, 'roots'> & {
  readonly roots: DecodedRoots
  readonly files: GpuFiles
}

type WithChecks = JudgedGpu & { readonly simulated: boolean; readonly checks: readonly Check[] }

/** Judges what GPUs and switches have in common; the chain is null unless it is good. */
export function judgeDevice<Fields extends Pick<GpuFields, 'fwid'>>(
  evidence: GpuEvidence,
  decode: (bytes: Uint8Array) => DeviceReport<Fields>,
  asked: DeviceQuestion,
) {
  const report = parsed(() => decode(evidence.report))
  const certificates = parsed(() => decodeChain(evidence.certificates, 'certificates'))
  const trust = { ...asked, roots: asked.roots.device, faultOf: deviceFault }
  const { checks: chainChecks, chain } = certificates.ok
    ? checkChain('gpu-chain', { ...trust, certificates: certificates.value })
    : { checks: [], chain: null }
  const checks = [
    check('gpu-report-format', report.ok, report.ok ? '' : report.reason),
    check('gpu-chain-format', certificates.ok, certificates.ok ? '' : certificates.reason),
    ...chainChecks,
    asked.files.checkRevocation('gpu-chain-ocsp', chain),
  ]
  if (!report.ok || chain === null)
    return { report, chain, checks: [...checks, ...ofReport.map(name => notChecked(name, notGood, true))] }
  const { signedBytes, signature, nonce, fields } = report.value
  const isSigned = isSignedByKeyOf(chain.path[0], signedBytes, signature, asked.verify)
  const isFresh = equalConstantTime(nonce, asked.nonce)
  checks.push(
    check('gpu-report-signature', isSigned, "not signed by the chain's leaf"),
    check('gpu-nonce', isFresh, 'the report was made for another nonce', 'the report was made for this nonce'),
    firmwareCheck('gpu-firmware', chain.path[0], fields.fwid),
  )
  return { report, chain, checks }
}

function judgeGpu(evidence: GpuEvidence, asked: DeviceQuestion): WithChecks {
  const { report, chain, checks: genuine } = judgeDevice(evidence, decodeGpuReport, asked)
  const facts = report.ok && chain !== null ? factsOf(report.value, chain) : null
  const compared = report.ok && facts !== null ? asked.files.compare(report.value, facts) : null
  const checks = [
    ...genuine,
    architectureCheck(evidence, facts),
    ...(compared?.checks ?? nothingCompared(notGood).checks),
    devtoolsCheck(asked.policy, asked.devtools),
    ...(facts === null
      ? GPU_POLICY_CHECKS.map(name => notChecked(name, notGood, true))
      : appraiseGpu(asked.policy, facts)),
  ]
  return {
    facts,
    hwmodel: chain === null ? null : commonNameOf(chain.path[1].subject),
    board: report.ok ? report.value.fields.board : null,
    uncompared: compared?.uncompared ?? [],
    simulated: chain?.simulated === true,
    checks,
  }
}

/** Compares the firmware that the leaf certifies with the report's. Early reports of Hopper contain none. */
function firmwareCheck(name: string, leaf: Certificate, fwid: Uint8Array | null): Check {
  const certified = parsed(() => firmwareIdentityOf(leaf))
  if (!certified.ok) return fail(name, certified.reason)
  if (certified.value === null) return fail(name, 'the certificate names no firmware')
  const { weak, fwid: expected } = certified.value
  if (weak.length > 0) return fail(name, `the certificate names ${weak.join(', ')}`)
  if (fwid === null) return notChecked(name, 'the report does not name its firmware', false)
  return check(name, equalConstantTime(fwid, expected), 'the certificate was made for other firmware')
}

/** Returns the architecture of a chip name, such as GH100 or GB202, in NVIDIA's certificates and manifests. */
export function architectureOf(name: string): Architecture | null {
  if (/^GH\d{2}[\dA-Z](?: |$)/.test(name)) return 'HOPPER'
  return /^GB\d{2}[\dA-Z](?: |$)/.test(name) ? 'BLACKWELL' : null
}

function factsOf({ fields }: GpuReport, { path }: Chain): GpuFacts | null {
  const [leaf, device] = path
  const architecture = architectureOf(commonNameOf(device.subject).replace(/^SIMULATED /, ''))
  if (architecture === null) return null
  return {
    architecture,
    driverVersion: fields.driverVersion,
    vbiosVersion: fields.vbiosVersion,
    mode: fields.mode,
    // Decimal, as in NVIDIA's tokens.
    ueid: BigInt(`0x${leaf.serial}`).toString(),
    deviceSerial: device.serial.toUpperCase(),
  }
}

function architectureCheck({ arch }: GpuEvidence, facts: GpuFacts | null): Check {
  const name = 'gpu-architecture'
  if (facts === null) return fail(name, 'the certificates are of no GPU that this release supports')
  return check(name, arch === facts.architecture, `the evidence names ${arch}, the certificates ${facts.architecture}`)
}

/**
 * Neither reports nor NVIDIA's overall result include DevTools mode, in which others can read a GPU's memory. Only its
 * driver reports it (NVML, devToolsMode), and only measured guest software is trustworthy about it.
 */
function devtoolsCheck({ devtools }: GpuPolicy, said: Devtools | null): Check {
  const name = 'gpu-devtools'
  if (said === 'off') return pass(name, 'off, by the driver in the measured guest')
  const reason =
    said === 'on'
      ? 'it is in DevTools mode, by the driver in the guest'
      : 'no field of a report shows that the GPU is not in DevTools mode'
  return devtools === 'any' ? notChecked(name, reason, false) : fail(name, reason)
}
