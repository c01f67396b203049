// The pins that a relying party must set for a good verdict: without them any rented confidential VM would pass. Pure.
//
// Pins are waived individually, and the verdict repeats each waiver. A waiver never loosens the policy: values in it
// are still compared.

import { FLOOR_PARTS, type FloorPart, type FloorWaivers, floorsCompiledOn } from '../attest/policy/floors.ts'
import { digestsOf } from '../attest/policy/id-keys.ts'
import type { Policy } from '../attest/policy/policy.ts'
import { type Check, fail, notChecked, pass } from '../attest/verdict.ts'
import { toHex } from '../base/bytes.ts'
import type { ExpectedAllowlist } from './allowlist.ts'

/** Pins of a gateway, in display order. */
export const PINS = ['measurement', 'allowlist', 'vmpl', 'crl', 'tcb'] as const

/** All pins, each once. */
export const EVERY_PIN = ['measurement', 'allowlist', 'operator-key', 'gateway', 'vmpl', 'crl', 'tcb'] as const

export type Pin = (typeof EVERY_PIN)[number]

/**
 * Only 'any' waives a pin; any other value, including undefined, means 'required'. Parts of the floors (`tcb`) can be
 * waived by name, each with its reason: `{ microcode: 'the host is updated in December' }`.
 */
export type Pins = Pinning<(typeof PINS)[number]>

export type Pinning<Name extends Pin> = {
  readonly [One in Name]: One extends 'tcb' ? 'required' | 'any' | FloorWaivers : 'required' | 'any'
}

/** Longest reason of a waiver. */
const waiverCharsMax = 200

/** Explains why waivers are invalid; null if they are valid. Verdicts contain the reasons, so each must be one line. */
export function waiversProblem(given: Readonly<Record<string, unknown>>): string | null {
  const entries = Object.entries(given)
  if (entries.length === 0) return 'it names no part'
  for (const [part, reason] of entries) {
    if (!FLOOR_PARTS.some(name => name === part)) {
      return `there is no part ${JSON.stringify(part.slice(0, 32))} of the floors; there are ${FLOOR_PARTS.join(', ')}`
    }
    const isReason = typeof reason === 'string' && reason.length <= waiverCharsMax && /^\P{C}*\S\P{C}*$/u.test(reason)
    if (!isReason) return `${part}: say why in one line of at most ${waiverCharsMax} characters`
  }
  return null
}

/** Adds the waiver `part=reason` of a command line to earlier ones. Returns why if it is invalid. */
export function readWaiver(text: string, before: FloorWaivers = {}): FloorWaivers | string {
  const [, part = '', reason = ''] = /^([^=]*)=(.*)$/s.exec(text) ?? []
  if (part === '') return 'it is not part=reason'
  if (Object.hasOwn(before, part)) return `${part} is waived twice`
  return waiversProblem({ [part]: reason }) ?? { ...before, [part]: reason }
}

/** Returns the waived parts of the floors; none if all are required. Invalid waivers waive nothing. */
export function floorWaivers(tcb: unknown): FloorWaivers {
  if (typeof tcb !== 'object' || tcb === null) return {}
  const given = tcb as Readonly<Record<string, unknown>>
  return waiversProblem(given) === null ? (given as FloorWaivers) : {}
}

/** Pins of a report alone, which has no allowlist. */
export const REPORT_PINS: readonly Pin[] = PINS.filter(pin => pin !== 'allowlist')
export type ReportPins = Omit<Pins, 'allowlist'>

export const allPins: Pins = {
  measurement: 'required',
  allowlist: 'required',
  vmpl: 'required',
  crl: 'required',
  tcb: 'required',
}

/** Texts about a pin: that any value was accepted, or that it is missing and where to set it. */
export const PIN_WORDS: Readonly<Record<Pin, { readonly accepted: string; readonly missing: string }>> = {
  measurement: {
    accepted: 'accepted any measurement',
    missing: 'no measurement is expected: name yours in a --policy',
  },
  allowlist: {
    accepted: 'accepted any allowlist and any operator key',
    missing: 'no allowlist and no operator key is expected: name --allowlist, or a key or HOST_DATA in the --policy',
  },
  'operator-key': {
    accepted: 'accepted any operator key',
    missing: 'no operator key is expected: name it as idKeyDigest in a --policy',
  },
  gateway: {
    accepted: 'accepted any gateway in a measured VM, of any operator',
    missing:
      'no gateway is expected: name its measurements and operator key in a --gateway-policy (as for `verify gateway`)',
  },
  vmpl: { accepted: 'accepted any VMPL', missing: 'the --policy accepts every VMPL: name [0] in it' },
  crl: { accepted: 'accepted evidence without a revocation list', missing: 'no revocation list is required' },
  tcb: {
    accepted: "accepted firmware below AMD's fixes, and memory aliases",
    missing: 'no floor for the TCB is required',
  },
}

export function pinCheckName(pin: Pin): string {
  return `pin-${pin}`
}

export type Pinned = {
  readonly policy: Policy
  readonly allowlist: ExpectedAllowlist | 'any'
  /** Source of the measurements if not the policy: `the IGVM file`, for example. */
  readonly source?: string | undefined
  /** Whether there is a workload.json, which contains more than an allowlist, but alone does not identify its owner. */
  readonly hasWorkload?: boolean
  /** Number of accepted workload.json, by digest; 0 if none is given. */
  readonly workloadCount?: number
  /** The expected gateway of an instance's claim; null if there is none. */
  readonly gateway?: string | null
  /** Why its gateway is unattested, if the caller accepts that reason by name. */
  readonly unattested?: string | null
}

/** Returns one check for each pin in `asked`. */
export function pinChecks(
  asked: readonly Pin[],
  pins: Partial<Record<Pin, 'required' | 'any' | FloorWaivers>>,
  pinned: Pinned,
): Check[] {
  return asked.map(pin => {
    const name = pinCheckName(pin)
    const waived = pin === 'tcb' ? (Object.entries(floorWaivers(pins.tcb)) as [FloorPart, string][]) : []
    if (waived.length > 0) {
      const words = waived.map(([part, reason]) => `${part} (${reason})`).join(', ')
      return notChecked(name, `accepted firmware below AMD's fixes in ${words}; the other floors are required`, false)
    }
    const isWaived = pins[pin] === 'any'
    const { unattested = null } = pinned
    if (pin === 'gateway' && unattested !== null) return notChecked(name, unattestedWords(unattested), false)
    const what = PINNED[pin](pinned, isWaived)
    if (what !== null) return pass(name, what)
    const { accepted, missing } = PIN_WORDS[pin]
    return isWaived
      ? notChecked(name, `${accepted}: the caller said 'any'`, false)
      : fail(name, `${missing}, or say 'any'`)
  })
}

function unattestedWords(reason: string): string {
  return `accepted a gateway that nothing attests (${reason}), by that name`
}

/** The pinned value; null if nothing is pinned. Revocation lists and floors have their own checks, unless waived. */
const PINNED: Readonly<Record<Pin, (pinned: Pinned, isWaived: boolean) => string | null>> = {
  measurement: ({ policy: { measurements }, source }) => {
    if (measurements === 'any') return source === undefined ? null : `those of ${source}`
    return measurements.length === 1
      ? '1 measurement, named in the policy'
      : `${measurements.length} measurements, named in the policy`
  },
  allowlist: ({ allowlist, policy, hasWorkload = false, workloadCount = 0 }) => {
    const { hostData } = policy
    if (workloadCount > 0) return `one of ${workloadCount} workload.json, by HOST_DATA`
    if (allowlist !== 'any' && !hasWorkload) return `allowlist ${toHex(allowlist.digest)}`
    if (isNamed(hostData)) return `${hasWorkload ? 'workload.json' : 'allowlist'} ${toHex(hostData)}, by HOST_DATA`
    return keyPinned(policy)
  },
  'operator-key': ({ policy }) => keyPinned(policy),
  gateway: ({ gateway = null }) => gateway,
  vmpl: ({ policy: { vmpls } }) => {
    if (vmpls === 'any' || new Set(vmpls).size >= vmplCount) return null
    return `VMPL ${vmpls.join(' or ')}`
  },
  crl: (_, isWaived) => (isWaived ? null : 'a revocation list is required'),
  tcb: (_, isWaived) => (isWaived ? null : `the floors of ${floorsCompiledOn} are required`),
}

const vmplCount = 4

function keyPinned({ idKeyDigest, authorKeyDigest }: Policy): string | null {
  return keyWords('operator key', idKeyDigest) ?? keyWords('author key', authorKeyDigest)
}

/** Describes the keys in a policy's field; null if it does not pin every one of them. */
export function keyWords(what: string, field: Policy['idKeyDigest']): string | null {
  if (field === 'any') return null
  const digests = digestsOf(field)
  if (!digests.every(isNamed)) return null
  const [first, ...more] = digests
  return first !== undefined && more.length === 0 ? `${what} ${toHex(first)}` : `one of ${digests.length} ${what}s`
}

/** A guest launched without an ID block, or without HOST_DATA, reports zeros, as any guest can. */
function isNamed(digest: Uint8Array | 'any'): digest is Uint8Array {
  return digest !== 'any' && digest.some(byte => byte !== 0)
}
