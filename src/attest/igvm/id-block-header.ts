// The IGVM header with ID_BLOCK and ID_AUTH: the signer of the launch (IGVM_VHS_SNP_ID_BLOCK). Pure.
//
// The header has no policy: loaders use that of the file's guest policy (QEMU backends/igvm.c, qigvm_handle_policy).

import { concat } from '../../base/bytes.ts'
import {
  ID_SIGNATURE,
  type IdAuth,
  type IdBlock,
  type IdSignature,
  readIdKey,
  readIdSignature,
  writeIdSignature,
} from '../launch/id-block.ts'
import { curveP384, ID_KEY, type IdKey, writeIdKey } from '../launch/id-key.ts'
import { wellFormed } from '../malformed.ts'
import type { IgvmHeader } from './headers.ts'

type IdBlockHeader = IgvmHeader & { readonly kind: 'snpIdBlock' }
export type SignedId = { readonly block: IdBlock; readonly auth: IdAuth }

/** Length of two numbers of 72 bytes: the coordinates of a key, or the halves of a signature. */
const pairBytes = 144
const noKey = { curve: 0, point: new Uint8Array(pairBytes) }
const version = 1
const algorithmEcdsaP384 = 1

export function writeIdBlockHeader({ block, auth }: SignedId, compatibilityMask: number): IdBlockHeader {
  const idKey = keyFields(auth.idKey)
  const author = auth.author === null ? noKey : keyFields(auth.author.key)
  const { measurement, familyId, imageId, guestSvn } = block
  return {
    kind: 'snpIdBlock',
    compatibilityMask,
    authorKeyEnabled: auth.author === null ? 0 : 1,
    measurement,
    familyId,
    imageId,
    guestSvn,
    version,
    idKeyAlgorithm: algorithmEcdsaP384,
    authorKeyAlgorithm: auth.author === null ? 0 : algorithmEcdsaP384,
    idSignature: writeIdSignature(auth.idSignature).slice(0, pairBytes),
    idKeyCurve: idKey.curve,
    idKeyPoint: idKey.point,
    authorSignature: auth.author === null ? noKey.point : writeIdSignature(auth.author.signature).slice(0, pairBytes),
    authorKeyCurve: author.curve,
    authorKeyPoint: author.point,
  }
}

/** Returns ID block and ID_AUTH in the firmware's form. Throws Malformed. */
export function readIdBlockHeader(header: IdBlockHeader, policy: bigint): SignedId {
  const { measurement, familyId, imageId, guestSvn } = header
  wellFormed(header.version === version, `IGVM: ID block of version ${header.version}`)
  wellFormed(header.idKeyAlgorithm === algorithmEcdsaP384, `IGVM: ID key algorithm ${header.idKeyAlgorithm}`)
  const hasAuthor = header.authorKeyEnabled !== 0
  wellFormed(
    header.authorKeyAlgorithm === (hasAuthor ? algorithmEcdsaP384 : 0),
    `IGVM: author key algorithm ${header.authorKeyAlgorithm}`,
  )
  const author = hasAuthor
    ? { key: keyOf(header.authorKeyCurve, header.authorKeyPoint), signature: signatureOf(header.authorSignature) }
    : null
  return {
    block: { measurement, familyId, imageId, guestSvn, policy },
    auth: {
      idKey: keyOf(header.idKeyCurve, header.idKeyPoint),
      idSignature: signatureOf(header.idSignature),
      author,
    },
  }
}

const [curveAt] = ID_KEY.curve
const [pointAt] = ID_KEY.x

function keyFields(key: IdKey): { curve: number; point: Uint8Array } {
  return { curve: curveP384, point: writeIdKey(key).slice(pointAt, pointAt + pairBytes) }
}

function keyOf(curve: number, point: Uint8Array): IdKey {
  const head = new Uint8Array(pointAt)
  new DataView(head.buffer).setUint32(curveAt, curve, true)
  return readIdKey(concat(head, point, new Uint8Array(ID_KEY.reserved[1])))
}

function signatureOf(pair: Uint8Array): IdSignature {
  return readIdSignature(concat(pair, new Uint8Array(ID_SIGNATURE.reserved[1])))
}
