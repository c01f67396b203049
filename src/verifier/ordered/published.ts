// The ports that an instance publishes, as its VM states them. Pure.

import { parsedJson } from '../../attest/encoding/json.ts'
import { parsed } from '../../attest/malformed.ts'
import type { StatementOf } from '../../attest/receipt/statement.ts'
import { type Check, fail, pass } from '../../attest/verdict.ts'
import { utf8 } from '../../base/bytes.ts'
import { PublishedFacts } from '../../contract/vm/orders/published-facts.ts'
import { ofForm } from '../form.ts'

/** Throws Malformed for a port in another form, as of a later release. */
export function statedPublished({ published }: Pick<StatementOf<'claim'>, 'published'>): readonly PublishedFacts[] {
  return (published ?? []).map(text => ofForm('published', PublishedFacts, parsedJson('published', utf8(text))))
}

/** Names what anyone may reach, and the digests of the TLS keys. No check if nothing is published. */
export function publishedChecks(statement: StatementOf<'claim'> | null): Check[] {
  if (statement === null || statement.published === null) return []
  const stated = parsed(() => statedPublished(statement))
  if (!stated.ok) return [fail('published-form', stated.reason)]
  return [pass('published', stated.value.map(({ name, port }) => `${name}: port ${port}`).join(', '))]
}
