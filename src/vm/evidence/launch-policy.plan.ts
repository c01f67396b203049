// The policy for a VM's report, from the recorded launch, and the keys that this host trusts. Pure.

import type { TrustedRoot } from '../../attest/amd/roots.ts'
import type { BitRule } from '../../attest/policy/kinds.ts'
import { type Policy, strictPolicy } from '../../attest/policy/policy.ts'
import type { ReceiptVerdict } from '../../attest/receipt/verify.ts'
import { hasBit, POLICY_BITS, type PolicyBit } from '../../attest/report/bits.ts'
import { equalConstantTime, fromHex, utf8 } from '../../base/bytes.ts'
import { checkedJson } from '../../contract/check.ts'
import { LaunchDocument, launchText } from '../../contract/vm/launch.ts'
import { hostDataOf, type LaunchTexts } from '../launch/expected.plan.ts'

/** The keys that this host trusts. */
export type HostTrust = {
  /** AMD's roots on snp; elsewhere only this host's simulated root. */
  readonly roots: readonly TrustedRoot[]
  readonly simulated: boolean
  /** SHA-384 of every ID key that the operator has had on this host: a VM keeps the key that signed its launch. */
  readonly operatorKeys: readonly Uint8Array[]
}

/** Returns each check of a receipt that did not pass, with its reason. */
export function failedChecks(
  { checks, simulated }: Pick<ReceiptVerdict, 'checks' | 'simulated'>,
  trust: HostTrust,
): string[] {
  const failed = checks
    .filter(({ outcome, required }) => outcome === 'fail' || (required && outcome !== 'pass'))
    .map(({ name, reason }) => `${name}: ${reason}`)
  // The roots already determine this. Checked again, because only the root distinguishes hardware from a simulation.
  if (simulated !== trust.simulated) failed.push(`simulated: the evidence is ${simulated ? '' : 'not '}simulated`)
  return failed
}

/** Returns the fault of a key that signed a launch; null if the key is known. */
export function strangeOperatorKey({ operatorKeys }: HostTrust, operatorKey: Uint8Array): string | null {
  const isOurs = operatorKeys.some(key => equalConstantTime(key, operatorKey))
  return isOurs ? null : 'operator-key: the launch was signed with a key that this host has never had'
}

/**
 * Parses a launch document. Accepts exactly the canonical text, because without a workload its digest is HOST_DATA.
 * Throws a Fault that names the first wrong field, or a TypeError.
 */
export function readLaunch(text: string): LaunchDocument {
  const document = checkedJson(LaunchDocument, utf8(text), { what: 'launch document', code: 'internal' })
  if (launchText(document) !== text) throw new TypeError('launch document: not in its canonical form')
  return document
}

/** A launch on record. */
export type RecordedLaunch = LaunchTexts & { readonly operatorKey: Uint8Array }

/**
 * Returns the policy for a launch. Refuses debug and migration regardless of the document; all other bits of the guest
 * policy come from it.
 */
export function launchPolicy({ document, workload, operatorKey }: RecordedLaunch): Policy {
  const { measurement, policy } = readLaunch(document)
  const strict = strictPolicy()
  const wanted = BigInt(policy)
  const bits = Object.entries(POLICY_BITS).map(([name, bit]): [string, BitRule] => {
    if (name === 'debug' || name === 'migrate') return [name, 'forbidden']
    return [name, hasBit(wanted, bit) ? 'required' : 'forbidden']
  })
  return {
    ...strict,
    signers: ['vcek'],
    guestPolicy: { ...(Object.fromEntries(bits) as Record<PolicyBit, BitRule>), unknown: 'forbidden' },
    measurements: [fromHex(measurement) ?? new Uint8Array(0)],
    hostData: hostDataOf({ document, workload }),
    idKeyDigest: operatorKey,
  }
}
