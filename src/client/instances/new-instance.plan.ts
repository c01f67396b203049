// Whether the expectation of its owner can accept a new instance, and the reach to request for it. Pure.
//
// Each refusal is a Fault invalid_request.

import { type EgressPolicy, egressPolicyText } from '../../contract/http/egress-policy.ts'
import { InputFault } from '../../terminal/exit.ts'
import { reachWords } from '../../verifier/ordered/reach.ts'
import { readSshKey } from '../../verifier/ssh-key.ts'
import type { InstanceExpectation, InstanceOptions } from '../verify/instance.ts'

type ExpectingOptions = Pick<InstanceOptions, 'egressPolicy' | 'secrets' | 'loginKeys'>

/** Returns the policy for the request: that of --reach or the expected one; null for no restriction inside the VM. */
export function requestedEgress(
  reach: EgressPolicy | null,
  { egressPolicy: expected = 'any' }: Pick<InstanceExpectation, 'egressPolicy'>,
  given: ExpectingOptions,
): EgressPolicy | null {
  if (expected === 'any') return reach
  if (reach === null) return expected.default === 'allow' ? null : expected
  if (egressPolicyText(reach) === egressPolicyText(expected)) return reach
  const { field } = placeOf('egress', 'egress-policy', given.egressPolicy)
  throw new InputFault(`--reach names ${reachWords(reach)}, and ${field} ${reachWords(expected)}`, {
    param: 'reach',
    remedy: `leave out --reach, which takes ${field}, or name the same destinations in both`,
  })
}

/** Refuses secrets, ports and keys that no new instance has: it would be billed, and every verdict would fail. */
export function refuseUnacceptable(
  { secrets = 'any', published = 'any', loginKeys }: Pick<InstanceExpectation, 'secrets' | 'published' | 'loginKeys'>,
  given: ExpectingOptions,
  { name, publicKey }: { readonly name: string; readonly publicKey: string },
): void {
  if (secrets !== 'any' && secrets.length > 0) {
    const { field, param } = placeOf('secrets', 'secrets', given.secrets)
    const names = secrets.map(secret => secret.name).join(', ')
    throw new InputFault(`${field} has ${names}, and a new instance has no secrets`, {
      param,
      remedy: `run \`strongroom up ${name}\` without ${field}, then \`strongroom secret put ${name}\`, then this again`,
    })
  }
  if (published !== 'any' && published.length > 0) {
    throw new InputFault('published of the policy has ports, and a new instance has none', {
      param: 'policy',
      remedy: `run \`strongroom up ${name}\` without them, then \`strongroom publish ${name}\`, then this again`,
    })
  }
  const { fingerprint } = readSshKey(publicKey)
  if (loginKeys === undefined || loginKeys.some(line => readSshKey(line).fingerprint === fingerprint)) return
  const { field, param } = placeOf('loginKeys', 'login-keys', given.loginKeys)
  throw new InputFault(`${field} lacks ${fingerprint}, the only key that logs in to the new instance`, {
    param,
    remedy: `add this key to ${field}, or name another key of yours by --public-key`,
  })
}

/** `ofOption`: undefined if the policy file has the field. */
function placeOf(field: string, option: string, ofOption: string | undefined) {
  const isFile = ofOption === undefined
  return { field: isFile ? `policy.${field}` : `--${option}`, param: isFile ? 'policy' : option }
}
