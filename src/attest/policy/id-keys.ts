// Digests of ID keys and author keys in a policy, given as digest, as key, or as certificate. Pure.

import { derBlocks } from '../encoding/pem.ts'
import { sha384 } from '../hash.ts'
import { coordinateBytes, writeIdKey } from '../launch/id-key.ts'
import { parsed, wellFormed } from '../malformed.ts'
import { decodeCertificate, spkiPoint } from '../x509/certificate.ts'
import { hex, type Kind, oneOrMore } from './kinds.ts'

const digest = hex(48)
const pemCharsMax = 16 * 1024
const pemStart = '-----BEGIN (PUBLIC KEY|CERTIFICATE)-----'

/**
 * SHA-384 of a key's structure in ID_AUTH. The schema cannot check PEM, so the parser is stricter than the schema. A
 * certificate only supplies its key: the policy's author trusts the keys that it names.
 */
const keyDigest: Kind<Uint8Array> = {
  schema: {
    anyOf: [digest.schema, { type: 'string', pattern: `^${pemStart}[\\r\\n]`, maxLength: pemCharsMax }],
  },
  parse: (value, path) => {
    const [, label] = typeof value === 'string' ? (new RegExp(`^${pemStart}[\r\n]`).exec(value) ?? []) : []
    if (typeof value !== 'string' || (label !== 'PUBLIC KEY' && label !== 'CERTIFICATE'))
      return digest.parse(value, path)
    wellFormed(value.length <= pemCharsMax, `${path}: PEM of ${value.length} characters, at most ${pemCharsMax}`)
    const point = parsed(() => pointOf(value, label))
    wellFormed(point.ok, `${path}: ${point.ok ? '' : point.reason}`)
    const [x, y] = [point.value.slice(1, 1 + coordinateBytes), point.value.slice(1 + coordinateBytes)]
    return sha384(writeIdKey({ x, y }))
  },
}

/** Returns the uncompressed point of the only block in the text. */
function pointOf(pem: string, label: 'PUBLIC KEY' | 'CERTIFICATE'): Uint8Array {
  const [der, ...more] = derBlocks(pem, label, label)
  wellFormed(der !== undefined && more.length === 0, `not exactly one ${label}`)
  const point = spkiPoint(label === 'CERTIFICATE' ? decodeCertificate(der).publicKey.spki : der)
  wellFormed(point !== null, 'not a key on P-384')
  return point
}

export const keyDigests: Kind<Uint8Array | readonly Uint8Array[]> = oneOrMore(keyDigest)

/** Returns a field of one digest or several as a list. */
export function digestsOf(field: Uint8Array | readonly Uint8Array[]): readonly Uint8Array[] {
  return field instanceof Uint8Array ? [field] : field
}
