// The key configuration that stock EHBP clients fetch, and the problem document that sends them to fetch it again.
// Pure.
//
// One bare key configuration (RFC 9458 section 3.1), without the length that RFC 9458 section 3.2 puts before each:
// so EHBP has it (SPEC.md section 3). It holds the X25519 key alone. It is not signed: to authenticate the key, use
// the keys of the attestation, which include X-Wing's.

import { concat } from '../../base/bytes.ts'
import { type AgreementKeys, KEMS, kemPublicKey } from '../receipt/kem.ts'
import { aeadId, kdfId, keyConfigProblem } from './protocol.ts'

/** EHBP servers have one key at a time. */
const keyId = 0
const suiteBytes = 4

/** Throws Malformed on a key of another length. */
export function encodeKeyConfig(keys: AgreementKeys): Uint8Array {
  const suites = concat(u16(kdfId), u16(aeadId))
  return concat(Uint8Array.of(keyId), u16(KEMS.x25519.id), kemPublicKey('x25519', keys), u16(suiteBytes), suites)
}

/** Members of the problem document (RFC 9457 section 3.1). */
export function keyConfigProblemOf(title: string): {
  readonly type: typeof keyConfigProblem.type
  readonly title: string
} {
  return { type: keyConfigProblem.type, title }
}

function u16(value: number): Uint8Array {
  return Uint8Array.of(value >> 8, value & 0xff)
}
