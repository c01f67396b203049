// The ports that a verified instance publishes, for people and for documents. Pure.

import { parsed } from '../../attest/malformed.ts'
import type { PublishedFacts } from '../../contract/vm/orders/published-facts.ts'
import type { InstanceVerdict } from '../../verifier/instance.ts'
import { statedPublished } from '../../verifier/ordered/published.ts'
import type { Fact } from '../verdict/plain.ts'

/** Empty without a port, and for those that cannot be read, which fail the check `published-form`. */
export function publishedOf({ receipt }: Pick<InstanceVerdict, 'receipt'>): readonly PublishedFacts[] {
  const statement = receipt?.statement ?? null
  const stated = parsed(() => (statement === null ? [] : statedPublished(statement)))
  return stated.ok ? stated.value : []
}

export function publishedFacts(found: Pick<InstanceVerdict, 'receipt'>): Fact[] {
  const hostname = found.receipt?.statement?.hostname ?? ''
  return publishedOf(found).flatMap(({ name, port, keySha256 }): Fact[] => [
    ['published', `${name}.${hostname} → port ${port}, by TLS`],
    ['published', `by the key sha256:${keySha256}`],
  ])
}
