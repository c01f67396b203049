// JSON formats of other projects for SNP evidence. Pure; throws Malformed. Reads only the report and its certificates,
// and ignores names, digests and claims beside them.
//
// Tinfoil            {"format": "…/sev-snp-guest/v2", "body": base64 of gzip}, and its bundle with `vcek` beside it
// attestation-rs     {"attestation_report": base64, "cert_chain": {"vcek", "ask", "ark"}}
// CoCo, trustee      {"attestation_report": {…}, "cert_chain": [{"cert_type", "data"}]}, the fields of the crate `sev`
// envelopes          any of these, or base64, under `evidence`, `report` or `quote`

import { encodeTcb } from '../../attest/amd/tcb-encode.ts'
import { wellFormed } from '../../attest/malformed.ts'
import type { FieldName } from '../../attest/report/report.ts'
import { concat, fromBase64, fromBase64Url, utf8 } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import { parseJson } from '../../base/json.ts'
import { pastedHex } from '../../terminal/hex.ts'
import { bareReport, type ReportEvidence } from './evidence.ts'
import { type FieldValues, reportOf } from './report-fields.ts'

type Fields = Readonly<Record<string, unknown>>
type Inner = (content: Uint8Array) => ReportEvidence

const depthMax = 16

/** Reads a bundle. `inner` reads evidence that the bundle contains as text. */
export function bundleEvidence(bytes: Uint8Array, inner: Inner): ReportEvidence {
  const bundle = fieldsOf(jsonOf(bytes), 'evidence')
  const { attestation_report: report, enclaveAttestationReport: document } = bundle
  if (document !== undefined) return tinfoilBundle(fieldsOf(document, 'enclaveAttestationReport'), bundle, inner)
  if (typeof bundle.body === 'string') return tinfoilDocument(bundle, inner)
  if (typeof report === 'string') return attestationRs(report, bundle.cert_chain, inner)
  if (report !== undefined) return coco(fieldsOf(report, 'attestation_report'), bundle.cert_chain)
  const wrapped = ENVELOPES.map(name => bundle[name]).find(value => value !== undefined)
  wellFormed(wrapped !== undefined, 'evidence: JSON without an SNP report in a place that is known')
  return inner(typeof wrapped === 'string' ? utf8(wrapped) : utf8(JSON.stringify(wrapped)))
}

const ENVELOPES = ['evidence', 'report', 'quote'] as const

function jsonOf(bytes: Uint8Array): unknown {
  try {
    return parseJson(bytes, { depthMax, what: 'evidence' })
  } catch (error) {
    wellFormed(false, messageOf(error))
  }
}

/** How much of an unsupported format's name an error message repeats. */
const formatCharsMax = 80
const tinfoilFormat = /^https:\/\/tinfoil\.sh\/predicate\/sev-snp-guest\/v[12]$/

function tinfoilDocument({ format, body }: Fields, inner: Inner): ReportEvidence {
  const isKnown = typeof format === 'string' && tinfoilFormat.test(format)
  wellFormed(
    isKnown,
    `evidence: format ${JSON.stringify(String(format).slice(0, formatCharsMax))} is not that of an SNP guest`,
  )
  wellFormed(typeof body === 'string', 'evidence: no body')
  return { ...inner(utf8(body)), container: 'a Tinfoil attestation document' }
}

function tinfoilBundle(document: Fields, { vcek }: Fields, inner: Inner): ReportEvidence {
  const vek = typeof vcek === 'string' ? certificateOf(vcek, 'vcek') : null
  return { ...tinfoilDocument(document, inner), vek, container: 'a Tinfoil bundle' }
}

function attestationRs(report: string, chain: unknown, inner: Inner): ReportEvidence {
  const found = { ...inner(utf8(report)), container: 'evidence of attestation-rs' }
  if (chain === undefined || chain === null) return found
  const given = fieldsOf(chain, 'cert_chain')
  const named = (name: string) => {
    const text = given[name]
    return typeof text === 'string' ? [certificateOf(text, `cert_chain.${name}`)] : []
  }
  return { ...found, vek: named('vcek')[0] ?? null, chain: [...named('ask'), ...named('ark')] }
}

function coco(report: Fields, chain: unknown): ReportEvidence {
  const found = bareReport(reportOf(cocoFields(report), signatureOf(report.signature)), 'evidence of CoCo')
  if (chain === undefined || chain === null) return found
  wellFormed(Array.isArray(chain) && chain.length <= certificatesMax, 'evidence: cert_chain')
  const entries = chain.map(entry => fieldsOf(entry, 'cert_chain'))
  const of = (...types: string[]) =>
    entries.flatMap(({ cert_type, data }) =>
      typeof cert_type === 'string' && types.includes(cert_type) ? [parseBytes(data, 'cert_chain.data')] : [],
    )
  return { ...found, vek: of('VCEK', 'VLEK')[0] ?? null, chain: of('ASK', 'ARK'), crl: of('CRL')[0] ?? null }
}

const certificatesMax = 16

/** Fields of the crate's AttestationReport: numbers or lists of bytes; null if a version lacks them. */
const COCO_FIELDS = {
  version: 'version',
  guestSvn: 'guest_svn',
  policy: 'policy',
  familyId: 'family_id',
  imageId: 'image_id',
  vmpl: 'vmpl',
  signatureAlgo: 'sig_algo',
  platformInfo: 'plat_info',
  keyInfo: 'key_info',
  reportData: 'report_data',
  measurement: 'measurement',
  hostData: 'host_data',
  idKeyDigest: 'id_key_digest',
  authorKeyDigest: 'author_key_digest',
  reportId: 'report_id',
  reportIdMa: 'report_id_ma',
  cpuidFamily: 'cpuid_fam_id',
  cpuidModel: 'cpuid_mod_id',
  cpuidStepping: 'cpuid_step',
  chipId: 'chip_id',
  launchMitigation: 'launch_mit_vector',
  currentMitigation: 'current_mit_vector',
} as const satisfies Partial<Record<FieldName, string>>

const COCO_TCBS = {
  currentTcb: 'current_tcb',
  reportedTcb: 'reported_tcb',
  committedTcb: 'committed_tcb',
  launchTcb: 'launch_tcb',
} as const satisfies Partial<Record<FieldName, string>>

/**
 * Returns the report's fields. Ignores `_reserved` fields of older releases of the crate, which firmware sets to zero.
 */
function cocoFields(report: Fields): FieldValues {
  const values: FieldValues = {}
  for (const [field, name] of Object.entries(COCO_FIELDS)) values[field as FieldName] = fieldValue(report[name], name)
  for (const [field, name] of Object.entries(COCO_TCBS)) values[field as FieldName] = tcbOf(report[name], name)
  for (const name of ['current', 'committed'] as const) {
    const { build, minor, major } = fieldsOf(report[name], name)
    values[`${name}Build`] = fieldValue(build, `${name}.build`)
    values[`${name}Minor`] = fieldValue(minor, `${name}.minor`)
    values[`${name}Major`] = fieldValue(major, `${name}.major`)
  }
  return values
}

function tcbOf(value: unknown, name: string): bigint {
  const { fmc, bootloader, tee, snp, microcode } = fieldsOf(value, name)
  const number = (part: unknown, component: string) => Number(fieldValue(part, `${name}.${component}`) ?? 0n)
  const tcb = {
    fmc: fmc === null || fmc === undefined ? null : number(fmc, 'fmc'),
    bootloader: number(bootloader, 'bootloader'),
    tee: number(tee, 'tee'),
    snp: number(snp, 'snp'),
    microcode: number(microcode, 'microcode'),
  }
  return encodeTcb(tcb, tcb.fmc === null ? 'milan' : 'turin')
}

const signatureBytes = 512

function signatureOf(value: unknown): Uint8Array {
  const { r, s } = fieldsOf(value, 'signature')
  const parts = concat(parseBytes(r, 'signature.r'), parseBytes(s, 'signature.s'))
  wellFormed(parts.length === 144, `evidence: signature of ${parts.length} bytes`)
  return concat(parts, new Uint8Array(signatureBytes - parts.length))
}

function fieldValue(value: unknown, name: string): bigint | Uint8Array | undefined {
  if (value === undefined || value === null) return undefined
  if (typeof value !== 'number') return parseBytes(value, name)
  wellFormed(Number.isSafeInteger(value) && value >= 0, `evidence: ${name} is no whole number that JSON can hold`)
  return BigInt(value)
}

const listBytesMax = 65_536

function parseBytes(value: unknown, name: string): Uint8Array {
  const isBytes = Array.isArray(value) && value.length <= listBytesMax && value.every(isByte)
  wellFormed(isBytes, `evidence: ${name} is no list of bytes`)
  return Uint8Array.from(value as number[])
}

function isByte(value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 255
}

/** Decodes DER in base64 or hexadecimal, or PEM. */
function certificateOf(text: string, name: string): Uint8Array {
  if (text.startsWith('-----BEGIN')) return utf8(text)
  const bytes = pastedHex(text) ?? fromBase64(text) ?? fromBase64Url(text)
  wellFormed(bytes !== null && bytes.length > 0, `evidence: ${name} is neither base64 nor PEM`)
  return bytes
}

function fieldsOf(value: unknown, name: string): Fields {
  wellFormed(typeof value === 'object' && value !== null && !Array.isArray(value), `evidence: ${name} is no object`)
  return value as Fields
}
