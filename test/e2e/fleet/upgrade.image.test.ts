// A fleet of two daemons is upgraded host by host while clients create and delete through both: drain, a later
// executable, fleet migrate, undrain. Both databases have a step more: a table and a column. Real executables and
// PostgreSQL, a network namespace for each host; the VMs are QEMU processes with a guest that halts at once.

import { Database } from 'bun:sqlite'
import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import { startTwoMachines } from '../../../scripts/rigs/fleet/two-machines.ts'
import { createCustomer } from '../../../scripts/rigs/instances/instances-client.ts'
import { qemuProcesses } from '../../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { laterExecutable, laterFleetSchema, laterVersion } from '../../../scripts/rigs/upgrade/later-executable.ts'
import type { AdminStatus } from '../../../src/contract/admin/admin.ts'
import type { FleetHosts } from '../../../src/contract/admin/fleet.ts'
import { idleImage } from '../../rigs/launch/idle-image.ts'

const timeoutMs = 900_000
const stepMs = 180_000
/** Between the requests of a client: enough for rows, and the processors are left to the daemons. */
const pauseMs = 100

inOwnNetns(
  import.meta.path,
  () => {
    test.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))(
      'host by host',
      async () => {
        // Goal: no accepted request is lost and no VM is touched while hosts one release apart work together, the newer
        // one with a newer directory; a directory two releases ahead of a host that is there is refused; at the end
        // every host has what it could not take over while it was older.
        // Room for two VMs on each host; more instances fail, which is as good for rows.
        const [later, latest] = [await laterExecutable(), await laterExecutable({ releases: 2 })]
        const fleet = () => '[capacity]\nmemory_mib = 4096\nwait_ms = 0'
        using image = await idleImage()
        // No guest of it says hello, and none is to be given up for that.
        const lines = () => ({ vm: 'boot_timeout_ms = 900_000\nstop_grace_ms = 1_000' })
        await using machines = await startTwoMachines({ fleet, lines, image: image.directory })
        const { east, west } = machines
        const acme = await createCustomer(east, 'acme')
        await until('both take instances', stepMs, async () => (await states(east)).every(state => state === 'serving'))
        const kept = [await acme.create('kept-1'), await acme.create('kept-2')].map(({ body }) => body.data.name)
        const vms = () => [...qemuProcesses(east.stateDir), ...qemuProcesses(west.stateDir)]
        // Not what starts it, which ends then.
        const runs = (pid: number) => readFileSync(`/proc/${pid}/comm`, 'utf8').startsWith('qemu')
        await until('a VM on each', stepMs, () =>
          [east, west].every(host => {
            const pids = qemuProcesses(host.stateDir)
            return pids.length === 1 && pids.every(runs)
          }),
        )
        const keptVms = vms()

        const [created, deleted] = [new Map<string, string>(), new Set<string>()]
        const failures: number[] = []
        const ended = new AbortController()
        // Also where something fails: they would ask for ever.
        using _ended = { [Symbol.dispose]: () => ended.abort() }
        const client = async (host: Appliance, other: Appliance, at: string) => {
          for (let count = 0; !ended.signal.aborted; count += 1) {
            const key = `${at}-${count}`
            // Without an answer it is asked again with the same key, as clients do.
            const create = (by: Appliance) => through(by, acme.key, 'POST', '/v1/instances', key)
            let made = await create(host)
            while (made === null && !ended.signal.aborted) made = (await create(other)) ?? (await create(host))
            if (made === null) return
            if (made.status >= 500 && made.status !== 503) failures.push(made.status)
            if (made.status !== 202 || made.name === undefined) {
              await Bun.sleep(pauseMs)
              continue
            }
            created.set(key, made.name)
            const path = `/v1/instances/${made.name}`
            const remove = (by: Appliance) => through(by, acme.key, 'DELETE', path)
            let gone = await remove(host)
            while (gone?.status !== 202 && !ended.signal.aborted) gone = (await remove(other)) ?? (await remove(host))
            if (gone?.status === 202) deleted.add(made.name)
            await Bun.sleep(pauseMs)
          }
        }
        const clients = Promise.all([client(east, west, 'east'), client(west, east, 'west')])
        for (const [host, name, other] of [
          [east, 'east', west],
          [west, 'west', east],
        ] as const) {
          await other.admin('fleet', 'drain', name)
          await host.stop()
          host.use(later)
          const before = created.size
          await until('the other host goes on', stepMs, () => created.size > before + 3)
          await host.start()
          if (name === 'east') {
            // Its directory is older than it needs.
            expect(await schemaOf(machines.server)).toBe(laterFleetSchema - 1)
            await until('it says so', stepMs, async () => {
              const { problems } = await host.admin<AdminStatus>('status')
              return problems.some(({ detail }) => detail.includes(`this host needs ${laterFleetSchema}`))
            })
            await host.admin('fleet', 'migrate')
            host.use(latest)
            // Its former process may still have its lease.
            await until('west alone is too old', stepMs, async () => {
              const refused = await host.cli('fleet', 'migrate')
              expect([refused.exitCode === 0, refused.stderr]).toEqual([
                false,
                expect.stringContaining('they support only schemas before'),
              ])
              return /before \d+: west$/m.test(refused.stderr)
            })
            host.use(later)
            expect(await schemaOf(machines.server)).toBe(laterFleetSchema)
          }
          await until('it drains', stepMs, async () => (await states(other)).includes('draining'))
          await other.admin('fleet', 'undrain', name)
          await until('it serves', stepMs, async () => (await states(other)).every(state => state === 'serving'))
          const after = created.size
          await until('both work together', stepMs, () => created.size > after + 3)
        }
        ended.abort()
        await clients
        expect(failures).toEqual([])
        // Nobody is two releases behind any more.
        east.use(latest)
        await east.admin('fleet', 'migrate')
        east.use(later)
        expect(await schemaOf(machines.server)).toBe(laterFleetSchema + 1)
        const { hosts } = await east.admin<FleetHosts>('fleet', 'list')
        expect(hosts.map(({ version }) => version)).toEqual([laterVersion, laterVersion])
        for (const pid of keptVms) expect(vms()).toContain(pid)
        const listed = await acme.list()
        expect(listed.map(({ name }) => name).toSorted()).toEqual([...kept, ...created.values()].toSorted())
        for (const { name, status } of listed) {
          if (kept.includes(name)) expect(['provisioning', 'ready']).toContain(status)
        }
        await until('deletes end', stepMs, async () => {
          const statuses = new Map((await acme.list()).map(({ name, status }) => [name, status]))
          return [...deleted].every(name => statuses.get(name) === 'terminated')
        })
        expect(deleted.size).toBeGreaterThan(5)
        for (const { stateDir } of [east, west]) {
          using db = new Database(join(stateDir, 'strongroom.db'), { readonly: true })
          const things = () => db.query('SELECT id FROM later_things').all()
          // A host serves while it copies anew.
          await until('it has what it missed', stepMs, () => things().length > 0)
          expect(things()).toEqual([{ id: 'first' }])
          expect(db.query('SELECT DISTINCT later FROM instances').all()).toEqual([{ later: 7 }])
        }
        const other = await acme.create('afterwards')
        expect(other.status).toBe(202)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)

async function schemaOf(server: PostgresServer): Promise<number> {
  return Number(await server.run('SELECT max(version) FROM strongroom.migrations'))
}

async function states(host: Appliance): Promise<string[]> {
  return (await host.admin<FleetHosts>('fleet', 'list')).hosts.map(({ state }) => state)
}

/** Null if there was no answer. */
async function through(host: Appliance, key: string, method: string, path: string, idempotencyKey?: string) {
  try {
    const { status, body } = await host.http<{ data?: { name: string } }>(method, path, {
      key,
      ...(method === 'POST' ? { body: { public_key: host.publicKey } } : {}),
      ...(idempotencyKey === undefined ? {} : { headers: { 'Idempotency-Key': idempotencyKey } }),
    })
    return { status, name: body.data?.name }
  } catch {
    return null
  }
}
