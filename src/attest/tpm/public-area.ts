// Decodes a TPM object's public area, and computes its Name. Pure. TCG TPM 2.0 Library, Part 2: section 12.2.4
// (TPMT_PUBLIC), 12.2.3 (parameters), 8.3 (TPMA_OBJECT); Part 1, section 16 (Names).

import { concat } from '../../base/bytes.ts'
import { type Reader, reader } from '../encoding/reader.ts'
import { wellFormed } from '../malformed.ts'
import { ALGORITHM, BANKS, CURVES, curveNames, type StrongHash } from './algorithm.ts'
import { eccKey, rsaKey, type TpmKey } from './key.ts'
import { strongHashOf } from './structures.ts'

export type TpmPublic = {
  readonly nameHash: StrongHash
  readonly attributes: ReadonlySet<TpmAttribute>
  readonly authPolicy: Uint8Array
  readonly key: TpmKey
  /** Cipher with which a storage key protects its children; null for other keys. */
  readonly symmetric: { readonly algorithm: number; readonly keyBits: number; readonly mode: number } | null
  /** Content of TPM2B_NAME: the name hash's identifier, then the digest of the whole area. */
  readonly name: Uint8Array
}

/** Bit numbers of TPMA_OBJECT (Part 2 section 8.3.2). */
export const ATTRIBUTES = {
  fixedTPM: 1,
  stClear: 2,
  fixedParent: 4,
  sensitiveDataOrigin: 5,
  userWithAuth: 6,
  adminWithPolicy: 7,
  noDA: 10,
  encryptedDuplication: 11,
  restricted: 16,
  decrypt: 17,
  sign: 18,
  x509sign: 19,
} as const satisfies Record<string, number>

export type TpmAttribute = keyof typeof ATTRIBUTES

/** Reports whether the key never leaves its TPM, was made by it, and signs only the TPM's own structures. */
export function isAttestationKey(area: TpmPublic): boolean {
  return isBoundToTpm(area) && area.attributes.has('sign') && !area.attributes.has('decrypt')
}

/**
 * Reports whether this is a storage key that never leaves its TPM and was made by it (TCG EK Credential Profile 2.5,
 * section 2.1.5).
 */
export function isEndorsementKey(area: TpmPublic): boolean {
  return isBoundToTpm(area) && area.attributes.has('decrypt') && !area.attributes.has('sign')
}

/** Decodes TPMT_PUBLIC of an RSA or ECC key. Throws Malformed for anything else. */
export function decodePublicArea(bytes: Uint8Array): TpmPublic {
  const read = reader(bytes, 'tpm public area')
  const type = read.u16()
  wellFormed(type === ALGORITHM.rsa || type === ALGORITHM.ecc, 'tpm public area: neither RSA nor ECC')
  const nameHash = strongHashOf(read.u16())
  const attributeBits = read.u32()
  const authPolicy = read.sized(64)
  wellFormed(
    authPolicy.length === 0 || authPolicy.length === BANKS[nameHash].sizeBytes,
    'tpm public area: authPolicy length',
  )
  const symmetric = readSymmetric(read)
  skipScheme(read)
  const key = type === ALGORITHM.rsa ? readRsa(read) : readEcc(read)
  read.end()
  const id = BANKS[nameHash].id
  return {
    nameHash,
    attributes: new Set(attributeNames.filter(name => (attributeBits & (1 << ATTRIBUTES[name])) !== 0)),
    authPolicy,
    key,
    symmetric,
    name: concat(Uint8Array.of(id >> 8, id & 0xff), BANKS[nameHash].hash(bytes)),
  }
}

/** Decodes TPM2B_PUBLIC: the area after its length. */
export function decodeSizedPublic(bytes: Uint8Array): TpmPublic {
  const read = reader(bytes, 'tpm public area')
  const area = read.sized(areaBytesMax)
  read.end()
  return decodePublicArea(area)
}

const areaBytesMax = 1024
const attributeNames = Object.keys(ATTRIBUTES) as TpmAttribute[]

function isBoundToTpm({ attributes }: TpmPublic): boolean {
  return (['fixedTPM', 'fixedParent', 'sensitiveDataOrigin', 'restricted'] as const).every(kind => attributes.has(kind))
}

/** Reads TPMT_SYM_DEF_OBJECT: key size and mode follow, except after TPM_ALG_NULL. */
function readSymmetric(read: Reader): TpmPublic['symmetric'] {
  const algorithm = read.u16()
  return algorithm === ALGORITHM.null ? null : { algorithm, keyBits: read.u16(), mode: read.u16() }
}

/**
 * Skips TPMT_RSA_SCHEME or TPMT_ECC_SCHEME: a hash follows, except after NULL and RSAES. Throws Malformed for others.
 */
function skipScheme(read: Reader): void {
  const scheme = read.u16()
  if (scheme === ALGORITHM.null || scheme === ALGORITHM.rsaes) return
  const hashed: readonly number[] = [ALGORITHM.rsassa, ALGORITHM.rsapss, ALGORITHM.oaep, ALGORITHM.ecdsa]
  wellFormed(hashed.includes(scheme), 'tpm public area: unknown scheme')
  strongHashOf(read.u16())
}

/** Reads keyBits, exponent (0 means 65537) and modulus. */
function readRsa(read: Reader): TpmKey {
  const keyBits = read.u16()
  const exponent = read.u32()
  wellFormed(exponent === 0 || exponent === 65537, 'tpm public area: RSA exponent')
  const modulus = read.sized(512)
  wellFormed(modulus.length * 8 === keyBits, 'tpm public area: RSA modulus size')
  return rsaKey(modulus)
}

/** Reads curve, key derivation scheme and point. */
function readEcc(read: Reader): TpmKey {
  const id = read.u16()
  const curve = curveNames.find(name => CURVES[name].id === id)
  wellFormed(curve !== undefined, 'tpm public area: unknown curve')
  wellFormed(read.u16() === ALGORITHM.null, 'tpm public area: a key derivation scheme')
  return eccKey(curve, read.sized(CURVES[curve].sizeBytes), read.sized(CURVES[curve].sizeBytes))
}
