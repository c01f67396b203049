// HPKE in base mode (RFC 9180 section 5.1) with HKDF-SHA256 and AES-256-GCM: the key schedule over the shared secret of
// either KEM (receipt/kem.ts), the same for sender and recipient. Pure.

import { expand, extract } from '@noble/hashes/hkdf.js'
import { sha256 } from '@noble/hashes/sha2.js'
import { concat, utf8 } from '../../base/bytes.ts'
import { KEMS, type KemName } from '../receipt/kem.ts'
import type { NewAesGcm } from './aes-gcm.ts'
import { aeadId, kdfId, LABELS, SIZES } from './protocol.ts'
import { OrderedCipher } from './response-keys.ts'

/** One direction of one message. */
export type HpkeContext = {
  /** Encrypts or decrypts the parts of the message in order (section 5.2). */
  readonly cipher: OrderedCipher
  /** Derives the 32-byte secret for a label (section 5.3). */
  readonly exportSecret: (label: Uint8Array) => Uint8Array
}

const version = utf8('HPKE-v1')
const baseMode = 0x00
const secretBytes = 32

export function hpkeContext(kem: KemName, sharedSecret: Uint8Array, newAesGcm: NewAesGcm): HpkeContext {
  const none = new Uint8Array(0)
  const suite = concat(version, utf8('HPKE'), uint16(KEMS[kem].id), uint16(kdfId), uint16(aeadId))
  const extractLabeled = (salt: Uint8Array, label: string, keyMaterial: Uint8Array) =>
    extract(sha256, concat(suite, utf8(label), keyMaterial), salt)
  const expandLabeled = (prk: Uint8Array, label: string, info: Uint8Array, lengthBytes: number) =>
    expand(sha256, prk, concat(uint16(lengthBytes), suite, utf8(label), info), lengthBytes)
  const schedule = concat(
    Uint8Array.of(baseMode),
    extractLabeled(none, 'psk_id_hash', none),
    extractLabeled(none, 'info_hash', LABELS.request),
  )
  const secret = extractLabeled(sharedSecret, 'secret', none)
  const key = expandLabeled(secret, 'key', schedule, SIZES.key)
  const nonceBase = expandLabeled(secret, 'base_nonce', schedule, SIZES.nonce)
  const exporter = expandLabeled(secret, 'exp', schedule, secretBytes)
  return {
    cipher: new OrderedCipher(key, nonceBase, newAesGcm),
    exportSecret: label => expandLabeled(exporter, 'sec', label, SIZES.exported),
  }
}

function uint16(value: number): Uint8Array {
  return Uint8Array.of(value >> 8, value & 0xff)
}
