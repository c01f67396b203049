// The secrets of an instance, as its VM states them: names and hosts, never values. Pure.

import { parsedJson } from '../../attest/encoding/json.ts'
import { parsed } from '../../attest/malformed.ts'
import type { StatementOf } from '../../attest/receipt/statement.ts'
import { type Check, check, fail, notChecked, pass } from '../../attest/verdict.ts'
import { utf8 } from '../../base/bytes.ts'
import { SecretFacts } from '../../contract/vm/orders/secret-facts.ts'
import { ofForm } from '../form.ts'

/** Throws Malformed for a secret in another form, as of a later release. */
export function statedSecrets({ secrets }: Pick<StatementOf<'claim'>, 'secrets'>): readonly SecretFacts[] {
  return (secrets ?? []).map(text => ofForm('secret', SecretFacts, parsedJson('secret', utf8(text))))
}

/** Where a secret is inserted. Secrets that differ in any field have different texts. */
export function secretText({ name, host, port, header, method, path }: SecretFacts): string {
  const only = [method ?? '', path ?? ''].filter(text => text !== '').join(' ')
  const at = port === 443 ? host : `${host}:${port}`
  return `${name}, in ${header} of requests to ${at}${only === '' ? '' : `, only ${only}`}`
}

type Expected = readonly SecretFacts[] | 'any'

/**
 * Compares the secrets with the expected ones, but for their order. No check if nothing is expected and there is none.
 * `statement`: null if the receipt cannot be read.
 */
export function secretChecks(statement: StatementOf<'claim'> | null, expected: Expected): Check[] {
  const name = 'secrets'
  if (statement === null) return expected === 'any' ? [] : [notChecked(name, 'the receipt cannot be read', true)]
  const stated = parsed(() => statedSecrets(statement))
  // Counts as evidence: the relying party expects nothing about the form.
  if (!stated.ok) return [fail('secrets-form', stated.reason)]
  const names = stated.value.map(({ name, host }) => `${name} for ${host}`)
  const words = names.length === 0 ? 'none' : `${names.length}, not readable by the agent: ${names.join(', ')}`
  if (expected === 'any') return names.length === 0 ? [] : [pass(name, words)]
  const [found, wanted] = [stated.value.map(secretText), expected.map(secretText)]
  const strange = found.filter(text => !wanted.includes(text)).map(text => `you do not expect ${text}`)
  const missing = wanted.filter(text => !found.includes(text)).map(text => `it lacks ${text}`)
  return [check(name, strange.length + missing.length === 0, [...strange, ...missing].join('; '), words)]
}
