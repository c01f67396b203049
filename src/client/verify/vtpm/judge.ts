// One verdict on a vTPM: its SNP report or TDX quote, the binding of the key that signed the vTPM's quote, this quote,
// and its PCRs. Effects: reads files; with --fetch the network, files of --cache.

import { BUNDLE_LIMITS } from '../../../attest/encoding/pem.ts'
import type { Policy } from '../../../attest/policy/policy.ts'
import { hclSizeBytesMax } from '../../../attest/report/form.ts'
import type { SnpReport } from '../../../attest/report/report.ts'
import type { TpmKey } from '../../../attest/tpm/key.ts'
import { verifyParavisorVtpm } from '../../../attest/tpm/paravisor.ts'
import { QUOTE_CHECKS } from '../../../attest/tpm/quote.ts'
import { type VtpmQuote, type VtpmVerdict, verifyHostVtpm, verifySvsmVtpm } from '../../../attest/tpm/vtpm.ts'
import { type Check, type Verdict, verdict } from '../../../attest/verdict.ts'
import type { EvidenceVerdict } from '../../../attest/verify/evidence.ts'
import { equalConstantTime } from '../../../base/bytes.ts'
import type { Run } from '../../../terminal/command.ts'
import { readInput, readOptionalInput } from '../../../terminal/input-file.ts'
import { reportSum } from '../../../terminal/verdict-exit.ts'
import { verifySavedReport } from '../../../verifier/report.ts'
import { withAdvice } from '../../trust/advice.ts'
import { chipListChecks } from '../../trust/chip-list.ts'
import { readCrl, requireCrlOf } from '../../trust/crl-file.ts'
import { readPins, withFlags } from '../../trust/pin-options.ts'
import { readPolicy, readRoots, readTable } from '../../trust/trust-options.ts'
import {
  type QuoteFiles,
  readActivation,
  readArea,
  readBundle,
  readHclReport,
  readKey,
  readQuoteFiles,
} from './inputs.ts'
import { needed, type VtpmOptions } from './kinds.ts'
import { type Hardware, type Link, type LinkInputs, readRuntimeKey } from './link.ts'
import { logCheckName, type PcrQuestion, pcrChecks, pcrPin } from './pcr-checks.ts'
import { linkTdx } from './tdx-link.ts'

export type VtpmResult = Verdict & {
  readonly kind: VtpmVerdict['kind']
  readonly files: QuoteFiles
  /** The key that verified the quote; null if no key was readable. */
  readonly attestationKey: TpmKey | null
  readonly hardware: Hardware | null
  /** JSON that an Azure report covers; null for other kinds. */
  readonly runtimeData: Uint8Array | null
  /** Whether the event log replays to the PCRs that it must explain. */
  readonly isExplained: boolean
  readonly logged: PcrQuestion['logged']
}

export async function judgeVtpm(run: Run, options: VtpmOptions, asOf: number): Promise<VtpmResult> {
  const bundle = await readBundle(options)
  const files = await readQuoteFiles(options, bundle)
  const { pcrs, log } = files
  const logged = options.eventLogPcrs ?? 'all'
  const asked = { quote: files.bytes, signature: files.signature, nonce: options.nonce, pcrs }
  const found = await LINKS[options.kind](options, asked, { run, asOf, bundle })
  const { link, hardware, checks = [] } = found
  const expected = options.pcr ?? []
  const isQuoted = QUOTE_CHECKS.every(name => link.checks.some(made => made.name === name && made.outcome === 'pass'))
  const whole = verdict([
    ...(hardware?.checks ?? []),
    ...link.checks.map(made => pointingUp(made, hardware)),
    ...checks,
    pcrPin(expected, options.anyPcrs === true),
    ...pcrChecks({ expected, pcrs, isQuoted, log, logged }),
  ])
  return {
    ...whole,
    kind: link.kind,
    files,
    attestationKey: found.attestationKey,
    hardware,
    runtimeData: found.runtimeData ?? null,
    isExplained: whole.checks.some(({ name, outcome }) => name === logCheckName && outcome === 'pass'),
    logged,
  }
}

const LINKS: {
  readonly [Kind in VtpmOptions['kind']]: (options: VtpmOptions, asked: VtpmQuote, inputs: LinkInputs) => Promise<Link>
} = {
  'azure-hcl': async (options, asked, { asOf, bundle }) => {
    const { bytes, runtimeData } = await readHclReport('azure-hcl', options, bundle)
    const { evidence, measurement } = await reportOf(bytes, options, { asOf, vek: bundle?.vek ?? null })
    const { attestationKey, checks } = await readRuntimeKey(options, runtimeData, bundle)
    const link = await verifyParavisorVtpm({ ...asked, evidence, runtimeData, measurement })
    return { link, attestationKey, hardware: snpHardware(evidence), checks, runtimeData }
  },
  'azure-tdx': linkTdx,
  svsm: async (options, asked, { asOf }) => {
    const reportNonce = needed(options, 'reportNonce')
    const ek = await readArea('ek', needed(options, 'ek'))
    const ak = await readArea('ak', needed(options, 'ak'))
    const activation = await readActivation(options, ek)
    const report = readInput({ path: needed(options, 'report'), param: 'report', bytesMax: hclSizeBytesMax })
    const { evidence, measurement } = await reportOf(report, options, { asOf, vek: null })
    const link = await verifySvsmVtpm({
      ...asked,
      ...{ evidence, measurement, reportNonce, activation },
      manifest: ek.bytes,
      attestationKey: ak.bytes,
    })
    return { link, attestationKey: ak.area.key, hardware: snpHardware(evidence) }
  },
  host: async (options, asked) => {
    const attestationKey = await readKey('ak', needed(options, 'ak'))
    return { link: await verifyHostVtpm({ ...asked, ak: attestationKey }), attestationKey, hardware: null }
  },
}

function snpHardware(evidence: EvidenceVerdict): Hardware {
  const { product, report, simulated } = evidence
  // The caller gives no report data: vtpm-report-data compares them with what they must cover.
  const checks = withAdvice(withFlags(evidence.checks), {
    product,
    canFetch: false,
    measurement: report?.measurement ?? null,
  }).filter(({ name }) => name !== 'report-data-expected')
  return { name: 'SNP report', checks, simulated, snp: evidence, tdx: null, downloader: null }
}

/** The checks of the hardware's evidence, which stand above, say why it did not pass. */
function pointingUp(made: Check, hardware: Hardware | null): Check {
  const isSum = made.name === reportSum && made.outcome === 'fail' && hardware !== null
  return isSum ? { ...made, reason: `the ${hardware.name} did not pass, see the lines above` } : made
}

/** Returns the verdict on these bytes, and the measurement that they must have. `vek`: used without a --vek. */
async function reportOf(
  report: Uint8Array,
  options: VtpmOptions,
  { asOf, vek }: { readonly asOf: number; readonly vek: Uint8Array | null },
) {
  const crl = readCrl(options.crl)
  const pins = readPins(options)
  const policy = atVmpl0(await readPolicy(options.policy, pins, options))
  const evidence = await verifySavedReport({
    report,
    vek: options.vek === undefined && vek !== null ? vek : readVek(options),
    chain: readOptionalInput({ path: options.chain, param: 'chain', bytesMax: BUNDLE_LIMITS.bytesMax }),
    crl,
    roots: await readRoots(options.trustSimulatedRoot),
    policy,
    pins,
    maskedChipId: options.maskedChipId === true ? 'any' : 'refuse',
    certificateTable: readTable(options.certificateTable),
    asOf,
  })
  requireCrlOf(evidence, options.crl, crl)
  const checks = [...evidence.checks, ...chipListChecks(policy, asOf)]
  return { evidence: { ...evidence, checks }, measurement: measurementOf(policy, evidence.report) }
}

function readVek(options: VtpmOptions): Uint8Array {
  return readInput({ path: needed(options, 'vek'), param: 'vek', bytesMax: BUNDLE_LIMITS.bytesMax })
}

/** Restricts a policy that accepts VMPL 0 to VMPL 0, because above it the guest itself requests reports. */
function atVmpl0(policy: Policy): Policy {
  return policy.vmpls === 'any' || policy.vmpls.includes(0) ? { ...policy, vmpls: [0] } : policy
}

/**
 * Returns the policy's measurement that the report has. If it has none of them, returns the first, which then differs.
 */
function measurementOf({ measurements }: Policy, report: SnpReport | null): Uint8Array | 'any' {
  if (measurements === 'any') return 'any'
  const found = measurements.find(named => report !== null && equalConstantTime(named, report.measurement))
  return found ?? measurements[0] ?? new Uint8Array(0)
}
