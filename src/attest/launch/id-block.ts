// ID_BLOCK and ID_AUTH name the owner of a launch (AMD 56860 rev 1.58, 8.18, tables 76 and 77, and chapter 10). Pure.

import { isZero, type Layout, layoutBytes, readRecord, type Values, writeRecord } from '../encoding/layout.ts'
import { wellFormed } from '../malformed.ts'
import { coordinateBytes, curveP384, ID_KEY, type IdKey, toLittle, writeIdKey } from './id-key.ts'

export const ID_BLOCK = {
  measurement: [0x00, 48],
  familyId: [0x30, 16],
  imageId: [0x40, 16],
  version: [0x50, 4],
  guestSvn: [0x54, 4],
  policy: [0x58, 8],
} as const satisfies Layout

/** An ECDSA signature: R and S little-endian, each in 72 bytes. */
export const ID_SIGNATURE = { r: [0x00, 72], s: [0x48, 72], reserved: [0x90, 368] } as const satisfies Layout

export const ID_AUTH = {
  idKeyAlgorithm: [0x000, 4],
  authorKeyAlgorithm: [0x004, 4],
  reserved1: [0x008, 56],
  idSignature: [0x040, 512],
  idKey: [0x240, 0x404],
  reserved2: [0x644, 60],
  authorSignature: [0x680, 512],
  authorKey: [0x880, 0x404],
  reserved3: [0xc84, 892],
} as const satisfies Layout

export const idBlockBytes = layoutBytes(ID_BLOCK)
export const idAuthBytes = layoutBytes(ID_AUTH)

const idBlockVersion = 1
/** Number of ECDSA P-384 with SHA-384. */
const algorithmEcdsaP384 = 1

/** ID_BLOCK without `version`, which is always 1. */
export type IdBlock = Omit<Values<typeof ID_BLOCK>, 'version'>
export type IdSignature = { readonly r: Uint8Array; readonly s: Uint8Array }

export type IdAuth = {
  readonly idKey: IdKey
  /** Signature over the ID block, by the ID key. */
  readonly idSignature: IdSignature
  /** The author's key and its signature over the ID key's structure; null without an author. */
  readonly author: { readonly key: IdKey; readonly signature: IdSignature } | null
}

export function readIdBlock(bytes: Uint8Array): IdBlock {
  const { version, ...fields } = readRecord('ID block', bytes, ID_BLOCK)
  wellFormed(version === idBlockVersion, `ID block: version ${version}, not ${idBlockVersion}`)
  return fields
}

export function writeIdBlock(block: IdBlock): Uint8Array {
  return writeRecord('ID block', ID_BLOCK, { ...block, version: idBlockVersion })
}

export function readIdAuth(bytes: Uint8Array): IdAuth {
  const fields = readRecord('ID authentication', bytes, ID_AUTH)
  const { idKeyAlgorithm, authorKeyAlgorithm, authorSignature, authorKey } = fields
  zero('ID authentication', fields.reserved1, fields.reserved2, fields.reserved3)
  wellFormed(idKeyAlgorithm === algorithmEcdsaP384, `ID authentication: ID key algorithm ${idKeyAlgorithm}`)
  const id = { idKey: readIdKey(fields.idKey), idSignature: readIdSignature(fields.idSignature) }
  if (authorKeyAlgorithm === 0) {
    zero('ID authentication: author', authorSignature, authorKey)
    return { ...id, author: null }
  }
  wellFormed(authorKeyAlgorithm === algorithmEcdsaP384, `ID authentication: author key algorithm ${authorKeyAlgorithm}`)
  return { ...id, author: { key: readIdKey(authorKey), signature: readIdSignature(authorSignature) } }
}

export function writeIdAuth({ idKey, idSignature, author }: IdAuth): Uint8Array {
  return writeRecord('ID authentication', ID_AUTH, {
    idKeyAlgorithm: algorithmEcdsaP384,
    authorKeyAlgorithm: author === null ? 0 : algorithmEcdsaP384,
    reserved1: new Uint8Array(ID_AUTH.reserved1[1]),
    idSignature: writeIdSignature(idSignature),
    idKey: writeIdKey(idKey),
    reserved2: new Uint8Array(ID_AUTH.reserved2[1]),
    authorSignature: author === null ? new Uint8Array(ID_AUTH.authorSignature[1]) : writeIdSignature(author.signature),
    authorKey: author === null ? new Uint8Array(ID_AUTH.authorKey[1]) : writeIdKey(author.key),
    reserved3: new Uint8Array(ID_AUTH.reserved3[1]),
  })
}

export function readIdKey(bytes: Uint8Array): IdKey {
  const { curve, x, y, reserved } = readRecord('ID key', bytes, ID_KEY)
  wellFormed(curve === curveP384, `ID key: curve ${curve}, not P-384`)
  zero('ID key', reserved)
  return { x: toBig(x), y: toBig(y) }
}

export function readIdSignature(bytes: Uint8Array): IdSignature {
  const { r, s, reserved } = readRecord('ID signature', bytes, ID_SIGNATURE)
  zero('ID signature', reserved)
  return { r: toBig(r), s: toBig(s) }
}

export function writeIdSignature({ r, s }: IdSignature): Uint8Array {
  return writeRecord('ID signature', ID_SIGNATURE, {
    r: toLittle(r),
    s: toLittle(s),
    reserved: new Uint8Array(ID_SIGNATURE.reserved[1]),
  })
}

function toBig(field: Uint8Array): Uint8Array {
  zero('ID number', field.subarray(coordinateBytes))
  return field.slice(0, coordinateBytes).reverse()
}

function zero(what: string, ...fields: readonly Uint8Array[]): void {
  for (const field of fields) wellFormed(isZero(field), `${what}: reserved bytes are not zero`)
}
