// The ports that an instance publishes, as its VM states them. Pure.

import { parsedJson } from '../../attest/encoding/json.ts'
import { parsed } from '../../attest/malformed.ts'
import type { StatementOf } from '../../attest/receipt/statement.ts'
import { type Check, check, fail, notChecked, pass } from '../../attest/verdict.ts'
import { utf8 } from '../../base/bytes.ts'
import { Closed } from '../../contract/forms.ts'
import { type Static, Type } from '../../contract/type.ts'
import { PublishedFacts } from '../../contract/vm/orders/published-facts.ts'
import { ofForm } from '../form.ts'

const { keySha256, ...place } = PublishedFacts.properties
/** A port as a relying party expects it. `keySha256`: left out for any key of the VM. */
export const ExpectedPort = Closed({ ...place, keySha256: Type.Optional(keySha256) })
export type ExpectedPort = Static<typeof ExpectedPort>

/** Throws Malformed for a port in another form, as of a later release. */
export function statedPublished({ published }: Pick<StatementOf<'claim'>, 'published'>): readonly PublishedFacts[] {
  return (published ?? []).map(text => ofForm('published', PublishedFacts, parsedJson('published', utf8(text))))
}

type Expected = readonly ExpectedPort[] | 'any'

/**
 * Compares the published ports with the expected ones, but for their order. No check if none is expected and none is
 * there. `statement`: null if the receipt cannot be read.
 */
export function publishedChecks(statement: StatementOf<'claim'> | null, expected: Expected): Check[] {
  const name = 'published'
  if (statement === null) return expected === 'any' ? [] : [notChecked(name, 'the receipt cannot be read', true)]
  const stated = parsed(() => statedPublished(statement))
  if (!stated.ok) return [fail('published-form', stated.reason)]
  const words = stated.value.map(portText).join(', ')
  if (words === '' && (expected === 'any' || expected.length === 0)) return []
  if (expected === 'any') return [pass(name, words)]
  const strange = stated.value.filter(port => !expected.some(wanted => isAsExpected(port, wanted)))
  const missing = expected.filter(wanted => !stated.value.some(port => isAsExpected(port, wanted)))
  const problems = [
    ...strange.map(port => `anyone reaches ${portText(port)}: unpublish it, or name it in \`published\` of the policy`),
    ...missing.map(port => `it lacks ${portText(port)}`),
  ]
  return [check(name, problems.length === 0, problems.join('; '), words)]
}

function isAsExpected({ name, port, keySha256 }: PublishedFacts, wanted: ExpectedPort): boolean {
  return name === wanted.name && port === wanted.port && keySha256 === (wanted.keySha256 ?? keySha256)
}

function portText({ name, port, keySha256 }: ExpectedPort): string {
  return `${name}: port ${port}${keySha256 === undefined ? '' : ` by the key ${keySha256.slice(0, 16)}…`}`
}
