// One host of a fleet as far as its books go: its database, its copy of the directory, its usage ledger, its share of
// budgets. Money is a nano-dollar a token. Effects: files of a directory, connections to PostgreSQL.

import { join } from 'node:path'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { createLogger, silentLogger } from '../../../src/base/log.ts'
import { parseDatabaseUrl } from '../../../src/config/fleet/database-url.ts'
import { type FleetDirectory, openFleetDirectory } from '../../../src/fleet/directory/directory.ts'
import { fleetIdOf } from '../../../src/fleet/directory/feed.ts'
import { giveUpInstancesOf } from '../../../src/fleet/hosts/give-up.ts'
import { Lease } from '../../../src/fleet/hosts/lease.ts'
import { openPostgres, type Postgres } from '../../../src/fleet/postgres.ts'
import { type DirectoryStore, openStore, type Store } from '../../../src/store/db.ts'
import { insertGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { insertOrganization, setOrganizationBudget } from '../../../src/store/directory/organization.query.ts'
import { admitHost, patientLimits } from '../postgres/fleet.ts'
import { report, unhurried } from '../postgres/hosts.ts'
import { until } from '../until.ts'
import { impatientLimits } from './fleet-host.ts'
import { type HostBudgets, openHostBudgets } from './host-budgets.ts'

export const organizationId = 'o1'
export const slug = 'acme'

export type BooksHost = AsyncDisposable &
  HostBudgets & {
    readonly hostId: string
    readonly name: string
    readonly store: Store
    readonly directory: DirectoryStore
    readonly fleet: FleetDirectory
    readonly postgres: Postgres
    /** The organization and one key, with their budgets. */
    readonly seed: (budgets: SeedBudgets) => Promise<void>
    /** Reserves, books less than that perhaps, and releases. */
    readonly spend: (keyPrefix: string, worst: number, tokens?: number) => Promise<void>
    readonly renewLease: () => Promise<void>
  }

export type SeedBudgets = { readonly keys: Record<string, number | null>; readonly organization: number | null }

export type BooksHostOptions = {
  readonly directory: string
  /** postgres://… of the directory. */
  readonly database: string
  readonly name: string
  /** Default: the system's. */
  readonly nowMs?: () => number
  readonly sumsEveryMs?: number
  readonly log?: (line: string) => void
  /** It waits for the database for as long as that takes: where nothing waits for an outage to end. */
  readonly isUnhurried?: boolean
  /** Budgets that are not used are given back by themselves. */
  readonly runs?: boolean
}

export async function startBooksHost(options: BooksHostOptions): Promise<BooksHost> {
  const { name } = options
  const clock: Clock = { ...systemClock, nowMs: options.nowMs ?? systemClock.nowMs }
  const log =
    options.log === undefined ? silentLogger : createLogger({ level: 'debug', sink: options.log, nowMs: clock.nowMs })
  const alone = openStore(join(options.directory, 'strongroom.db'))
  const { hostId } = alone
  const parsed = parseDatabaseUrl(await admitHost(options.database, { id: hostId, name }))
  if (!parsed.ok) throw new Error(parsed.problem)
  const target = { ...parsed.address, caPem: null, applicationName: name }
  const limits = options.isUnhurried === true ? patientLimits : impatientLimits
  const postgres = await openPostgres({ target, limits, clock, log })
  const lease = new Lease({
    postgres: unhurried(postgres),
    hostId,
    platform: 'tcg',
    lostAfterMs: 60_000,
    report: () => ({ places: 0, report }),
    giveUp: giveUpInstancesOf,
    clock,
    log: silentLogger,
    onEvent: () => {},
  })
  await until('it has its lease', 60_000, async () => {
    await lease.renew()
    return lease.isHeld()
  })
  const sumsEveryMs = options.sumsEveryMs ?? 50
  const fleet = openFleetDirectory(
    {
      directory: alone.directory,
      hostId,
      postgres,
      sumsEveryMs,
      clock,
      log,
      adopt: () => {
        throw new Error('there are no instances here')
      },
      onApplied: () => {},
    },
    await fleetIdOf(postgres),
  )
  fleet.setMember(true)
  const { directory } = alone
  const timeline = () => fleet.view().timeline
  const books = openHostBudgets({ directory, hostId, postgres, timeline, clock, log })
  const { metering, shares } = books
  const stopping = new AbortController()
  fleet.start()
  await until('the first copy', 60_000, () => fleet.waitsFor() === null)
  const running = options.runs === true ? [shares.run(stopping.signal), lease.run(stopping.signal)] : []
  const end = async () => {
    stopping.abort()
    await metering.stop()
    await Promise.all([fleet.stop(), ...running])
    await postgres.close()
    alone.close()
  }
  let ending: Promise<void> | null = null
  const host: BooksHost = {
    hostId,
    name,
    store: { ...alone, directory: fleet.store },
    directory,
    fleet,
    postgres,
    ...books,
    seed: async ({ keys, organization }) => {
      await fleet.store.change(tx => {
        insertOrganization(tx, { id: organizationId, slug, nowMs: 1 })
        setOrganizationBudget(tx, slug, { budgetNanoUsd: organization, budgetTokens: null })
        for (const [prefix, budgetNanoUsd] of Object.entries(keys)) {
          insertGatewayKey(tx, {
            prefix,
            secretSha256: new Uint8Array(32),
            organizationId,
            instanceId: null,
            requestsPerMinute: null,
            tokensPerMinute: null,
            concurrencyMax: null,
            expiresAtMs: null,
            budgetNanoUsd,
            nowMs: 1,
          })
        }
      })
    },
    spend: async (keyPrefix, most, tokens = most) => {
      const release = await host.reserve(keyPrefix, most)
      host.book(keyPrefix, tokens)
      release?.()
    },
    renewLease: () => lease.renew(),
    [Symbol.asyncDispose]: () => (ending ??= end()),
  }
  return host
}
