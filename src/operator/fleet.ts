// The fleet in the admin interface: its hosts; draining, removing and forgetting them; the signed list of its chips, or
// of this host's. Effects: the directory's; an entry of the transparency log.

import { Elysia } from 'elysia'
import { sha256 } from '../attest/hash.ts'
import { signChipList } from '../attest/policy/chip-list.ts'
import { fromHex, toHex, utf8 } from '../base/bytes.ts'
import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { AdminChips, AdminChipsAsk, FleetHost, FleetHosts } from '../contract/admin/fleet.ts'
import { AdminPublishPolicy } from '../contract/admin/log.ts'
import type { FleetAdmin } from '../fleet/hosts/fleet-admin.ts'
import type { TransparencyLog } from '../transparency/log.ts'

export function fleetRoutes({ fleet }: { readonly fleet: FleetAdmin }) {
  const response = { response: FleetHost }
  return new Elysia({ normalize: false })
    .get('/fleet/hosts', async () => ({ hosts: await fleet.list() }), { response: FleetHosts })
    .get('/fleet/hosts/:name', ({ params: { name } }) => fleet.show(name), response)
    .post('/fleet/hosts/:name/drain', ({ params: { name } }) => fleet.drain(name), response)
    .post('/fleet/hosts/:name/undrain', ({ params: { name } }) => fleet.undrain(name), response)
    .post('/fleet/hosts/:name/remove', ({ params: { name } }) => fleet.remove(name), response)
    .post('/fleet/hosts/:name/forget', ({ params: { name } }) => fleet.forget(name), response)
}

export type OperatorChips = {
  /** Chips of this host's verified reports, in hexadecimal: none before the first (host/chip-id.ts). */
  readonly own: () => readonly string[]
  /** Leaves this one of them. */
  readonly name: (chip: string) => void
  /** The operator key, and its digest: ID_KEY_DIGEST, in hexadecimal. */
  readonly keys: CryptoKeyPair
  readonly digest: string
  /** Whether the list has the chips of a fleet. */
  readonly isInFleet: boolean
}

type ChipDeps = {
  readonly chips: OperatorChips
  readonly fleet: Pick<FleetAdmin, 'list'>
  readonly transparency: { readonly log: Pick<TransparencyLog, 'append'> }
  readonly clock: Pick<Clock, 'nowMs'>
}

export function chipRoutes(
  deps: ChipDeps,
  readBody: (context: { readonly request: Request; readonly route: string }) => Promise<unknown>,
) {
  return new Elysia({ normalize: false })
    .post('/chips/export', ({ body }) => exportChips(deps, body), {
      parse: readBody,
      body: AdminChipsAsk,
      response: AdminChips,
    })
    .post(
      '/chips/publish',
      ({ body }) => {
        deps.transparency.log.append({ kind: 'chip-list', sha256: body.sha256 })
        return body
      },
      { parse: readBody, body: AdminPublishPolicy, response: AdminPublishPolicy },
    )
}

/**
 * Signs the list and logs it. Throws Fault conflict if no host has made a report yet, this host's chip is ambiguous, or
 * a chip is not among the known ones, and Faults of fleet and log.
 */
export async function exportChips(
  { chips, fleet, transparency, clock }: ChipDeps,
  { add, known }: AdminChipsAsk,
): Promise<AdminChips> {
  const own = { host: 'this host', chip_id: ownChip(chips, add) }
  const hosts = chips.isInFleet ? await fleetChips(fleet, own.chip_id, chips.digest) : [own]
  const chipIds = hosts.flatMap(({ chip_id: chipId }) => fromHex(chipId ?? '') ?? []).filter(({ length }) => length > 0)
  if (chipIds.length === 0) {
    throw new Fault('conflict', 'no host has made a report yet, so no chip is known; launch a VM, then export again')
  }
  const unknown = known === undefined ? [] : hosts.filter(({ chip_id: id }) => id !== null && !known.includes(id))
  if (unknown.length > 0) {
    const named = unknown.map(({ host, chip_id: chipId }) => `${host}: ${chipId}`).join(', ')
    throw new Fault(
      'conflict',
      `not in the previous list: ${named}; compare chip_id of a report of that host, then name each: --add CHIP`,
    )
  }
  const list = await signChipList({ chipIds, issuedAtMs: clock.nowMs() }, chips.keys)
  const digest = toHex(sha256(utf8(list)))
  // In the log before anyone has it.
  transparency.log.append({ kind: 'chip-list', sha256: digest })
  return { list, sha256: digest, hosts: [...hosts] }
}

/** Returns the chip of this host, which the operator has to name where its reports had several. */
function ownChip({ own, name }: OperatorChips, add: readonly string[]): string | null {
  const reported = own()
  if (reported.length <= 1) return reported[0] ?? null
  const [named, ...others] = reported.filter(chip => add.includes(chip))
  if (named === undefined || others.length > 0) {
    throw new Fault(
      'conflict',
      `reports of this host are of several chips: ${reported.join(', ')}; if its board was replaced, name the present chip: --add CHIP. If not, a VM may show you a chip of someone else: compare chip_id of a report that you make yourself`,
    )
  }
  name(named)
  return named
}

/** Returns the hosts that are not given up; without the chip of those that state another operator key. */
async function fleetChips(
  fleet: Pick<FleetAdmin, 'list'>,
  own: string | null,
  digest: string,
): Promise<AdminChips['hosts']> {
  const hosts = (await fleet.list()).filter(({ state }) => state !== 'lost')
  return hosts.map(({ name, is_this_host: isOwn, chip_id: chipId, operator_key: key }) => ({
    host: name,
    chip_id: isOwn ? own : key === digest ? chipIdIn(chipId ?? '') : null,
  }))
}

/** Null for text that is no CHIP_ID, or a masked one. Hosts of other releases write it. */
function chipIdIn(text: string): string | null {
  return /^(?!0+$)[0-9a-f]{128}$/.test(text) ? text : null
}
