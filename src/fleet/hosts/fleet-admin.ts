// The operator's commands for a fleet: list, show, drain, remove, forget. Run by the daemon, or by the command line if
// no daemon runs. Effects: statements to PostgreSQL.

import { toHex } from '../../base/bytes.ts'
import { type Clock, iso, isoOrNull } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { resultOr } from '../../base/result-or.ts'
import type { HostActionList } from '../../contract/admin/events.ts'
import type { FleetHost, FleetHostState } from '../../contract/admin/fleet.ts'
import { spkiDigestOf } from '../../linux/keys/spki.ts'
import { heldOverHosts } from '../budgets/held-over-hosts.query.ts'
import type { Amounts } from '../budgets/statements.ts'
import { reasonOf } from '../failures.ts'
import type { PeerReach } from '../peers/watch.ts'
import type { NumberedTransaction, Postgres } from '../postgres.ts'
import { type ActionsQuery, listActions } from './actions.query.ts'
import { endAllOf, endBuildsOf } from './give-up.ts'
import { forgetHost, type HostState, hostNamed, listHosts, removeHost, setDraining, takeRights } from './hosts.query.ts'

export type FleetAdmin = {
  readonly list: () => Promise<FleetHost[]>
  readonly show: (name: string) => Promise<FleetHost>
  /** Makes a host take no new instances. Existing ones continue. */
  readonly drain: (name: string) => Promise<FleetHost>
  readonly undrain: (name: string) => Promise<FleetHost>
  /** Removes a drained host that holds nothing. Like `forget`, requires the role that owns the schema. */
  readonly remove: (name: string) => Promise<FleetHost>
  /** Forgets a host that will not return: its instances fail. */
  readonly forget: (name: string) => Promise<FleetHost>
  /**
   * Returns actions of hosts that affect the whole fleet, or a problem if the directory is unreachable. Empty for a
   * host without a fleet. Never rejects.
   */
  readonly actions: (asked: ActionsQuery) => Promise<{ readonly fleet?: HostActionList }>
  /** Returns the budget blocks that hosts hold in a month (as 2026-11). Never rejects. */
  readonly held: (of: HeldBudgetsQuery) => Promise<HeldBudgets>
}

/** If `organizationId` is null, the budgets of all organizations; otherwise those of one organization and its keys. */
export type HeldBudgetsQuery = { readonly month: string; readonly organizationId: string | null }
/**
 * Returns the amounts held of an organization's budget, or a key's. Null if the directory is unreachable, undefined on
 * a host without a fleet.
 */
export type HeldBudgets = (organizationId: string, keyPrefix?: string) => Amounts | null | undefined

export type FleetAdminDeps = {
  readonly postgres: Pick<Postgres, 'query' | 'transact' | 'transactPlain' | 'view'>
  /** This host's id; null if it has no records yet. */
  readonly hostId: string | null
  readonly clock: Pick<Clock, 'nowMs'>
  /** Other hosts with this host's last contact. Absent if there was no attempt. */
  readonly reached?: () => readonly PeerReach[]
}

/** Creates the commands. Faults: `not_found`, `conflict`, `fleet.forbidden`, `fleet.unavailable`. */
export function createFleetAdmin({ postgres, hostId, clock, reached = () => [] }: FleetAdminDeps): FleetAdmin {
  const shown = (host: HostState) =>
    hostDocument(
      host,
      hostId,
      reached().find(reach => reach.hostId === host.id),
    )
  const drain = (name: string, sinceMs: number | null) =>
    postgres.transact(async tx => {
      await setDraining(tx, name, sinceMs)
      return shown(await hostNamed(tx, name))
    })
  const takeOut = async (name: string, take: (tx: NumberedTransaction) => Promise<unknown>) => {
    const host = await postgres.transact(async tx => {
      const found = await hostNamed(tx, name)
      await take(tx)
      return found
    })
    await takeRights(postgres, host.role)
    return shown(host)
  }
  return {
    list: async () => (await listHosts(postgres)).map(shown),
    show: async name => shown(await hostNamed(postgres, name)),
    drain: name => drain(name, clock.nowMs()),
    undrain: name => drain(name, null),
    remove: name => takeOut(name, tx => removeHost(tx, name, endBuildsOf)),
    forget: name => takeOut(name, tx => forgetHost(tx, name, endAllOf)),
    actions: async asked => {
      try {
        return { fleet: { actions: await listActions(postgres, asked), problem: null } }
      } catch (error) {
        const problem = `the directory of the fleet was not asked: ${reasonOf(error)}`
        return { fleet: { actions: [], problem } }
      }
    },
    held: async asked => {
      // Other tasks query the database every two seconds, and so detect that it is back.
      if (!postgres.view().isReachable) return () => null
      const rows = await heldOverHosts(postgres, asked).catch(() => null)
      if (rows === null) return () => null
      const byName = new Map(rows.map(row => [`${row.organizationId} ${row.keyPrefix}`, row]))
      return (organizationId, keyPrefix = '') => byName.get(`${organizationId} ${keyPrefix}`) ?? NOTHING_HELD
    },
  }
}

const refuse = () =>
  Promise.reject(new Fault('not_found', 'this host is in no fleet: its configuration has no fleet.database'))

export const NO_FLEET_ADMIN: FleetAdmin = {
  ...{ list: refuse, show: refuse, drain: refuse, undrain: refuse, remove: refuse, forget: refuse },
  actions: async () => ({}),
  held: async () => () => undefined,
}

const NOTHING_HELD: Amounts = { nanoUsd: 0, tokens: 0 }

export function hostDocument(host: HostState, ownId: string | null, reach?: PeerReach): FleetHost {
  const { report, renewedAt } = host
  const text = (name: string) => (typeof report?.[name] === 'string' ? report[name] : null)
  const number = (name: string) => (Number.isSafeInteger(report?.[name]) ? Number(report?.[name]) : null)
  const sentMs = number('now_ms')
  return {
    id: host.id,
    name: host.name,
    state: stateOf(host),
    is_this_host: host.id === ownId,
    role: host.role,
    joined_at: iso(host.joinedMs),
    draining_since: isoOrNull(host.drainingMs),
    last_seen_at: isoOrNull(renewedAt?.getTime() ?? null),
    platform: host.platform,
    places_free: Math.max(0, host.places - host.takenCount),
    instances: host.livingCount,
    version: text('version'),
    schema: number('schema'),
    clock_ahead_ms: sentMs === null || renewedAt === null ? null : sentMs - renewedAt.getTime(),
    warm: number('warm'),
    memory_mib_used: number('memory_mib_used'),
    memory_mib_total: number('memory_mib_total'),
    vcpus_used: number('vcpus_used'),
    vcpus_total: number('vcpus_total'),
    lacking: text('lacking'),
    image: text('image'),
    operator_key: text('operator_key'),
    chip_id: text('chip_id'),
    domain: text('domain'),
    peer_address: host.peerAddress,
    peer_key: keyOf(host.peerCertificate),
    is_reached: reach?.isReached ?? null,
    peer_problem: reach?.problem ?? null,
  }
}

/** Returns the key's digest. Null also if the text is not a certificate, because hosts of other releases publish it. */
function keyOf(certificate: string | null): string | null {
  return certificate === null ? null : resultOr(() => toHex(spkiDigestOf(certificate)), null)
}

function stateOf({ renewedAt, lostAt, hasLease, drainingMs }: HostState): FleetHostState {
  if (lostAt !== null) return 'lost'
  if (!hasLease) return renewedAt === null ? 'new' : 'silent'
  return drainingMs === null ? 'serving' : 'draining'
}
