// Files of a vTPM's evidence, in the formats of tpm2-tools and others. Effects: reads files. Throws InputFault.

import { Malformed, wellFormed } from '../../../attest/malformed.ts'
import { HCL_FIELDS, HCL_REPORT_TYPES, hclSizeBytesMax } from '../../../attest/report/form.ts'
import { reportSizeBytes } from '../../../attest/report/report.ts'
import { decodeQuote as decodeTdxQuote } from '../../../attest/tdx/quote.ts'
import { isTdReportStart } from '../../../attest/tdx/td-report.ts'
import { decodeEventLog } from '../../../attest/tpm/event-log.ts'
import { decodeHclReport } from '../../../attest/tpm/hcl-report.ts'
import { encodeSpki, type TpmKey } from '../../../attest/tpm/key.ts'
import { decodePemKey, decodeSpki } from '../../../attest/tpm/key-decode.ts'
import { decodePublicArea, type TpmPublic } from '../../../attest/tpm/public-area.ts'
import type { PcrValues } from '../../../attest/tpm/quote.ts'
import { decodeQuote, decodeSignature, type Quote, type TpmSignature } from '../../../attest/tpm/structures.ts'
import type { Activation } from '../../../attest/tpm/vtpm.ts'
import { equalConstantTime, fromUtf8 } from '../../../base/bytes.ts'
import { InputFault } from '../../../terminal/exit.ts'
import { KIB, MIB, readInput, readingInput } from '../../../terminal/input-file.ts'
import { required } from '../../../terminal/options.ts'
import { isHclStart } from '../../evidence/forms.ts'
import { type QuoteFile, readQuoteFile } from '../../tdx/quote-file.ts'
import { BUNDLE_KINDS, type BundleKind, bundleBytesMax, readVtpmBundle, type VtpmBundle } from './bundle.ts'
import { CREDENTIAL, type KindOptions, needed, type VtpmOptions } from './kinds.ts'
import type { EventLogFile } from './pcr-checks.ts'
import { readPcrValues } from './pcr-values.codec.ts'

const structureBytesMax = 4 * KIB
const pcrsBytesMax = 64 * KIB
const eventLogBytesMax = 4 * MIB

export type QuoteFiles = {
  /** TPMS_ATTEST. */
  readonly bytes: Uint8Array
  readonly quote: Quote
  readonly signature: TpmSignature
  readonly pcrs: PcrValues
  readonly log: EventLogFile | null
}

/** Returns the bundle of --evidence; null without this option. */
export async function readBundle({ evidence, kind }: VtpmOptions): Promise<VtpmBundle | null> {
  if (evidence === undefined || kind === 'svsm' || kind === 'host') return null
  return await readAs('evidence', evidence, bytes => readVtpmBundle(bytes, kind), bundleBytesMax)
}

export async function readQuoteFiles(options: VtpmOptions, bundle: VtpmBundle | null): Promise<QuoteFiles> {
  /** Decodes a part of the bundle, or else the option's own file. */
  const partOf = async <T>(name: 'quote' | 'signature' | 'pcrs', decode: (bytes: Uint8Array) => T, max?: number) =>
    bundle === null
      ? await readAs(name, required(name, options[name]), decode, max)
      : await readingInput(`--evidence ${options.evidence}: ${name}`, () => decode(bundle[name]))
  const read = await partOf('quote', bytes => {
    const whole = unsized(bytes)
    return { bytes: whole, quote: decodeQuote(whole) }
  })
  const signature = await partOf('signature', signatureOf)
  const pcrs = await partOf('pcrs', bytes => readPcrValues(bytes, read.quote), pcrsBytesMax)
  const log =
    options.eventLog === undefined
      ? null
      : await readAs(
          'event-log',
          options.eventLog,
          bytes => ({ bytes, decoded: decodeEventLog(bytes) }),
          eventLogBytesMax,
        )
  return { ...read, signature, pcrs, log }
}

/** Returns the whole HCL report, the hardware's report in it, and the runtime data that this covers. */
export async function readHclReport(kind: BundleKind, options: VtpmOptions, bundle: VtpmBundle | null) {
  const decode = (bytes: Uint8Array) => hclOf(bytes, kind)
  if (bundle !== null) return await readingInput(`--evidence ${options.evidence}`, () => decode(bundle.report))
  return await readAs('report', needed(options, 'report'), decode, hclSizeBytesMax)
}

function hclOf(bytes: Uint8Array, kind: BundleKind) {
  const alone = 'alone names no key; the HCL report around it is in NV index 0x01400001'
  wellFormed(!isTdReportStart(bytes), `a TD report ${alone}`)
  wellFormed(bytes.length !== reportSizeBytes, `an SNP report ${alone}`)
  const { hardware } = BUNDLE_KINDS[kind]
  const [at] = HCL_FIELDS.reportType
  const types = Object.entries(BUNDLE_KINDS).map(([name, of]) => ({ name, ...of, type: HCL_REPORT_TYPES[of.hardware] }))
  const found = isHclStart(bytes) ? types.find(({ type }) => type === bytes[at]) : undefined
  const other = found?.name === kind ? undefined : found
  wellFormed(other === undefined, `HCL report: of ${other?.machine}, which --kind ${other?.name} verifies`)
  return { bytes, ...decodeHclReport(bytes, hardware) }
}

export async function readTdQuote(options: VtpmOptions, bundle: VtpmBundle | null): Promise<QuoteFile> {
  const given = bundle?.tdQuote ?? null
  if (given === null) return await readQuoteFile(needed(options, 'tdQuote'), 'td-quote')
  const what = `--evidence ${options.evidence}: td_quote`
  return { bytes: given, quote: await readingInput(what, () => decodeTdxQuote(given)) }
}

/** Reads a key as PEM or DER (SPKI), or as the TPM's public area. */
export async function readKey(param: string, path: string): Promise<TpmKey> {
  return await readAs(param, path, keyOf)
}

export type Area = { readonly bytes: Uint8Array; readonly area: TpmPublic }

/** Reads TPMT_PUBLIC, or TPM2B_PUBLIC around it; `bytes` is the former. */
export async function readArea(param: string, path: string): Promise<Area> {
  return await readAs(param, path, bytes => {
    if (isSpki(bytes)) {
      throw new Malformed('a key in PEM or DER does not say what the TPM lets it do: save it with tpm2_readpublic -o')
    }
    return areaOf(bytes)
  })
}

function areaOf(bytes: Uint8Array): Area {
  const whole = unsized(bytes)
  return { bytes: whole, area: decodePublicArea(whole) }
}

/** Reads the activation; null if none of its options are given. */
export async function readActivation(options: KindOptions, ek: Area): Promise<Activation | null> {
  if (CREDENTIAL.every(name => options[name] === undefined)) return null
  const attestationKeyName = needed(options, 'credentialName')
  const endorsementKey = await readAs('credential-ek', needed(options, 'credentialEk'), bytes => areaBytesOf(bytes, ek))
  const [own, returned] = [needed(options, 'credentialSecret'), needed(options, 'activated')]
  if (own === returned) {
    throw new InputFault('--activated is the file of --credential-secret: a secret always equals itself', {
      param: 'activated',
      remedy: 'name the file that came back from the guest',
    })
  }
  const secret = readInput({ path: own, param: 'credential-secret', bytesMax: structureBytesMax })
  const activated = readInput({ path: returned, param: 'activated', bytesMax: structureBytesMax })
  return { endorsementKey, attestationKeyName, secret, activated }
}

/** Returns the public area. PEM of the endorsement key is accepted for its area: the key alone identifies the TPM. */
function areaBytesOf(bytes: Uint8Array, ek: Area): Uint8Array {
  if (!isSpki(bytes)) return areaOf(bytes).bytes
  const key = encodeSpki(keyOf(bytes))
  return equalConstantTime(key, encodeSpki(ek.area.key)) ? ek.bytes : key
}

async function readAs<T>(
  param: string,
  path: string,
  decode: (bytes: Uint8Array) => T,
  bytesMax = structureBytesMax,
): Promise<T> {
  const bytes = readInput({ path, param, bytesMax })
  return await readingInput(`--${param} ${path}`, () => decode(bytes))
}

/** Removes the length with which a TPM2B begins. */
function unsized(bytes: Uint8Array): Uint8Array {
  const length = ((bytes[0] ?? 0) << 8) | (bytes[1] ?? 0)
  return bytes.length > 2 && length === bytes.length - 2 ? bytes.slice(2) : bytes
}

/** Lengths of an RSA signature without TPMT_SIGNATURE around it. */
const plainBytes: readonly number[] = [256, 384, 512]

function signatureOf(bytes: Uint8Array): TpmSignature {
  if (!plainBytes.includes(bytes.length)) return decodeSignature(bytes)
  return { scheme: 'RSASSA', hash: 'SHA-256', signature: bytes }
}

/** Reports whether the bytes are SPKI: PEM begins with dashes, DER with a sequence. */
function isSpki(bytes: Uint8Array): boolean {
  return bytes[0] === 0x2d || bytes[0] === 0x30
}

function keyOf(bytes: Uint8Array): TpmKey {
  if (!isSpki(bytes)) return areaOf(bytes).area.key
  if (bytes[0] === 0x30) return decodeSpki(bytes)
  return decodePemKey(bytes.every(byte => byte < 0x80) ? fromUtf8(bytes) : '')
}
