// Options for what the programs of an instance may reach, and for its secrets. Effects: reads the files.

import { InvalidArgumentError } from 'commander'
import { parsedJson } from '../../attest/encoding/json.ts'
import { parsed } from '../../attest/malformed.ts'
import { Closed } from '../../contract/forms.ts'
import {
  type EgressPolicy,
  type EgressRule,
  egressPolicyBytesMax,
  egressPolicyProblem,
} from '../../contract/http/egress-policy.ts'
import { Type } from '../../contract/type.ts'
import type { SecretFacts } from '../../contract/vm/orders/secret-facts.ts'
import { InputFault } from '../../terminal/exit.ts'
import { KIB, readInput } from '../../terminal/input-file.ts'
import { ofForm } from '../../verifier/form.ts'
import { readEgressPolicy } from '../../verifier/ordered/reach.ts'
import { SecretList } from './stated-fields.ts'

const portDefault = 443

/** Collects HOST or HOST:PORT, with names in any case. Throws commander's InvalidArgumentError. */
export function reachOption(text: string, before: readonly EgressRule[] = []): readonly EgressRule[] {
  const [, host = '', port = String(portDefault)] = /^([^:]+)(?::([0-9]{1,5}))?$/.exec(text.toLowerCase()) ?? []
  const rule = { host: host.replace(/\.$/, ''), port: Number(port) }
  const problem = egressPolicyProblem({ default: 'refuse', allow: [rule] })
  if (problem === null && rule.port >= 1 && rule.port <= 65_535) return [...before, rule]
  throw new InvalidArgumentError(
    'It must be HOST or HOST:PORT: a DNS name like github.com, or *.github.com for all below it.',
  )
}

/** Returns the policy. Fault invalid_request for too many rules or ports. */
export function policyOf(otherwise: EgressPolicy['default'], allow: readonly EgressRule[]): EgressPolicy {
  const policy: EgressPolicy = { default: otherwise, allow: [...allow] }
  const read = parsed(() => readEgressPolicy(new TextEncoder().encode(JSON.stringify(policy))))
  if (!read.ok) throw new InputFault(read.reason, { param: 'reach', remedy: 'name fewer destinations' })
  return policy
}

/** Reads the expected policy; 'any' without a file. Fault invalid_request. */
export function egressPolicyIn(path: string | undefined): EgressPolicy | 'any' {
  if (path === undefined) return 'any'
  const read = parsed(() =>
    readEgressPolicy(readInput({ path, param: 'egress-policy', bytesMax: egressPolicyBytesMax })),
  )
  if (read.ok) return read.value
  throw new InputFault(`--egress-policy ${path}: ${read.reason}`, {
    param: 'egress-policy',
    remedy: 'name a file as `strongroom egress show NAME --json` prints it',
  })
}

/** Secrets as `strongroom secret ls --json` prints them; the host name counts for nothing. */
const SecretsFile = Closed({
  hostname: Type.Optional(Type.String({ maxLength: 253 })),
  secrets: SecretList,
})
const secretsBytesMax = 64 * KIB

/** Reads the expected secrets; 'any' without a file. Fault invalid_request. */
export function secretsIn(path: string | undefined): readonly SecretFacts[] | 'any' {
  if (path === undefined) return 'any'
  const bytes = readInput({ path, param: 'secrets', bytesMax: secretsBytesMax })
  const read = parsed(() => ofForm('secrets', SecretsFile, parsedJson('secrets', bytes)).secrets)
  if (read.ok) return read.value
  throw new InputFault(`--secrets ${path}: ${read.reason}`, {
    param: 'secrets',
    remedy: 'name a file as `strongroom secret ls NAME --json` prints it',
  })
}
