// A TPM's structures as a TPM writes them, signed by keys of this process. For tests.

import { BANKS, CURVES } from '../../../src/attest/tpm/algorithm.ts'
import { ATTRIBUTES, type TpmAttribute } from '../../../src/attest/tpm/public-area.ts'
import type { PcrValues } from '../../../src/attest/tpm/quote.ts'
import { concat, fromBase64Url } from '../../../src/base/bytes.ts'

export type StrongBank = 'SHA-256' | 'SHA-384' | 'SHA-512'

export function u16(value: number): Uint8Array {
  return Uint8Array.of(value >> 8, value & 0xff)
}

export function u32(value: number): Uint8Array {
  return concat(u16(value >>> 16), u16(value & 0xffff))
}

export function sized(bytes: Uint8Array): Uint8Array {
  return concat(u16(bytes.length), bytes)
}

export type QuoteParts = {
  readonly magic: number
  readonly type: number
  readonly extraData: Uint8Array
  readonly safe: number
  readonly selections: readonly { readonly bank: number; readonly bitmap: Uint8Array }[]
  readonly pcrDigest: Uint8Array
  readonly tail: Uint8Array
}

/** TPMS_ATTEST, Part 2 section 10.12.12. */
export function quoteBytes(parts: QuoteParts): Uint8Array {
  const selections = parts.selections.map(selection =>
    concat(u16(selection.bank), Uint8Array.of(selection.bitmap.length), selection.bitmap),
  )
  return concat(
    u32(parts.magic),
    u16(parts.type),
    sized(new Uint8Array(34).fill(1)),
    sized(parts.extraData),
    u32(0),
    u32(1000),
    u32(2),
    u32(3),
    Uint8Array.of(parts.safe),
    new Uint8Array(8),
    u32(selections.length),
    ...selections,
    sized(parts.pcrDigest),
    parts.tail,
  )
}

/** PCRs 0, 7 and 16 of one bank. */
export function samplePcrs(bank: StrongBank): ReadonlyMap<number, Uint8Array> {
  return new Map([0, 7, 16].map(number => [number, new Uint8Array(BANKS[bank].sizeBytes).fill(number + 1)]))
}

export const sampleBitmap = Uint8Array.of(0x81, 0x00, 0x01)
export const sampleNonce = new Uint8Array(32).fill(0x5a)

/** A quote over `samplePcrs` as it should be, but for the changes. `hash` is the signing scheme's. */
export function goodQuote(bank: StrongBank, hash: StrongBank, changes: Partial<QuoteParts> = {}): Uint8Array {
  return quoteBytes({
    magic: 0xff544347,
    type: 0x8018,
    extraData: sampleNonce,
    safe: 1,
    selections: [{ bank: BANKS[bank].id, bitmap: sampleBitmap }],
    pcrDigest: BANKS[hash].hash(concat(...samplePcrs(bank).values())),
    tail: new Uint8Array(0),
    ...changes,
  })
}

export function samplePcrValues(bank: StrongBank): PcrValues {
  return { [bank]: samplePcrs(bank) }
}

export type Scheme = 'RSASSA' | 'RSAPSS' | 'ECDSA'

const schemeIds = { RSASSA: 0x0014, RSAPSS: 0x0016, ECDSA: 0x0018 } as const

export type SampleKey = {
  readonly jwk: Awaited<ReturnType<typeof exportJwk>>
  readonly spki: Uint8Array
  /** TPMT_PUBLIC with these attributes. */
  readonly publicArea: (attributes: readonly TpmAttribute[]) => Uint8Array
  /** TPMT_SIGNATURE. */
  readonly sign: (message: Uint8Array) => Promise<Uint8Array>
}

export const akAttributes: readonly TpmAttribute[] = [
  'fixedTPM',
  'fixedParent',
  'sensitiveDataOrigin',
  'userWithAuth',
  'restricted',
  'sign',
]
export const ekAttributes: readonly TpmAttribute[] = [
  'fixedTPM',
  'fixedParent',
  'sensitiveDataOrigin',
  'adminWithPolicy',
  'restricted',
  'decrypt',
]

export async function rsaSample(
  scheme: 'RSASSA' | 'RSAPSS',
  hash: StrongBank,
  { bits = 2048, saltLength = 32 }: { bits?: number; saltLength?: number } = {},
): Promise<SampleKey> {
  const name = scheme === 'RSASSA' ? 'RSASSA-PKCS1-v1_5' : 'RSA-PSS'
  const algorithm = { name, hash, modulusLength: bits, publicExponent: Uint8Array.of(1, 0, 1) }
  const pair = (await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])) as CryptoKeyPair
  const jwk = await exportJwk(pair.publicKey)
  const modulus = fromBase64Url(jwk.n ?? '') ?? new Uint8Array(0)
  return {
    jwk,
    spki: new Uint8Array(await crypto.subtle.exportKey('spki', pair.publicKey)),
    publicArea: attributes =>
      concat(
        u16(0x0001),
        ...areaHead(attributes),
        ...(attributes.includes('decrypt') ? [u16(0x0006), u16(128), u16(0x0043)] : [u16(0x0010)]),
        ...(attributes.includes('decrypt') ? [u16(0x0010)] : [u16(schemeIds[scheme]), u16(BANKS[hash].id)]),
        u16(bits),
        u32(0),
        sized(modulus),
      ),
    sign: async message => {
      const signature = await crypto.subtle.sign({ name, saltLength }, pair.privateKey, new Uint8Array(message))
      return concat(u16(schemeIds[scheme]), u16(BANKS[hash].id), sized(new Uint8Array(signature)))
    },
  }
}

export async function eccSample(curve: keyof typeof CURVES, hash: StrongBank): Promise<SampleKey> {
  const algorithm = { name: 'ECDSA', namedCurve: curve }
  const pair = (await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])) as CryptoKeyPair
  const jwk = await exportJwk(pair.publicKey)
  const coordinate = (text: string | undefined) => fromBase64Url(text ?? '') ?? new Uint8Array(0)
  return {
    jwk,
    spki: new Uint8Array(await crypto.subtle.exportKey('spki', pair.publicKey)),
    publicArea: attributes =>
      concat(
        u16(0x0023),
        ...areaHead(attributes),
        u16(0x0010),
        u16(schemeIds.ECDSA),
        u16(BANKS[hash].id),
        u16(CURVES[curve].id),
        u16(0x0010),
        sized(coordinate(jwk.x)),
        sized(coordinate(jwk.y)),
      ),
    sign: async message => {
      const bytes = await crypto.subtle.sign({ name: 'ECDSA', hash }, pair.privateKey, new Uint8Array(message))
      const pairBytes = new Uint8Array(bytes)
      const half = pairBytes.length / 2
      // A TPM may leave out leading zeros.
      const short = (part: Uint8Array) => part.slice(part.findIndex(byte => byte !== 0))
      const [r, s] = [short(pairBytes.slice(0, half)), short(pairBytes.slice(half))]
      return concat(u16(schemeIds.ECDSA), u16(BANKS[hash].id), sized(r), sized(s))
    },
  }
}

/** nameAlg SHA-256, objectAttributes, an empty authPolicy. */
function areaHead(attributes: readonly TpmAttribute[]): Uint8Array[] {
  const bits = attributes.reduce((sum, name) => sum + 2 ** ATTRIBUTES[name], 0)
  return [u16(0x000b), u32(bits), u16(0)]
}

async function exportJwk(key: CryptoKey) {
  return await crypto.subtle.exportKey('jwk', key)
}
