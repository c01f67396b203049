// Real reports and AMD's chains: every field, and every verdict, good and bad. Pure.

import {
  AMD_ROOTS,
  decodeReport,
  decodeTcb,
  type Evidence,
  findReport,
  hclClaimsCheck,
  identifyReport,
  keyInfoNames,
  type Product,
  parsePolicy,
  platformNames,
  policyNames,
  prepareChain,
  strictPolicy,
  type TrustedRoot,
  verifyEvidence,
} from '../../../src/attest/index.ts'
import { hclReportAs } from '../launch/hcl-samples.ts'
import type { Vectors } from './input.ts'
import { orRefused, type Told, told } from './outcome.ts'

type Entry = {
  readonly report: string
  readonly vek: string
  readonly product: Product
  readonly report_version: number
}

/** Every VCEK of the vectors is valid, the VLEK is not any more. */
const asOf = new Date('2026-11-20T00:00:00Z')
/** The VLEK is valid, some VCEKs are not yet. */
const asOfEarly = new Date('2025-06-01T00:00:00Z')

export async function reportSuite(vectors: Vectors): Promise<unknown> {
  const entries = vectors.json<Entry[]>('reports/expected.json')
  const decoded = entries.map(entry => [entry.report, decodedOf(vectors, entry)])
  return {
    decoded: Object.fromEntries(decoded),
    verdicts: await verdictsOf(vectors, entries),
    hcl: await hclClaims(vectors),
    refused: await refusals(vectors),
    roots: await rootVerdicts(vectors),
  }
}

function decodedOf(vectors: Vectors, { report: file, product }: Entry): unknown {
  const report = decodeReport(vectors.bytes(`reports/${file}`))
  const { reported, current, committed, launch } = report.rawTcb
  const identity = identifyReport(report, product)
  return {
    report,
    product: identity.kind === 'known' ? identity.product : identity.reason,
    policy: policyNames(report.policy),
    platform: platformNames(report.platformInfo),
    key: keyInfoNames(report.keyInfo),
    reportedTcb: decodeTcb(reported, product),
    currentTcb: decodeTcb(current, product),
    committedTcb: decodeTcb(committed, product),
    launchTcb: decodeTcb(launch, product),
  }
}

async function verdictsOf(vectors: Vectors, entries: readonly Entry[]): Promise<Record<string, Told>> {
  const good = new Map(entries.map(entry => [entry.report, evidenceOf(vectors, entry)]))
  const milan = present(good.get('milan-v3.bin'))
  const milanV2 = present(good.get('milan-v2.bin'))
  const vlek = present(good.get('milan-v3-vlek.bin'))
  const turin = present(good.get('turin-v5.bin'))
  const wrongChip = findReport(vectors.bytes('reports/wrong-chip.hcl.bin')).report
  const bareMetal = {
    ...milan,
    report: vectors.bytes('launch-digest/bare-metal-milan.report.bin'),
    vek: vectors.text('launch-digest/bare-metal-milan.vcek.pem'),
  }
  const cases: Record<string, Evidence> = {
    ...Object.fromEntries(good),
    'milan-v3-vlek.bin': { ...vlek, asOf: asOfEarly },
    'milan-v3-vlek.bin, late': vlek,
    'milan-v3-vlek.bin, VMPL 0 wanted': { ...vlek, asOf: asOfEarly, policy: strictPolicy() },
    'turin-v5.bin, early': { ...turin, asOf: asOfEarly },
    'milan-v2.bin, product unnamed': { ...milanV2, product: undefined },
    'milan-v2.bin, Genoa named': { ...milanV2, product: 'genoa' },
    'milan-v2.bin, bad-vcek-legacy.der': { ...milanV2, vek: vectors.bytes('reports/bad-vcek-legacy.der') },
    'milan-v2.bin, bad-vcek-new.der': { ...milanV2, vek: vectors.bytes('reports/bad-vcek-new.der') },
    'milan-v3.bin, another chain': { ...milan, vek: vectors.text('reports/genoa-v3.chain.pem') },
    'milan-v3.bin, measurement changed': { ...milan, report: changed(milan.report, 0x090) },
    'milan-v3.bin, signature changed': { ...milan, report: changed(milan.report, 0x2a0) },
    'milan-v3.bin, cut': { ...milan, report: milan.report.subarray(0, 1183) },
    'milan-v3.bin, CRL wanted': { ...milan, requireCrl: true },
    'milan-v3.bin, no policy': { ...milan, policy: undefined },
    'wrong-chip.hcl.bin': { ...milanV2, report: wrongChip, vek: vectors.text('reports/wrong-chip.certs.pem') },
    'bare-metal-milan.report.bin': bareMetal,
  }
  const verdicts: Record<string, Told> = {}
  for (const [name, evidence] of Object.entries(cases)) verdicts[name] = told(await verifyEvidence(evidence))
  // A chain that is kept gives the same verdict.
  const prepared = await prepareChain({ vek: vectors.text('reports/milan-v3.chain.pem') })
  verdicts['milan-v3.bin, kept chain'] = told(await verifyEvidence({ ...milan, prepared }))
  return verdicts
}

type Milan = Extract<Evidence, { readonly vek: unknown }>

/** VMPL is not asked for: the VLEK's report is of VMPL 1. */
function evidenceOf(vectors: Vectors, { report, vek, product, report_version: version }: Entry): Milan {
  const isPem = vek.endsWith('.pem')
  return {
    report: vectors.bytes(`reports/${report}`),
    vek: isPem ? vectors.text(`reports/${vek}`) : vectors.bytes(`reports/${vek}`),
    product: version === 2 ? product : undefined,
    asOf,
    requireCrl: false,
    policy: { ...strictPolicy(), vmpls: 'any' },
  }
}

/** Claims of an Azure HCL report in every version of its wrapper, as they are and with one bit of them flipped. */
async function hclClaims(vectors: Vectors): Promise<Record<string, string>> {
  const real = vectors.bytes('reports/wrong-chip.hcl.bin')
  const versions = [1, 2].flatMap(header => [1, 2].map(data => ({ header, data })))
  const answers = versions.flatMap(version => {
    const bytes = hclReportAs(real, version)
    const name = `header ${version.header}, data ${version.data}`
    const flipped = bytes.with(bytes.length - 100, (bytes[bytes.length - 100] ?? 0) ^ 1)
    return [
      [name, outcomeOf(bytes)],
      [`${name}, flipped`, outcomeOf(flipped)],
    ]
  })
  return Object.fromEntries(answers)
}

function outcomeOf(bytes: Uint8Array): string {
  const found = findReport(bytes)
  if (found.form === 'plain') return found.form
  return hclClaimsCheck(found, decodeReport(found.report).reportData).outcome
}

async function refusals(vectors: Vectors): Promise<unknown> {
  const report = vectors.bytes('reports/milan-v3.bin')
  return {
    empty: await orRefused(() => decodeReport(new Uint8Array(0))),
    long: await orRefused(() => decodeReport(new Uint8Array(1185))),
    version: await orRefused(() => decodeReport(changed(report, 0x000))),
    form: await orRefused(() => findReport(vectors.bytes('tpm/tpm_quote_sample.bin'))),
    policyTwice: await orRefused(() => parsePolicy(twiceDebug)),
  }
}

/** A strict reader does not get as far as the missing fields. */
const twiceDebug = '{"guestPolicy":{"debug":"forbidden","debug":"any"}}'

/**
 * The files of AMD's roots are those that are built in: a VEK's chain with the file's certificates in it ends at a
 * trusted root.
 */
async function rootVerdicts(vectors: Vectors): Promise<unknown> {
  const veks = { milan: 'milan-v2.vcek.der', genoa: 'genoa-v3.chain.pem', turin: 'turin-v5.chain.pem' } as const
  const names = Object.keys(veks) as Product[]
  const answers = names.map(async product => {
    const chain = vectors.text(`roots/${product}-ask-ark-asvk.pem`)
    const vek = vectors.bytes(`reports/${veks[product]}`)
    const others: readonly TrustedRoot[] = AMD_ROOTS.filter(root => root.product !== product)
    const { checks, found } = await prepareChain({ vek, chain })
    const stranger = await prepareChain({ vek, chain, roots: others })
    return [
      product,
      {
        checks: told({ ok: true, checks }).checks,
        simulated: found?.root?.simulated ?? null,
        stranger: told({ ok: false, checks: stranger.checks }).failed,
      },
    ]
  })
  return Object.fromEntries(await Promise.all(answers))
}

function changed(bytes: Uint8Array, offset: number): Uint8Array {
  const copy = Uint8Array.from(bytes)
  copy[offset] = (copy[offset] ?? 0) ^ 0x40
  return copy
}

function present<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('a vector of reports/expected.json is missing')
  return value
}
