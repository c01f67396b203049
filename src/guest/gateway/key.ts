// The gateway key of an instance, which its guest draws at the claim. Pure except for randomness.
//
// The host gets the prefix and the digest of the secret, and registers these: it cannot send a request as the instance.

import { createHash } from 'node:crypto'
import { type RandomBytes, randomName } from '../../base/ids.ts'
import type { DrawnKey } from '../../contract/vm/claim.ts'

/** Returns a new key `gw_<prefix8>_<secret32>`, and the parts of it that the host may have. */
export function drawGatewayKey(random: RandomBytes): { readonly key: string; readonly drawn: DrawnKey } {
  const prefix = randomName(8, random)
  const secret = randomName(32, random)
  return { key: `gw_${prefix}_${secret}`, drawn: { prefix, secretSha256: secretSha256(secret) } }
}

/** Returns the prefix and the digest of a key's secret; null if the text is no gateway key. */
export function drawnKeyOf(key: string): DrawnKey | null {
  const [, prefix, secret] = /^gw_([a-z0-9]{8})_([a-z0-9]{32})$/.exec(key) ?? []
  return prefix === undefined || secret === undefined ? null : { prefix, secretSha256: secretSha256(secret) }
}

function secretSha256(secret: string): string {
  return createHash('sha256').update(secret).digest('hex')
}
