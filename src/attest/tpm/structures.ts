// TPM 2.0 quotes and signatures. Pure; quote.ts verifies them.
// TCG TPM 2.0 Library, Part 2: section 10.12 (TPMS_ATTEST), 10.6 (PCR selections), 11.3 (TPMT_SIGNATURE).

import { type Reader, reader } from '../encoding/reader.ts'
import type { HashName } from '../hash.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import { ALGORITHM, BANKS, bankOf, type StrongHash } from './algorithm.ts'

type PcrSelection = {
  readonly bank: HashName
  /** PCR numbers in ascending order. */
  readonly pcrs: readonly number[]
}

export type Quote = {
  readonly qualifiedSigner: Uint8Array
  readonly extraData: Uint8Array
  readonly clock: bigint
  readonly resetCount: number
  readonly restartCount: number
  readonly clockSafe: boolean
  readonly firmwareVersion: bigint
  readonly selections: readonly PcrSelection[]
  readonly pcrDigest: Uint8Array
}

export type TpmSignature =
  | { readonly scheme: 'RSASSA' | 'RSAPSS'; readonly hash: StrongHash; readonly signature: Uint8Array }
  | { readonly scheme: 'ECDSA'; readonly hash: StrongHash; readonly r: Uint8Array; readonly s: Uint8Array }

/** TPM_GENERATED_VALUE (Part 2 section 6.2). A restricted key never signs caller data that begin with it. */
const magic = 0xff544347
/** TPM_ST_ATTEST_QUOTE, Part 2 section 6.9. */
const quoteType = 0x8018

/** The longest TPM2B_NAME and TPM2B_DATA hold a TPMT_HA: an identifier and a SHA-512 digest (Part 2). */
const hashedBytesMax = 2 + 64
const digestBytesMax = 64
const selectionCountMax = 16
/** Bitmap of at most 32 PCRs; PC clients have 24 (three bytes). */
const selectBytesMax = 4
/** Length of an RSA-4096 signature. */
const rsaBytesMax = 512
const coordinateBytesMax = 66

/** Decodes a TPMS_ATTEST that is a quote. Throws Malformed for anything else. */
export function decodeQuote(bytes: Uint8Array): Quote {
  const read = reader(bytes, 'tpm quote')
  wellFormed(read.u32() === magic, 'tpm quote: not made by a TPM (magic)')
  wellFormed(read.u16() === quoteType, 'tpm quote: an attestation of another type')
  const qualifiedSigner = read.sized(hashedBytesMax)
  const extraData = read.sized(hashedBytesMax)
  const clock = read.u64()
  const resetCount = read.u32()
  const restartCount = read.u32()
  const safe = read.u8()
  wellFormed(safe <= 1, 'tpm quote: clockInfo.safe is no boolean')
  const firmwareVersion = read.u64()
  const selections = readSelections(read)
  const pcrDigest = read.sized(digestBytesMax)
  read.end()
  return {
    qualifiedSigner,
    extraData,
    clock,
    resetCount,
    restartCount,
    clockSafe: safe === 1,
    firmwareVersion,
    selections,
    pcrDigest,
  }
}

/** Decodes a TPMT_SIGNATURE. Throws Malformed for schemes other than RSASSA, RSAPSS and ECDSA, and for SHA-1. */
export function decodeSignature(bytes: Uint8Array): TpmSignature {
  const read = reader(bytes, 'tpm signature')
  const scheme = read.u16()
  const hash = strongHashOf(read.u16())
  if (scheme === ALGORITHM.ecdsa) {
    const r = read.sized(coordinateBytesMax)
    const s = read.sized(coordinateBytesMax)
    read.end()
    return { scheme: 'ECDSA', hash, r, s }
  }
  wellFormed(scheme === ALGORITHM.rsassa || scheme === ALGORITHM.rsapss, 'tpm signature: unknown scheme')
  const signature = read.sized(rsaBytesMax)
  read.end()
  return { scheme: scheme === ALGORITHM.rsassa ? 'RSASSA' : 'RSAPSS', hash, signature }
}

/** Reads a TPML_PCR_SELECTION. */
function readSelections(read: Reader): PcrSelection[] {
  const count = read.u32()
  wellFormed(count <= selectionCountMax, 'tpm quote: too many PCR selections')
  const selections: PcrSelection[] = []
  for (let i = 0; i < count; i += 1) {
    const bank = bankOf(read.u16())
    wellFormed(bank !== null, 'tpm quote: unknown PCR bank')
    wellFormed(!selections.some(other => other.bank === bank), 'tpm quote: a PCR bank twice')
    const sizeBytes = read.u8()
    wellFormed(sizeBytes <= selectBytesMax, 'tpm quote: PCR selection too long')
    const bitmap = read.bytes(sizeBytes)
    const pcrs = [...bitmap].flatMap((byte, at) =>
      bits.filter(bit => (byte & (1 << bit)) !== 0).map(bit => at * 8 + bit),
    )
    selections.push({ bank, pcrs })
  }
  return selections
}

const bits = [0, 1, 2, 3, 4, 5, 6, 7] as const

export function strongHashOf(id: number): StrongHash {
  if (id === BANKS['SHA-1'].id) throw new Malformed('tpm: SHA-1 is refused')
  const bank = bankOf(id)
  wellFormed(bank !== null && bank !== 'SHA-1', 'tpm: unknown hash')
  return bank
}
