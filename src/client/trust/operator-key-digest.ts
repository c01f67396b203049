// Reads the operator key that a relying party expects, from an option. Effects: reads a file.

import { BUNDLE_LIMITS, derBlocks } from '../../attest/encoding/pem.ts'
import { webBytes } from '../../attest/hash.ts'
import { publicIdKey } from '../../attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../../attest/launch/id-block-verify.ts'
import { present } from '../../base/assert.ts'
import { InputFault } from '../../terminal/exit.ts'
import { pastedHex } from '../../terminal/hex.ts'
import { readInput, readingInput } from '../../terminal/input-file.ts'

/** Length of SHA-384. */
const idKeyDigestBytes = 48

/** Returns the digest given directly, or of the public key in a PEM file. Fault invalid_request. */
export async function operatorKeyDigest(given: string): Promise<Uint8Array> {
  const digest = pastedHex(given)
  if (digest !== null && digest.length === idKeyDigestBytes) return digest
  const pem = readInput({ path: given, param: 'operator-key', bytesMax: BUNDLE_LIMITS.bytesMax })
  return await operatorKeyDigestOf(pem, `--operator-key ${given}`)
}

/** `source`: the option and its file, for messages. Fault invalid_request. */
export async function operatorKeyDigestOf(pem: Uint8Array, source: string): Promise<Uint8Array> {
  const spki = await readingInput(source, () => present(derBlocks(pem, 'PUBLIC KEY', 'operator key')[0], 'a block'))
  try {
    const curve = { name: 'ECDSA', namedCurve: 'P-384' }
    const key = await crypto.subtle.importKey('spki', webBytes(spki), curve, true, ['verify'])
    return await idKeyDigest(await publicIdKey(key))
  } catch {
    throw new InputFault(`${source}: no public key of P-384`, {
      param: 'operator-key',
      remedy: 'name the file that `strongroom operator-key` has printed',
    })
  }
}
