// The secrets of an instance, as its VM states them: names and hosts, never values. Pure.

import { parsedJson } from '../../attest/encoding/json.ts'
import { parsed, wellFormed } from '../../attest/malformed.ts'
import type { StatementOf } from '../../attest/receipt/statement.ts'
import { type Check, fail, pass } from '../../attest/verdict.ts'
import { utf8 } from '../../base/bytes.ts'
import { checkValue } from '../../contract/check.ts'
import { SecretFacts } from '../../contract/vm/orders/secret-facts.ts'

/** Throws Malformed for a secret in another form, as of a later release. */
export function statedSecrets({ secrets }: Pick<StatementOf<'claim'>, 'secrets'>): readonly SecretFacts[] {
  return (secrets ?? []).map(text => {
    const result = checkValue(SecretFacts, parsedJson('secret', utf8(text)))
    wellFormed(result.ok, `secret: ${result.ok ? '' : result.problem}`)
    return result.value
  })
}

/** No check without secrets. A secret that cannot be read fails. */
export function secretChecks(statement: StatementOf<'claim'> | null): Check[] {
  const stated = parsed(() => (statement === null ? [] : statedSecrets(statement)))
  if (!stated.ok) return [fail('secrets', stated.reason)]
  const names = stated.value.map(({ name, host }) => `${name} for ${host}`)
  return names.length === 0 ? [] : [pass('secrets', `${names.length}, not readable by the agent: ${names.join(', ')}`)]
}
