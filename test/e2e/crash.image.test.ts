import { expect, test } from 'bun:test'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance } from '../../scripts/rigs/appliance.ts'
import { qemuSpawned, startWithCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING, qemuProcesses, tpmProcesses } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import { consoleFiles } from '../../src/host/qemu/console.ts'

const timeoutMs = 600_000

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'killed while provisioning, while ready and while terminating, the daemon takes up where it was',
      async () => {
        // Goal: one VM survives four kills; an open SSH session does not notice; the end leaves nothing.
        await using started = await startWithCustomer()
        const { appliance, acme } = started
        const { name, hostname } = (await acme.create()).body.data

        // While QEMU is being started.
        await qemuSpawned(appliance)
        await appliance.kill()
        const [tpm] = tpmProcesses(appliance.stateDir)
        expect(tpm).toBeGreaterThan(0)
        await appliance.start()
        // While the guest boots, some seconds in.
        await until('the guest kernel speaks', 180_000, () => consoleOf(appliance).includes('agent started'))
        const [pid] = qemuProcesses(appliance.stateDir)
        expect((await appliance.cli('instance', 'console', `acme/${name}`)).stdout).toContain('agent started')
        await appliance.kill()
        await appliance.start()
        await acme.reached(name, 'ready', 300_000)
        expect(qemuProcesses(appliance.stateDir)).toEqual([pid ?? 0])
        expect(tpmProcesses(appliance.stateDir)).toEqual([tpm ?? 0])

        // While ready, with a session open across the kill.
        const session = appliance.sshSession(hostname, 'echo first; read line; echo "second $line"')
        await session.printed('first')
        await appliance.kill()
        session.type('still here\n')
        await session.printed('second still here')
        expect(await session.exited).toBe(0)
        await appliance.start()
        expect((await acme.retrieve(name)).status).toBe('ready')
        expect((await appliance.ssh(hostname, ['true'])).exitCode).toBe(0)
        expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })

        // While terminating.
        await acme.remove(name)
        await appliance.kill()
        await appliance.start()
        await acme.reached(name, 'terminated', 60_000)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'killed at any moment of a launch, then deleted: nothing is left',
      async () => {
        // Goal: over kills spread across the launch, restart converges and a delete releases everything.
        await using started = await startWithCustomer()
        const { appliance, acme } = started
        for (const delayMs of [0, 10, 30, 60, 90, 120, 160, 220, 300]) {
          const { name } = (await acme.create()).body.data
          await Bun.sleep(delayMs)
          await appliance.kill()
          await appliance.start()
          await acme.end(name)
          expect({ delayMs, ...holdings(appliance.stateDir) }).toEqual({ delayMs, ...NOTHING })
        }
      },
      timeoutMs,
    )

    test(
      'a VM that dies while nobody watches is found dead',
      async () => {
        // Goal: after kill -9 of daemon and QEMU the record says failed, with a documented code, and holds only its
        // console.
        await using started = await startWithCustomer()
        const { appliance, acme } = started
        const { name } = (await acme.create()).body.data
        // Killed before its start is on record it would be started anew.
        await until('the guest kernel speaks', 180_000, () => consoleOf(appliance) !== '')
        await appliance.kill()
        for (const pid of qemuProcesses(appliance.stateDir)) process.kill(pid, 'SIGKILL')
        await appliance.start()
        const failed = await acme.reached(name, 'failed', 60_000)
        expect(failed.failure_code).toBe('boot_failed')
        await until('all but the console is released', 60_000, () =>
          Bun.deepEquals({ ...holdings(appliance.stateDir), directories: [] }, NOTHING),
        )
        expect(holdings(appliance.stateDir).directories).toEqual([expect.any(String)])
        await acme.end(name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)

/** Console of its one VM, from the daemon's file: running the command would take CPU from the booting guest. */
function consoleOf({ stateDir }: Appliance): string {
  const vms = join(stateDir, 'vms')
  const paths = existsSync(vms) ? readdirSync(vms).map(id => join(vms, id, consoleFiles.current)) : []
  return paths.map(path => (existsSync(path) ? readFileSync(path, 'utf8') : '')).join('')
}
