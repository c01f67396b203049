// strongroom fleet init beside a whole running daemon whose clients create and delete meanwhile, then the restart into
// the fleet. The real executable and PostgreSQL; one VM at a time has room, so that rows
// move more than VMs, whose guests halt at once.

import { Database } from 'bun:sqlite'
import { expect, test } from 'bun:test'
import { join } from 'node:path'
import { createAppliance } from '../../../scripts/rigs/appliance.ts'
import { socketAddress } from '../../../scripts/rigs/fleet/two-machines.ts'
import { createCustomer } from '../../../scripts/rigs/instances/instances-client.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { connect } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { canonicalJson } from '../../../src/base/canonical-json.ts'
import { pagesOf } from '../../../src/fleet/directory/feed.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'
import { selectRow } from '../../../src/fleet/replica/statements.ts'
import { REPLICA_TABLES } from '../../../src/fleet/replica/tables.ts'
import { reconfigure } from '../../rigs/instances/reconfigured.ts'
import { idleImage } from '../../rigs/launch/idle-image.ts'

const timeoutMs = 600_000
const stepMs = 120_000
/** Between the requests of a client: enough for rows, and the processors are left to the daemon. */
const pauseMs = 50

inOwnNetns(
  import.meta.path,
  () => {
    /** Without the columns that hosts read from tables of their own when asked. */
    const decided = ({ columns }: (typeof REPLICA_TABLES)[number], row: object | null) => {
      const sampled = columns.filter(column => 'isSampled' in column && column.isSampled).map(({ name }) => name)
      return canonicalJson(Object.fromEntries(Object.entries(row ?? {}).filter(([name]) => !sampled.includes(name))))
    }
    /** Rows that are in one database alone, or differ. */
    const differences = async (postgres: Postgres, stateDir: string) => {
      using sqlite = new Database(join(stateDir, 'strongroom.db'), { readonly: true })
      const found: string[] = []
      for (const table of REPLICA_TABLES) {
        const select = sqlite.query<{ row: string }, string[]>(selectRow(table))
        let there = 0
        for await (const page of pagesOf(postgres, table)) {
          there += page.length
          for (const { key, row } of page) {
            const here = select.get(...table.key.map(name => String(key[name])))
            if (here === null || decided(table, JSON.parse(here.row)) !== decided(table, row)) {
              found.push(`${table.name} ${JSON.stringify(key)}`)
            }
          }
        }
        const here = sqlite.query<{ n: number }, []>(`SELECT count(*) AS n FROM ${table.name}`).get()
        if (here?.n !== there) found.push(`${table.name}: ${here?.n} here, ${there} there`)
      }
      return found
    }

    test.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))(
      'nothing is lost or doubled',
      async () => {
        // Goal: what was accepted before, during and after the copy is in the fleet's directory once, row by row.
        await using server = await startPostgres()
        const database = await socketAddress(server)
        using image = await idleImage()
        const settings = 'boot_timeout_ms = 900_000\nstop_grace_ms = 1_000'
        const capacity = '\n[capacity]\nmemory_mib = 2048\nwait_ms = 0\n'
        await using host = await createAppliance(settings, 'vm', image.directory, capacity)
        await host.start()
        const acme = await createCustomer(host, 'acme')
        const [created, deleted] = [new Map<string, string>(), new Set<string>()]
        const ended = new AbortController()
        const client = async (at: number) => {
          for (let count = 0; !ended.signal.aborted; count += 1) {
            const key = `${at}-${count}`
            const made = await acme.create(key).catch(() => null)
            if (made?.status !== 202) {
              await Bun.sleep(pauseMs)
              continue
            }
            const { name } = made.body.data
            created.set(key, name)
            await Bun.sleep(pauseMs)
            if (count % 3 === 0) continue
            const gone = await acme.remove(name).catch(() => null)
            if (gone?.status === 202) deleted.add(name)
          }
        }
        const clients = Promise.all([0, 1, 2].map(client))
        await until('clients are at work', stepMs, () => created.size > 10)
        const before = created.size
        reconfigure(host, [capacity, `\n[fleet]\ndatabase = "${database}"\nname = "rack-1"\n${capacity}`])
        await host.admin('fleet', 'init')
        const during = created.size
        expect(during).toBeGreaterThan(before)
        await until('clients go on', stepMs, () => created.size > during + 5)
        ended.abort()
        await clients
        await host.stop()
        await host.start()
        // Until it has its lease and the news it answers 503.
        let again = await acme.create('0-0')
        await until('the host answers', stepMs, async () => {
          if (again.status === 503) again = await acme.create('0-0')
          return again.status !== 503
        })
        expect([again.status, again.body.data.name]).toEqual([202, created.get('0-0') ?? ''])
        const postgres = await connect(server, server.url({ database: 'postgres' }))
        await until('the same on both sides', stepMs, async () => {
          return (await differences(postgres, host.stateDir)).length === 0
        })
        const rows = await postgres.query<{ name: string; status: string }>('SELECT name, status FROM instances')
        expect(rows.map(({ name }) => name).toSorted()).toEqual([...created.values()].toSorted())
        const statuses = new Map(rows.map(({ name, status }) => [name, status]))
        await until('deletes end', stepMs, async () => {
          const now = await acme.list()
          for (const { name, status } of now) statuses.set(name, status)
          return [...deleted].every(name => statuses.get(name) === 'terminated')
        })
        expect(deleted.size).toBeGreaterThan(3)
        await postgres.close()
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
