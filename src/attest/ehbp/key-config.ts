// The key configuration that stock EHBP clients fetch, and the problem document that makes them fetch it again. Pure.
//
// One bare key configuration (RFC 9458 section 3.1), without the length prefix of RFC 9458 section 3.2, as EHBP defines
// it (SPEC.md section 3). It holds only the X25519 key. It is not signed: for an authenticated key, use the keys of the
// attestation, which include X-Wing's.

import { concat } from '../../base/bytes.ts'
import { type AgreementKeys, KEMS, kemPublicKey } from '../receipt/kem.ts'
import { aeadId, kdfId, keyConfigProblem } from './protocol.ts'

/** Constant, because EHBP servers have one key at a time. */
const keyId = 0
const suiteBytes = 4

/** Encodes the key configuration. Throws Malformed if the key has the wrong length. */
export function encodeKeyConfig(keys: AgreementKeys): Uint8Array {
  const suites = concat(u16(kdfId), u16(aeadId))
  return concat(Uint8Array.of(keyId), u16(KEMS.x25519.id), kemPublicKey('x25519', keys), u16(suiteBytes), suites)
}

/** Returns the members of the problem document (RFC 9457 section 3.1). */
export function keyConfigProblemOf(title: string): {
  readonly type: typeof keyConfigProblem.type
  readonly title: string
} {
  return { type: keyConfigProblem.type, title }
}

function u16(value: number): Uint8Array {
  return Uint8Array.of(value >> 8, value & 0xff)
}
