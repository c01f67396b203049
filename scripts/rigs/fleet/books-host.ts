// One host of a fleet as far as its books go: its database, its copy of the directory, its usage ledger, its share of
// budgets. Money is a nano-dollar a token. Effects: files of a directory, connections to PostgreSQL.

import { join } from 'node:path'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { createLogger, silentLogger } from '../../../src/base/log.ts'
import { parseDatabaseUrl } from '../../../src/config/fleet/database-url.ts'
import { NO_RULES } from '../../../src/contract/key-rules.ts'
import { Allowances } from '../../../src/fleet/books/allowances.ts'
import { type FleetDirectory, openFleetDirectory } from '../../../src/fleet/directory/directory.ts'
import { fleetIdOf } from '../../../src/fleet/directory/feed.ts'
import { giveUpInstancesOf } from '../../../src/fleet/hosts/give-up.ts'
import { hostById, joinHost } from '../../../src/fleet/hosts/hosts.query.ts'
import { Lease } from '../../../src/fleet/hosts/lease.ts'
import { openPostgres, type Postgres } from '../../../src/fleet/postgres.ts'
import { Budgets, type Release } from '../../../src/inference/metering/budgets.ts'
import { Metering } from '../../../src/inference/metering/ledger.ts'
import { HostShares } from '../../../src/inference/metering/shares/host-shares.ts'
import type { Caller } from '../../../src/inference/types.ts'
import { type DirectoryStore, openStore, type Store } from '../../../src/store/db.ts'
import { findGatewayKey, insertGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import {
  insertOrganization,
  organizationById,
  setOrganizationBudget,
} from '../../../src/store/directory/organization.query.ts'
import { report } from '../postgres/hosts.ts'
import { until } from '../until.ts'

export const organizationId = 'o1'
export const slug = 'acme'
export const model = 'm'

export type BooksHost = AsyncDisposable & {
  readonly hostId: string
  readonly name: string
  readonly store: Store
  readonly directory: DirectoryStore
  readonly fleet: FleetDirectory
  readonly postgres: Postgres
  readonly metering: Metering
  readonly budgets: Budgets
  readonly shares: HostShares
  readonly allowances: Allowances
  /** The organization and one key, with their budgets. */
  readonly seed: (budgets: SeedBudgets) => Promise<void>
  /** As the copy here has its budgets. */
  readonly caller: (keyPrefix: string) => Caller
  /** Reserves so many tokens. Faults: budget_exceeded, metering_unavailable. */
  readonly reserve: (keyPrefix: string, tokens: number) => Promise<Release | null>
  /** Books a request that has ended; returns its id. */
  readonly book: (keyPrefix: string, tokens: number) => string
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
  /** Budgets that are not used are given back by themselves. */
  readonly runs?: boolean
}

const postgresLimits = { connectMs: 500, statementMs: 1_000, lockMs: 900, transactionMs: 2_000 }

export async function startBooksHost(options: BooksHostOptions): Promise<BooksHost> {
  const { name } = options
  const clock: Clock = { ...systemClock, nowMs: options.nowMs ?? systemClock.nowMs }
  const log =
    options.log === undefined ? silentLogger : createLogger({ level: 'debug', sink: options.log, nowMs: clock.nowMs })
  const parsed = parseDatabaseUrl(options.database)
  if (!parsed.ok) throw new Error(parsed.problem)
  const target = { ...parsed.address, caPem: null, applicationName: name }
  const alone = openStore(join(options.directory, 'strongroom.db'))
  const { hostId } = alone
  const postgres = await openPostgres({ target, limits: postgresLimits, clock, log })
  if ((await hostById(postgres, hostId)) === null) {
    await postgres.transact(tx => joinHost(tx, { id: hostId, name, nowMs: Date.now() }))
  }
  const lease = new Lease({
    postgres,
    hostId,
    platform: 'tcg',
    lostAfterMs: 60_000,
    report: () => ({ places: 0, report }),
    giveUp: giveUpInstancesOf,
    clock,
    log: silentLogger,
    onEvent: () => {},
  })
  await lease.renew()
  const sumsEveryMs = options.sumsEveryMs ?? 50
  const fleet = openFleetDirectory(
    {
      directory: alone.directory,
      hostId,
      postgres,
      platform: 'tcg',
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
  const cost = (_: string, { prompt, completion }: { prompt: number; completion: number }) =>
    BigInt(prompt + completion)
  const metering = new Metering({ store: alone.directory, clock, log, cost })
  const { directory } = alone
  const timeline = () => fleet.view().timeline
  const allowances = new Allowances({ directory, hostId, postgres, timeline, clock, log })
  const ownSpent: Metering['ownSpent'] = (spender, month) => metering.ownSpent(spender, month)
  const shares = new HostShares({ allowances, ownSpent, clock, log })
  metering.shares = shares
  const budgets = new Budgets({ spent: metering, cost: () => cost, clock })
  const stopping = new AbortController()
  fleet.start()
  await until('the first copy', 10_000, () => fleet.waitsFor() === null)
  const running = options.runs === true ? [shares.run(stopping.signal), lease.run(stopping.signal)] : []
  const worst = (tokens: number) => ({ prompt: tokens, completion: 0 })
  const end = async () => {
    stopping.abort()
    await metering.stop()
    await Promise.all([fleet.stop(), ...running])
    await postgres.close()
    alone.close()
  }
  let ending: Promise<void> | null = null
  let count = 0
  const host: BooksHost = {
    hostId,
    name,
    store: { ...alone, directory: fleet.store },
    directory,
    fleet,
    postgres,
    metering,
    budgets,
    shares,
    allowances,
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
    caller: keyPrefix => callerFrom(alone.directory, keyPrefix),
    reserve: (keyPrefix, tokens) => budgets.reserve(host.caller(keyPrefix), model, worst(tokens)),
    book: (keyPrefix, tokens) => {
      count += 1
      const id = `${hostId}-${clock.nowMs()}-${process.pid}-${count}`
      metering.record({
        id,
        atMs: clock.nowMs(),
        caller: host.caller(keyPrefix),
        model,
        upstream: 'u',
        tokens: worst(tokens),
        tokensSource: 'reported',
        outcome: 'completed',
      })
      return id
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

function callerFrom({ db }: DirectoryStore, keyPrefix: string): Caller {
  const key = findGatewayKey(db, keyPrefix)
  const organization = organizationById(db, organizationId)
  if (key === null || organization === null) throw new Error('the copy lacks the key')
  return {
    keyPrefix,
    keyDigest: 'aa'.repeat(32),
    organizationId,
    instanceId: null,
    requestsPerMinute: 1_000_000,
    tokensPerMinute: 1_000_000_000,
    concurrencyMax: 65_536,
    rules: NO_RULES,
    budgets: {
      key: { nanoUsd: key.budgetNanoUsd, tokens: key.budgetTokens },
      organization: { nanoUsd: organization.budgetNanoUsd, tokens: organization.budgetTokens },
    },
  }
}
