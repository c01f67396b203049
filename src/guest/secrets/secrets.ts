// Orders of the owner that put and remove secrets. Effects: the state of the broker, which has the values, and the
// environment of new sessions, which has placeholders.

import { canonicalJson } from '../../base/canonical-json.ts'
import { checkValue } from '../../contract/check.ts'
import { Secret, SecretName, secretProblem } from '../../contract/vm/orders/secret.ts'
import { factsOf, type SecretFacts } from '../../contract/vm/orders/secret-facts.ts'
import { type Owner, writeFileAtomic } from '../../linux/files.ts'
import type { ClaimRecord } from '../claim-record.ts'
import type { OrderHandlers, OrderOutcome } from '../orders/orders.ts'
import type { GuestPaths } from '../paths.ts'
import type { Reach } from '../reach/reach.ts'
import { sessionText } from './session.plan.ts'

export type SecretsDeps = {
  readonly paths: Pick<GuestPaths, 'authorityFile' | 'rootsFile' | 'sessionSecrets'>
  readonly owner: Owner
  readonly reach: Pick<Reach, 'change' | 'state'>
  readonly claim: () => ClaimRecord | null
}

/** The broker starts with the first secret. */
const brokerWaitMs = 60_000

export function createSecretHandlers(deps: SecretsDeps): Pick<OrderHandlers, 'secret_put' | 'secret_remove'> {
  const { paths, owner, reach, claim } = deps
  const inForce = () => reach.state()?.secrets ?? []

  const change = async (secrets: readonly Secret[]): Promise<OrderOutcome> => {
    const record = claim()
    if (record === null) return { ok: false, message: 'this VM has no claim yet: wait until the instance is ready' }
    const changed = await reach.change({ secrets }, record.document.claim, brokerWaitMs)
    // From the state, which a late broker leaves changed.
    const names = inForce().map(({ name }) => name)
    writeFileAtomic(paths.sessionSecrets, sessionText(names, paths), { mode: 0o644, owner })
    if (!changed.ok) return { ok: false, message: changed.message }
    return { ok: true, result: { secrets: secrets.map(factsOf) } }
  }

  return {
    secret_put: async body => {
      const read = checkValue(Secret, body)
      if (!read.ok) return { ok: false, message: read.problem }
      const problem = secretProblem(read.value, inForce())
      if (problem !== null) return { ok: false, message: problem }
      const others = inForce().filter(({ name }) => name !== read.value.name)
      return await change([...others, read.value].toSorted((a, b) => (a.name < b.name ? -1 : 1)))
    },
    secret_remove: async body => {
      const read = checkValue(SecretName, body)
      if (!read.ok) return { ok: false, message: read.problem }
      const others = inForce().filter(({ name }) => name !== read.value.name)
      if (others.length < inForce().length) return await change(others)
      return { ok: false, message: `name: no secret is called ${read.value.name}; \`strongroom secret ls\` lists them` }
    },
  }
}

/** One canonical text for each secret, for the statement; null without any. */
export function statedSecrets(secrets: readonly SecretFacts[]): readonly string[] | null {
  return secrets.length === 0 ? null : secrets.map(secret => canonicalJson(factsOf(secret)))
}
