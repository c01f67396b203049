import { expect, test } from 'bun:test'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance } from '../../scripts/rigs/appliance.ts'
import { startWithCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING, qemuProcesses } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import type { AdminEvent, AdminInstance, AdminStatus } from '../../src/contract/admin/admin.ts'
import { adminSocketName } from '../../src/contract/admin/sockets.ts'

const timeoutMs = 900_000
const bootedMs = 300_000

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'an instance on a warm VM, the refill with a daemon that is killed, and the end of the pool',
      async () => {
        // Goal: the instance gets the waiting VM; kill -9 after the take or in the refill neither duplicates nor
        // loses a VM.
        await using started = await startWithCustomer('warm = 1', 'pool')
        const { appliance, acme } = started
        await warm(appliance, 1)
        const [first = 0] = qemuProcesses(appliance.stateDir)
        expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })

        // Killed as soon as the create is accepted: the commit alone has given the VM away.
        const { name, hostname } = (await acme.create('once')).body.data
        await appliance.kill()
        await appliance.start()
        expect((await acme.create('once')).body.data.name).toBe(name)
        await acme.reached(name, 'ready', bootedMs)
        const shown = await appliance.admin<AdminInstance>('instance', 'show', `acme/${name}`)
        expect(qemuOf(first)).toContain(shown.vm?.id ?? 'no VM')
        const { events } = await appliance.admin<{ events: AdminEvent[] }>('instance', 'logs', `acme/${name}`)
        expect(events.map(event => event.kind)).toContain('instance.ready')
        expect((await appliance.ssh(hostname, ['hostname'])).stdout.trim()).toBe(name)

        // Killed while the next VM boots.
        await until('the refill has begun', 60_000, () => qemuProcesses(appliance.stateDir).length === 2)
        const both = qemuProcesses(appliance.stateDir)
        await appliance.kill()
        await appliance.start()
        await warm(appliance, 1)
        expect(qemuProcesses(appliance.stateDir)).toEqual(both)
        const second = (await acme.create()).body.data
        await acme.reached(second.name, 'ready', bootedMs)
        const { vm } = await appliance.admin<AdminInstance>('instance', 'show', `acme/${second.name}`)
        expect(vm?.id).not.toBe(shown.vm?.id)
        expect(both.map(qemuOf).some(argv => argv.includes(vm?.id ?? 'no VM'))).toBe(true)
        const log = await appliance.admin<{ events: AdminEvent[] }>('instance', 'logs', `acme/${second.name}`)
        expect(log.events.find(event => event.kind === 'instance.accepted')?.detail).toMatchObject({ start: 'warm' })

        // Drained, and nothing but the instances left.
        await appliance.stop()
        configure(appliance, 'warm = 1', 'warm = 0')
        await appliance.start()
        await until('the pool is drained', 60_000, () => qemuProcesses(appliance.stateDir).length === 2)
        expect((await appliance.admin<AdminStatus>('status')).pool).toMatchObject({ wanted: 0, warm: 0, booting: 0 })
        expect((await appliance.ssh(hostname, ['true'])).exitCode).toBe(0)
        // Its VM may be going at this moment: what is still there after that is a leak.
        await until('nothing of the pool is left', 60_000, async () => {
          const { exitCode } = await appliance.cli('doctor', '--leaks')
          return exitCode === 0
        })
        await acme.end(name)
        await acme.end(second.name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'killed at any moment of a refill, then drained: nothing is left',
      async () => {
        // Goal: over kills spread across the launch of a pool VM, restart converges and a drain releases everything.
        await using started = await startWithCustomer('warm = 2', 'pool')
        const { appliance } = started
        for (const delayMs of [0, 20, 60, 120, 200, 300, 500]) {
          await appliance.kill()
          await appliance.start()
          await Bun.sleep(delayMs)
          await appliance.kill()
          configure(appliance, 'warm = 2', 'warm = 0')
          await appliance.start()
          await until(`nothing is left of a pool killed after ${delayMs} ms`, 60_000, () =>
            Bun.deepEquals(holdings(appliance.stateDir), NOTHING),
          )
          configure(appliance, 'warm = 0', 'warm = 2')
        }
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)

/** Not by the command line: its start costs what a VM needs to boot. */
async function statusOf({ stateDir }: Appliance): Promise<AdminStatus> {
  const response = await fetch('http://operator/status', { unix: join(stateDir, adminSocketName) })
  expect(response.status).toBe(200)
  return (await response.json()) as AdminStatus
}

async function warm(appliance: Appliance, count: number): Promise<void> {
  await until(`${count} VMs are warm`, bootedMs, async () => {
    const { pool } = await statusOf(appliance)
    if (pool.last_failure !== null) throw new Error(`the pool failed: ${pool.last_failure.reason}`)
    return pool.warm === count
  })
}

function qemuOf(pid: number): string {
  return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
}

/** For the next start. */
function configure({ directory }: Appliance, from: string, to: string): void {
  const path = join(directory, 'strongroom.toml')
  writeFileSync(path, readFileSync(path, 'utf8').replace(from, to))
}
