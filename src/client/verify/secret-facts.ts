// The secrets that a verified instance states, for people and for documents. Pure.

import { parsed } from '../../attest/malformed.ts'
import type { SecretFacts } from '../../contract/vm/orders/secret-facts.ts'
import type { InstanceVerdict } from '../../verifier/instance.ts'
import { secretText, statedSecrets } from '../../verifier/ordered/secrets.ts'
import { listed } from '../verdict/host-text.ts'
import type { Fact } from '../verdict/plain.ts'

/** Empty without secrets, and for those that cannot be read, which fail the check `secrets`. */
export function secretsOf({ receipt }: Pick<InstanceVerdict, 'receipt'>): readonly SecretFacts[] {
  const statement = receipt?.statement ?? null
  const stated = parsed(() => (statement === null ? [] : statedSecrets(statement)))
  return stated.ok ? stated.value : []
}

export function secretFacts(found: Pick<InstanceVerdict, 'receipt'>): Fact[] {
  const secrets = secretsOf(found)
  if (secrets.length === 0) return []
  const lines = [`${secrets.length}, not readable by the agent`, ...listed(secrets.map(secretText), 'secrets')]
  return lines.map(text => ['secrets', text] as const)
}
