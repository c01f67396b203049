// Options of `strongroom verify` that say what a tenant has told this page to expect. Pure.

import type { CommandOptions } from '../../core/command.ts'
import { type EvidenceKind, type Expected, outsideOf } from './expected.ts'

type Options = CommandOptions

/** Files are named as the page would save them. */
export function verifyOptions(expected: Expected, kind: EvidenceKind): Options {
  const { policy, waived, simulatedRoot, unattested } = expected
  const outside = outsideOf(expected)
  const isBuild = kind === 'build'
  return {
    policy: policy[kind].trim() === '' ? null : 'policy.json',
    ...(kind === 'instance' && policy.gateway.trim() !== '' ? { 'gateway-policy': 'gateway.json' } : {}),
    ...(kind === 'instance' && unattested !== 'none' ? { 'unattested-gateway': unattested } : {}),
    ...(isBuild || outside.length === 0 ? {} : { 'allow-outside': outside }),
    ...Object.fromEntries(waived[kind].map(pin => [`any-${pin}`, true])),
    'trust-simulated-root': simulatedRoot.trim() === '' ? null : 'root.pem',
  }
}
