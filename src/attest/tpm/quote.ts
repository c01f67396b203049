// Checks that a key signed a TPM quote, for a nonce, over PCR values. Pure. vtpm.ts decides who owns the key. TCG TPM
// 2.0 Library, Part 3, TPM2_Quote: pcrDigest is hashed with the signing scheme's hash, over the selected PCRs in order.

import { concat, equalConstantTime } from '../../base/bytes.ts'
import { type HashName, webBytes } from '../hash.ts'
import { parsed } from '../malformed.ts'
import { type Check, check, fail, notChecked, pass } from '../verdict.ts'
import { BANKS, bankNames, CURVES } from './algorithm.ts'
import { encodeSpki, leftPad, type TpmKey } from './key.ts'
import { decodeQuote, decodeSignature, type Quote, type TpmSignature } from './structures.ts'

/** Values by bank and PCR number. */
export type PcrValues = { readonly [Bank in HashName]?: ReadonlyMap<number, Uint8Array> }

export type QuoteInput = {
  /** TPMS_ATTEST, the exact signed bytes. */
  readonly quote: Uint8Array
  /** TPMT_SIGNATURE, or its parts if the signature was sent without its structure. */
  readonly signature: Uint8Array | TpmSignature
  readonly ak: TpmKey
  /** Expected extraData. */
  readonly nonce: Uint8Array
  /** Exactly the PCRs that the quote selects: a value that it does not cover fails the check. */
  readonly pcrs: PcrValues
}

export const QUOTE_CHECKS = ['tpm-quote-signature', 'tpm-quote-format', 'tpm-quote-nonce', 'tpm-quote-pcrs'] as const

/** Returns the checks of QUOTE_CHECKS, in that order. Never throws. */
export async function verifyQuote(input: QuoteInput): Promise<readonly Check[]> {
  const [signatureName, formatName, nonceName, pcrsName] = QUOTE_CHECKS
  const signature = parsed(() =>
    input.signature instanceof Uint8Array ? decodeSignature(input.signature) : input.signature,
  )
  const isSigned = signature.ok && (await isSignedBy(input.ak, signature.value, input.quote))
  const signatureReason = signature.ok ? 'the quote is not signed by the attestation key' : signature.reason
  const quote = parsed(() => decodeQuote(input.quote))
  const checks = [check(signatureName, isSigned, signatureReason)]
  if (!quote.ok) {
    const skipped = [nonceName, pcrsName].map(name => notChecked(name, 'the quote cannot be read', true))
    return [...checks, fail(formatName, quote.reason), ...skipped]
  }
  const hasNonce = input.nonce.length > 0 && equalConstantTime(quote.value.extraData, input.nonce)
  const pcrFault = signature.ok ? pcrFaultOf(quote.value, input.pcrs, signature.value.hash) : signature.reason
  return [
    ...checks,
    pass(formatName),
    check(nonceName, hasNonce, 'extraData is not the nonce'),
    check(pcrsName, pcrFault === null, pcrFault ?? '', 'the PCR values hash to the quoted digest'),
  ]
}

/** Compares the values with those that were quoted. Null if they are exactly the same. */
function pcrFaultOf(quote: Quote, pcrs: PcrValues, hash: TpmSignature['hash']): string | null {
  if (quote.selections.every(selection => selection.pcrs.length === 0)) return 'the quote selects no PCR'
  const values: Uint8Array[] = []
  for (const bank of bankNames) {
    const selected = quote.selections.find(selection => selection.bank === bank)?.pcrs ?? []
    if (bank === 'SHA-1' && selected.length > 0) return 'SHA-1 PCRs are refused'
    const extra = [...(pcrs[bank]?.keys() ?? [])].find(number => !selected.includes(number))
    if (extra !== undefined) return `${bank} PCR ${extra} is not quoted`
  }
  for (const { bank, pcrs: selected } of quote.selections) {
    for (const number of selected) {
      const value = pcrs[bank]?.get(number)
      if (value === undefined) return `${bank} PCR ${number} is quoted but its value is not given`
      if (value.length !== BANKS[bank].sizeBytes) return `${bank} PCR ${number} has ${value.length} bytes`
      values.push(value)
    }
  }
  const isSame = equalConstantTime(BANKS[hash].hash(concat(...values)), quote.pcrDigest)
  return isSame ? null : 'the PCR values do not hash to the quoted digest'
}

async function isSignedBy(key: TpmKey, signature: TpmSignature, message: Uint8Array): Promise<boolean> {
  try {
    if (key.type === 'ecc') {
      if (signature.scheme !== 'ECDSA') return false
      const { sizeBytes } = CURVES[key.curve]
      const pair = concat(leftPad(signature.r, sizeBytes), leftPad(signature.s, sizeBytes))
      const algorithm = { name: 'ECDSA', namedCurve: key.curve, hash: signature.hash }
      return await verifyByWebCrypto(key, algorithm, pair, message)
    }
    if (signature.scheme === 'ECDSA' || signature.signature.length !== key.modulus.length) return false
    const { hash } = signature
    if (signature.scheme === 'RSASSA') {
      return await verifyByWebCrypto(key, { name: 'RSASSA-PKCS1-v1_5', hash }, signature.signature, message)
    }
    // The salt is as long as the key allows, or in FIPS mode as long as the hash (Part 1, annex B.7).
    for (const saltLength of [key.modulus.length - BANKS[hash].sizeBytes - 2, BANKS[hash].sizeBytes]) {
      if (await verifyByWebCrypto(key, { name: 'RSA-PSS', hash, saltLength }, signature.signature, message)) return true
    }
    return false
  } catch {
    // WebCrypto and leftPad reject a point that is not on its curve, and an integer that is too long.
    return false
  }
}

async function verifyByWebCrypto(
  key: TpmKey,
  algorithm: { readonly name: string; readonly [parameter: string]: unknown },
  signature: Uint8Array,
  message: Uint8Array,
): Promise<boolean> {
  const imported = await crypto.subtle.importKey('spki', webBytes(encodeSpki(key)), algorithm, false, ['verify'])
  return crypto.subtle.verify(algorithm, imported, webBytes(signature), webBytes(message))
}
