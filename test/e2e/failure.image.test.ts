// Failures of launches, and a daemon that is killed in them: one appliance, whose VMs are QEMU processes with a guest
// that halts at once. Tests that need a guest are in crash.image.test.ts.

import { afterAll, afterEach, beforeAll, expect, test } from 'bun:test'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { runsAll } from '../../scripts/rigs/all.ts'
import { qemuSpawned, type Started, startWithCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING, qemuProcesses } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import { consoleFiles } from '../../src/host/qemu/console.ts'
import { reconfigure, restartWith } from '../rigs/instances/reconfigured.ts'
import { type IdleImage, idleImage } from '../rigs/launch/idle-image.ts'

const timeoutMs = 300_000
const stepMs = 120_000
const createsAtOnce = 30
/** Ms from the request to the kill. A few moments of a launch; `scripts/test --all` takes more. */
const launchDelays = runsAll ? [0, 10, 30, 60, 90, 120, 160, 220, 300] : [0, 60, 200]
/** Ms from the start of the daemon, which fills the pool, to the kill. */
const refillDelays = runsAll ? [0, 20, 60, 120, 200, 300, 500] : [20, 200]

/** Each is changed by a test below. */
const [patient, impatient] = ['boot_timeout_ms = 900_000', 'boot_timeout_ms = 1_500']
const capacity = (waitMs: number) => `memory_mib = 2048\nwait_ms = ${waitMs}`

inOwnNetns(
  import.meta.path,
  () => {
    let image: IdleImage
    let host: Started
    beforeAll(async () => {
      image = await idleImage()
      const settings = `${patient}\nstop_grace_ms = 1_000`
      const tables = `[capacity]\n${capacity(600_000)}\n[pool]\nwarm = 0\n`
      host = await startWithCustomer(settings, 'vm', image.directory, tables)
    }, timeoutMs)
    afterAll(async () => {
      await host?.[Symbol.asyncDispose]()
      image?.[Symbol.dispose]()
    })

    // A test that failed leaves nothing to the next one.
    afterEach(async () => {
      const left = (await host.acme.list()).filter(({ status }) => status !== 'terminated')
      for (const { name } of left) await host.acme.end(name, stepMs)
    }, timeoutMs)

    /** Which a failed instance keeps. */
    const allButTheConsoleIsReleased = async () => {
      const { stateDir } = host.appliance
      await until('all but the console is released', stepMs, () =>
        Bun.deepEquals({ ...holdings(stateDir), directories: [] }, NOTHING),
      )
      expect(holdings(stateDir).directories).toEqual([expect.any(String)])
    }

    test(
      'thirty creates with one Idempotency-Key make one VM, and a kill -9 makes no second one',
      async () => {
        // Goal: identical responses, one record, one QEMU; the same after a crash and restart.
        const { appliance, acme } = host
        const responses = await Promise.all(Array.from({ length: createsAtOnce }, () => acme.create('one')))
        expect(new Set(responses.map(response => response.status))).toEqual(new Set([202]))
        expect(new Set(responses.map(response => JSON.stringify(response.body.data))).size).toBe(1)
        expect(new Set(responses.map(response => response.body.request_id)).size).toBe(createsAtOnce)
        await appliance.kill()
        await appliance.start()
        expect(JSON.stringify((await acme.create('one')).body.data)).toBe(JSON.stringify(responses[0]?.body.data))
        expect((await acme.list()).length).toBe(1)
        await qemuSpawned(appliance)
        await acme.end(responses[0]?.body.data.name ?? '')
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'a QEMU that is stopped in its tracks slows nobody down, and can be deleted',
      async () => {
        // Goal: SIGSTOP of one QEMU: listing stays fast, the delete completes by force.
        const { appliance, acme } = host
        const { name } = (await acme.create()).body.data
        await qemuSpawned(appliance)
        for (const pid of qemuProcesses(appliance.stateDir)) process.kill(pid, 'SIGSTOP')
        const startedMs = performance.now()
        for (let i = 0; i < 20; i += 1) await acme.list()
        // Each of them would wait for that QEMU's answer as long.
        expect(performance.now() - startedMs).toBeLessThan(40_000)
        await acme.end(name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'killed at any moment of a launch, then deleted: nothing is left',
      async () => {
        // Goal: over kills spread across the launch, restart converges and a delete releases everything.
        const { appliance, acme } = host
        for (const delayMs of launchDelays) {
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
        const { appliance, acme } = host
        const { name } = (await acme.create()).body.data
        // Killed before its start is on record it would be started anew.
        await until('the guest speaks', stepMs, () => consoleOf(appliance.stateDir) !== '')
        await appliance.kill()
        for (const pid of qemuProcesses(appliance.stateDir)) process.kill(pid, 'SIGKILL')
        await appliance.start()
        expect((await acme.reached(name, 'failed', stepMs)).failure_code).toBe('boot_failed')
        await allButTheConsoleIsReleased()
        await acme.end(name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'beyond capacity an instance waits its configured time for room, or fails with capacity_exhausted',
      async () => {
        // Goal: admission refuses what does not fit, frees what is released, and gives freed room to a waiting
        // instance.
        const { appliance, acme } = host
        const first = (await acme.create()).body.data.name
        await qemuSpawned(appliance)
        const [running] = qemuProcesses(appliance.stateDir)
        const second = (await acme.create()).body.data.name
        expect((await acme.retrieve(second)).status).toBe('provisioning')
        expect(qemuProcesses(appliance.stateDir)).toEqual([running ?? 0])
        await acme.end(first)
        await qemuSpawned(appliance)
        expect(qemuProcesses(appliance.stateDir)).not.toEqual([running ?? 0])

        await restartWith(appliance, [capacity(600_000), capacity(0)])
        const refused = (await acme.create()).body.data.name
        expect((await acme.reached(refused, 'failed', stepMs)).failure_code).toBe('capacity_exhausted')
        await acme.end(second)
        await acme.end(refused)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'killed at any moment of a refill of the pool, then drained: nothing is left',
      async () => {
        // Goal: over kills spread across the launch of pool VMs, restart converges and a drain releases everything.
        const { appliance } = host
        reconfigure(appliance, ['memory_mib = 2048', 'memory_mib = 4096'])
        for (const delayMs of refillDelays) {
          await restartWith(appliance, ['warm = 0', 'warm = 2'])
          await Bun.sleep(delayMs)
          await appliance.kill()
          reconfigure(appliance, ['warm = 2', 'warm = 0'])
          await appliance.start()
          await until(`nothing is left of a pool killed after ${delayMs} ms`, stepMs, () =>
            Bun.deepEquals(holdings(appliance.stateDir), NOTHING),
          )
        }
      },
      timeoutMs,
    )

    test(
      'a VM that never says hello becomes failed and is cleaned',
      async () => {
        // Goal: boot_timeout, with everything but the console released, and the message safe to show.
        const { appliance, acme } = host
        await restartWith(appliance, [patient, impatient])
        const { name } = (await acme.create()).body.data
        const failed = await acme.reached(name, 'failed', stepMs)
        expect(failed.failure_code).toBe('boot_timeout')
        expect(failed.failure_message).not.toMatch(/\/|qmp|qemu|ms/i)
        await until('QEMU is gone', stepMs, () => qemuProcesses(appliance.stateDir).length === 0)
        await allButTheConsoleIsReleased()
        await acme.end(name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'an image that is not what its manifest says gives launch_mismatch, and one that does not boot boot_failed',
      async () => {
        // Goal: an altered kernel is never launched; QEMU that cannot start (an invalid kernel) fails the instance, not
        // the daemon.
        const { appliance, acme } = host
        const kernel = join(image.directory, 'kernel')
        const sound = readFileSync(kernel)
        writeFileSync(kernel, new Uint8Array(sound.length).fill(1))
        const altered = (await acme.create()).body.data.name
        expect(await acme.reached(altered, 'failed', stepMs)).toMatchObject({
          failure_code: 'launch_mismatch',
          failure_message: 'The virtual machine was not launched from what this host expects: kernel.',
        })
        expect(qemuProcesses(appliance.stateDir)).toEqual([])
        await acme.end(altered)
        await image.breakKernel()
        const broken = (await acme.create()).body.data.name
        expect((await acme.reached(broken, 'failed', stepMs)).failure_code).toBe('boot_failed')
        expect(appliance.log()).toMatch(/invalid kernel header|linux kernel too old/)
        await acme.end(broken)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )
  },
  { timeoutMs: 3 * timeoutMs },
)

/** Console of its one VM, from the daemon's file. */
function consoleOf(stateDir: string): string {
  const vms = join(stateDir, 'vms')
  const paths = existsSync(vms) ? readdirSync(vms).map(id => join(vms, id, consoleFiles.current)) : []
  return paths.map(path => (existsSync(path) ? readFileSync(path, 'utf8') : '')).join('')
}
