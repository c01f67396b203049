// The file of this VM's published ports, with their keys: root's process writes it, whole each time, and the one that
// serves them reads it. Effects: reads it.

import type { PublishedFacts } from '../../contract/vm/orders/published-facts.ts'
import { readTextOrNull } from '../../linux/files.ts'
import type { GuestPaths } from '../paths.ts'

export type PublishedPort = PublishedFacts & {
  /** The whole name. */
  readonly host: string
  /** PEM, PKCS #8. */
  readonly key: string
  /** For `host`, by the key: PKCS #10, DER, base64url. */
  readonly csr: string
  readonly egressBytes: number
  /** PEM, leaf first. Without one the port is not served. */
  readonly chain: string | null
  /** Why the host has no certificate, in its words. */
  readonly problem: string | null
}

export function readPublished({ published }: Pick<GuestPaths, 'published'>): readonly PublishedPort[] {
  return JSON.parse(readTextOrNull(published) ?? '[]')
}
