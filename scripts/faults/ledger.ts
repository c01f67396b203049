// The daemon's own writes: usage that it books, and old records that it removes. Effects: those of an appliance.

import { Database } from 'bun:sqlite'
import { join } from 'node:path'
import { type Appliance, createAppliance } from '../rigs/appliance.ts'
import { createGatewayClient } from '../rigs/gateway/appliance-gateway.ts'
import { startUpstream } from '../rigs/gateway/upstream-server.ts'
import { startWithCustomer } from '../rigs/instances/instances-client.ts'
import { until } from '../rigs/until.ts'
import { holdingFindings } from './audit.ts'
import { OwnInstances } from './own-instances.ts'
import type { Scenario, Stage } from './scenario.ts'
import { calmSettings, settledStart } from './settings.ts'

export const usageScenario: Scenario = {
  name: 'usage',
  about: 'the gateway serves requests and books their usage',
  tracedFrom: 'run',
  open: async () => openUsage(),
}

export const retentionScenario: Scenario = {
  name: 'retention',
  about: 'the daemon starts and removes the records that are too old, and no others',
  tracedFrom: 'start',
  open: async () => openRetention(),
}

const stepMs = 30_000
const requestCount = 6
/** A kill may lose what came within the metering's last interval, which is 100 ms; with room for a slow machine. */
const unbookedMs = 1_000

async function openUsage(): Promise<Stage> {
  const upstream = await startUpstream()
  const tables = [
    ...['[inference]', 'placement = "host"', 'key_requests_per_minute = 100000', 'key_tokens_per_minute = 100000000'],
    ...['[[inference.upstreams]]', 'name = "stub"', `url = "${upstream.url}"`, 'models = ["m"]'],
    ...[
      '[[inference.prices]]',
      'model = "m"',
      'prompt_usd_per_million = "3.00"',
      'completion_usd_per_million = "7.00"',
    ],
  ]
  const appliance = await createAppliance(...calmSettings({}, `${tables.join('\n')}\n`))
  await appliance.start()
  await settledStart(appliance)
  await appliance.admin('org', 'create', 'acme')
  const client = await createGatewayClient(appliance, 'acme')
  let booked = 0
  let sent = 0
  let respondedMs: number[] = []
  let endedMs = 0
  const ask = async () => {
    const body = { model: 'm', messages: [{ role: 'user', content: 'hi' }] }
    const response = await client.post('/v1/chat/completions', body)
    if (!response.ok) throw new Error(`a completion gets ${response.status} ${await response.text()}`)
    await response.text()
  }
  return {
    appliance,
    prepare: async () => {
      // The router leaves an upstream alone until it has looked at it.
      await until('the gateway serves', stepMs, async () =>
        ask().then(
          () => true,
          () => false,
        ),
      )
      await Bun.sleep(unbookedMs)
      booked = usageRows(appliance)
      sent = 0
      respondedMs = []
    },
    run: async dead => {
      try {
        for (sent = 0; sent < requestCount; ) {
          sent += 1
          await ask()
          respondedMs.push(performance.now())
        }
        await until('all is booked', stepMs, () => {
          dead.throwIfAborted()
          return usageRows(appliance) === booked + requestCount
        })
      } finally {
        endedMs = performance.now()
      }
    },
    unsettled: async () => holdingFindings(appliance, 0),
    audit: async () => {
      const rows = usageRows(appliance) - booked
      const due = respondedMs.filter(ms => ms < endedMs - unbookedMs).length
      return [
        ...(rows <= sent ? [] : [`${sent} requests are booked ${rows} times`]),
        ...(rows >= due ? [] : [`of ${due} requests that should be booked ${rows} are`]),
      ]
    },
    clear: async () => [],
    [Symbol.asyncDispose]: async () => {
      await appliance[Symbol.asyncDispose]()
      await upstream.stop()
    },
  }
}

function usageRows(appliance: Appliance): number {
  using db = openDatabase(appliance)
  return db.query<{ count: number }, []>('SELECT count(*) AS count FROM usage').get()?.count ?? 0
}

const oldCount = 20
const oldDays = 400
const dayMs = 86_400_000

/** One terminated instance stays a pattern for old ones, and stays itself. */
async function openRetention(): Promise<Stage> {
  const started = await startWithCustomer(...calmSettings())
  const { appliance, acme } = started
  await settledStart(appliance)
  const own = new OwnInstances(acme)
  await own.begin()
  const name = await own.create()
  await own.end(name)
  const names = async () => (await acme.list()).map(({ name }) => name)
  const oldRows = () => {
    using db = openDatabase(appliance)
    return db.query<{ count: number }, []>("SELECT count(*) AS count FROM instances WHERE name LIKE 'old-%'").get()
      ?.count
  }
  return {
    appliance,
    prepare: async () => insertOld(appliance, name),
    run: dead =>
      until('the old records are removed', stepMs, () => {
        dead.throwIfAborted()
        return oldRows() === 0
      }),
    unsettled: async () => (oldRows() === 0 ? [] : [`${oldRows()} old records are left`]),
    audit: async () => ((await names()).includes(name) ? [] : ['a record that is not old is lost']),
    clear: async () => holdingFindings(appliance, 0),
    [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
  }
}

/** Copies of one record, as they were left long ago. */
function insertOld(appliance: Appliance, name: string): void {
  using db = openDatabase(appliance)
  const columns = db.query<{ name: string }, []>("SELECT name FROM pragma_table_info('instances')").all()
  const oldMs = Date.now() - oldDays * dayMs
  const expressions: Record<string, string> = {
    id: "'old-' || value || '-' || hex(randomblob(8))",
    name: "'old-' || value || '-' || hex(randomblob(8))",
    hostname: "'old-' || value || '-' || hex(randomblob(8)) || '.agents.test'",
    created_at_ms: `${oldMs}`,
    changed_at_ms: `${oldMs}`,
    terminated_at_ms: `${oldMs}`,
  }
  const selected = columns.map(column => expressions[column.name] ?? `instances.${column.name}`).join(', ')
  db.run(
    `WITH RECURSIVE counter (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM counter WHERE value < ?)
     INSERT INTO instances (${columns.map(column => column.name).join(', ')})
     SELECT ${selected} FROM counter, instances WHERE instances.name = ?`,
    [oldCount, name],
  )
}

function openDatabase({ stateDir }: Appliance): Database {
  const db = new Database(join(stateDir, 'strongroom.db'))
  db.run('PRAGMA busy_timeout = 5000')
  return db
}
