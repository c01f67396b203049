// The operator's signed list of chips that a policy file names, as `"chipIds": { "list": "chips.json", "maxAgeDays": 90
// }`. Effects: reads the list. Fault invalid_request.

import { dirname, resolve } from 'node:path'
import { chipListBytesMax, readChipList } from '../../attest/policy/chip-list.ts'
import { digestsOf } from '../../attest/policy/id-keys.ts'
import { integer, object, orAny, text } from '../../attest/policy/kinds.ts'
import type { Policy } from '../../attest/policy/policy.ts'
import { policySchema } from '../../attest/policy/schema.ts'
import { type Check, fail, pass } from '../../attest/verdict.ts'
import { toHex } from '../../base/bytes.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { dayMs } from '../../base/time.ts'
import { InputFault } from '../../terminal/exit.ts'
import { readInput, readingInput } from '../../terminal/input-file.ts'

const reference = object({
  /** Path of the list, relative to the policy file. */
  list: text('[^\\p{C}]{1,1024}', 'a path like "chips.json"'),
  /** Most days since the operator signed it. */
  maxAgeDays: orAny(integer(3650)),
})

/** A list that a policy names. */
export type ChipListReference = ReturnType<typeof reference.parse>

/** Chips of a policy, with the list that named them. */
type ListedChips = readonly Uint8Array[] & { readonly list: ListFacts }
type ListFacts = {
  readonly path: string
  readonly bytes: Uint8Array
  readonly count: number
  readonly signer: Uint8Array
  readonly issuedAtMs: number
  /** When maxAgeDays is over; Infinity without it. */
  readonly endsAtMs: number
}

/** Separates the list from a policy file, which then has 'any' chip. Throws Malformed. */
export function splitChipList(policy: unknown): { readonly policy: unknown; readonly chips: ChipListReference | null } {
  const chipIds: unknown = Reflect.get(Object(policy), 'chipIds')
  if (typeof chipIds !== 'object' || chipIds === null || Array.isArray(chipIds)) return { policy, chips: null }
  return { policy: { ...Object(policy), chipIds: 'any' }, chips: reference.parse(chipIds, 'policy.chipIds') }
}

const { properties, ...schema } = policySchema

/** The schema of policy files on the command line: that of policies, with the list. */
export const policyFileSchema = {
  ...schema,
  properties: { ...Object(properties), chipIds: { anyOf: [Object(properties).chipIds, reference.schema] } },
}

/** Clocks of the operator may be ahead of the caller's. */
const aheadMsMax = 300_000

/**
 * Returns the policy with the chips of its list, and with its signer as the only operator key. `file`: of the policy,
 * for messages. Fault invalid_request if the policy names no operator key, another key signed the list, or it is too
 * old at `asOf`.
 */
export async function withChipList(
  policy: Policy,
  { list, maxAgeDays }: ChipListReference,
  { file, asOf = systemClock.nowMs() }: { readonly file: string; readonly asOf: number | undefined },
): Promise<Policy> {
  const path = resolve(dirname(file), list)
  const source = `--policy ${file}: chipIds: ${list}`
  const refused = (message: string, remedy: string) =>
    new InputFault(`${source}: ${message}`, { param: 'policy', remedy })
  if (policy.idKeyDigest === 'any')
    throw refused('no operator key is named that must have signed it', 'name it: idKeyDigest, --id-key-digest')
  const bytes = readInput({ path, param: 'policy', bytesMax: chipListBytesMax })
  const signers = digestsOf(policy.idKeyDigest)
  const { chipIds, issuedAtMs, signer } = await readingInput(source, () => readChipList(bytes, signers))
  const newOne = 'get a new list from the operator, who makes it with `strongroom chips export`'
  if (issuedAtMs > asOf + aheadMsMax) throw refused(`signed ${iso(issuedAtMs)}, which is still to come`, newOne)
  const endsAtMs = maxAgeDays === 'any' ? Number.POSITIVE_INFINITY : issuedAtMs + maxAgeDays * dayMs
  if (asOf > endsAtMs)
    throw refused(`signed ${iso(issuedAtMs)}, more than the ${maxAgeDays} days of maxAgeDays ago`, newOne)
  const facts: ListFacts = { path, bytes, count: chipIds.length, signer, issuedAtMs, endsAtMs }
  const listed: ListedChips = Object.assign([...chipIds], { list: facts })
  // One key vouches for its own VMs alone, not for those of another key that the policy names.
  return { ...policy, idKeyDigest: signer, chipIds: listed }
}

/** Returns the list that named the policy's chips; null if none did. */
export function chipListOf({ chipIds }: Pick<Policy, 'chipIds'>): ListFacts | null {
  return chipIds === 'any' || !('list' in chipIds) ? null : (chipIds as ListedChips).list
}

/**
 * Returns the check that names the list and its age; none without a list. `logged`: position of the list in the log, or
 * the reason why the log does not have it; null if no log is used.
 */
export function chipListChecks(
  policy: Pick<Policy, 'chipIds'>,
  asOf: number,
  logged: { readonly ok: boolean; readonly words: string } | null = null,
): readonly Check[] {
  const list = chipListOf(policy)
  if (list === null) return []
  const name = 'chip-list'
  const days = Math.max(0, Math.floor((asOf - list.issuedAtMs) / dayMs))
  const what = `${list.path}, ${list.count === 1 ? '1 chip' : `${list.count} chips`}`
  const words = `${what}, signed by the operator key ${toHex(list.signer).slice(0, 16)}… ${days} days ago (${iso(list.issuedAtMs)})`
  if (logged === null) return [pass(name, `${words}; not compared with a transparency log`)]
  return [logged.ok ? pass(name, `${words}; ${logged.words}`) : fail(name, `${words}: ${logged.words}`)]
}
