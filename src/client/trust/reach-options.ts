// Options for what the programs of an instance may reach. Effects: reads the policy's file.

import { InvalidArgumentError } from 'commander'
import { parsed } from '../../attest/malformed.ts'
import {
  type EgressPolicy,
  type EgressRule,
  egressPolicyBytesMax,
  egressPolicyProblem,
} from '../../contract/http/egress-policy.ts'
import { InputFault } from '../../terminal/exit.ts'
import { readInput } from '../../terminal/input-file.ts'
import { readEgressPolicy } from '../../verifier/reach/reach.ts'

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
  throw new InputFault(`${path}: ${read.reason}`, {
    param: 'egress-policy',
    remedy: 'name a file as `strongroom egress show NAME --json` prints it',
  })
}
