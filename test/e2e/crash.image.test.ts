// A daemon that is killed while its instances boot, are claimed, serve and wait in the pool, and a
// host that changes below them: two VMs without a scratch disk in one appliance, one made for its
// instance and one from the pool. Launches that fail are in failure.image.test.ts; the kill while an
// instance terminates is in instance.image.test.ts.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { insideVms } from '../../scripts/rigs/inside.ts'
import { qemuSpawned, type Started, startWithCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING, qemuProcesses, tpmProcesses } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { openUplink, worldAddress } from '../../scripts/rigs/network/tap-wire.ts'
import { until } from '../../scripts/rigs/until.ts'
import type { AdminEvent, AdminInstance, AdminStatus } from '../../src/contract/admin/admin.ts'
import { adminSocketName } from '../../src/contract/admin/sockets.ts'
import { consoleFiles } from '../../src/host/qemu/console.ts'
import { attestation, failed, trustOf, verifyAttested } from '../rigs/instances/attested-owner.ts'
import { restartWith } from '../rigs/instances/reconfigured.ts'
import { formerLayout, output, usedBytes } from '../rigs/network/former-layout.ts'

const timeoutMs = 1_500_000
const bootedMs = 600_000
const stepMs = 120_000
/** In a private network, which is denied by default. */
const lanAddress = '10.1.2.3'

inOwnNetns(
  import.meta.path,
  () => {
    let host: Started
    /** Both become ready in these tests, by boots of their own. */
    const [made, taken] = [
      { name: '', hostname: '', vmId: '', tap: '' },
      { name: '', hostname: '', vmId: '' },
    ]
    beforeAll(async () => {
      // Longer than usual: it may boot beside other tests.
      const settings = 'boot_timeout_ms = 900_000\nscratch_gib = 0'
      host = await startWithCustomer(settings, 'vm', undefined, '[pool]\nwarm = 0\n')
    }, timeoutMs)
    afterAll(() => host?.[Symbol.asyncDispose]())

    const vmOf = async (name: string) =>
      (await host.appliance.admin<AdminInstance>('instance', 'show', `acme/${name}`)).vm?.id ?? 'no VM'

    test(
      'killed while QEMU starts, while the guest boots and while it is claimed, the daemon takes up where it was',
      async () => {
        // Goal: one VM, with its TPM, survives all and becomes ready, attested once: nothing of an attested claim lives
        // in the daemon alone.
        const { appliance, acme } = host
        Object.assign(made, (await acme.create()).body.data)
        await qemuSpawned(appliance)
        await appliance.kill()
        const [tpm] = tpmProcesses(appliance.stateDir)
        expect(tpm).toBeGreaterThan(0)
        await appliance.start()
        // Some seconds in.
        await until('the guest kernel speaks', bootedMs, () => consoleOf(appliance.stateDir).includes('agent started'))
        const [pid] = qemuProcesses(appliance.stateDir)
        expect((await appliance.cli('instance', 'console', `acme/${made.name}`)).stdout).toContain('agent started')
        await appliance.kill()
        await appliance.start()
        const vm = async () =>
          (await appliance.admin<{ vm: { id: string; state: string } | null }>('instance', 'show', `acme/${made.name}`))
            .vm
        await until('its VM runs', bootedMs, async () => (await vm())?.state === 'running')
        const running = await vm()
        await appliance.kill()
        await appliance.start()
        await acme.reached(made.name, 'ready', bootedMs)
        expect((await vm())?.id).toBe(running?.id)
        expect(qemuProcesses(appliance.stateDir)).toEqual([pid ?? 0])
        expect(tpmProcesses(appliance.stateDir)).toEqual([tpm ?? 0])
        const kept = await attestation(appliance, acme, made.name)
        const asked = { organization: 'acme', name: made.name, hostname: made.hostname, nonce: kept.nonce }
        const verdict = await verifyAttested(kept, asked, await trustOf(appliance))
        expect([verdict.ok, failed(verdict)]).toEqual([true, []])
        made.vmId = await vmOf(made.name)
        made.tap = holdings(appliance.stateDir).taps[0] ?? ''
      },
      timeoutMs,
    )

    test(
      'without a scratch disk an instance works in its memory',
      async () => {
        // Goal: 0 GiB is as it was before there were scratch disks. Half of its 2 GiB is the most that it may fill.
        const { appliance } = host
        const { stdout } = await appliance.ssh(made.hostname, ['df -m --output=size ~ | tail -n 1'])
        expect(Number(stdout)).toBeGreaterThan(0)
        expect(Number(stdout)).toBeLessThan(1_025)
        const files = readdirSync(join(appliance.stateDir, 'vms', made.vmId))
        expect(files).toContain(consoleFiles.current)
        expect(files).not.toContain('scratch.img')
      },
      timeoutMs,
    )

    test(
      'flushes of the host, a kill while ready and an upgrade from the former layout leave SSH and names as they were, open nothing and lose no count',
      async () => {
        // Goal: a real guest with an SSH session notices none of them, and its count goes on.
        const { appliance, acme } = host
        const { name, hostname, tap } = made
        using uplink = await openUplink()
        output(['ip', 'route', 'add', lanAddress, 'via', worldAddress])
        const address = (await appliance.resolve(hostname)) ?? ''
        const toLan = (count: number) =>
          `for i in $(seq ${count}); do echo x > /dev/udp/${lanAddress}/9; done 2>/dev/null`
        const arrivedInLan = () =>
          uplink.left().filter(packet => Bun.deepEquals([...packet.subarray(16, 20)], [10, 1, 2, 3])).length
        const session = appliance.sshSession(
          hostname,
          `while read line && [ $line != bye ]; do ${toLan(20)}; echo "heard $line"; done`,
        )
        const answers = async (word: string) => {
          session.type(`${word}\n`)
          await session.printed(`heard ${word}`, stepMs)
        }
        await answers('first')

        for (let turn = 0; turn < 4; turn += 1) {
          output(['nft', 'flush', 'ruleset'])
          await answers(`flush-${turn}`)
        }
        await appliance.kill()
        await answers('killed')
        for (let turn = 0; turn < 4; turn += 1) {
          output(['nft', 'flush', 'ruleset'])
          await answers(`down-${turn}`)
        }
        expect(arrivedInLan()).toBe(0)

        const used = formerLayout(tap, address)
        await answers('former')
        // That table has none of the former rules, but for the count.
        uplink.left()
        await appliance.start()
        await until('the VM is reached again', stepMs, async () => {
          const { routes } = holdings(appliance.stateDir)
          return routes.filter(route => route === address).length === 2
        })
        await answers('taken-over')
        expect((await acme.retrieve(name)).status).toBe('ready')
        expect(await appliance.resolve(hostname)).toBe(address)
        expect((await appliance.ssh(hostname, ['echo', 'again'])).stdout).toBe('again\n')
        expect(arrivedInLan()).toBe(0)
        expect(usedBytes(tap)).toBeGreaterThan(used)
        expect(output(['nft', 'list', 'tables'])).toBe('table inet strongroom\n')
        expect(output(['ip', '-json', 'link', 'show', 'type', 'tun'])).not.toContain(tap)
        expect(appliance.log()).toContain('were moved into their own network namespace')
        expect(await appliance.admin<{ leaks: unknown[] }>('doctor', '--leaks')).toMatchObject({ leaks: [] })
        session.type('bye\n')
        expect(await session.exited).toBe(0)
      },
      timeoutMs,
    )

    test(
      'an instance on a warm VM, the refill with a daemon that is killed, and the end of the pool',
      async () => {
        // Goal: the instance gets the waiting VM; kill -9 after the take or in the refill neither duplicates nor
        // loses a VM.
        const { appliance, acme } = host
        const qemus = () => qemuProcesses(appliance.stateDir)
        await restartWith(appliance, ['warm = 0', 'warm = 1'])
        // Killed while the VM of the pool boots.
        await until('the refill has begun', stepMs, () => qemus().length === 2)
        const both = qemus()
        await appliance.kill()
        await appliance.start()
        await warm(appliance.stateDir, 1)
        expect(qemus()).toEqual(both)
        expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })

        // Killed as soon as the create is accepted: the commit alone has given the VM away.
        Object.assign(taken, (await acme.create('once')).body.data)
        await appliance.kill()
        await appliance.start()
        expect((await acme.create('once')).body.data.name).toBe(taken.name)
        await acme.reached(taken.name, 'ready', bootedMs)
        taken.vmId = await vmOf(taken.name)
        expect(taken.vmId).not.toBe(made.vmId)
        expect(both.map(commandLine).some(argv => argv.includes(taken.vmId))).toBe(true)
        const { events } = await appliance.admin<{ events: AdminEvent[] }>('instance', 'logs', `acme/${taken.name}`)
        expect(events.find(event => event.kind === 'instance.accepted')?.detail).toMatchObject({ start: 'warm' })
        expect(events.map(event => event.kind)).toContain('instance.ready')
        expect((await appliance.ssh(taken.hostname, ['hostname'])).stdout.trim()).toBe(taken.name)

        // Drained while the next VM boots, and nothing but the instances left.
        await until('the next refill has begun', stepMs, () => qemus().length === 3)
        await restartWith(appliance, ['warm = 1', 'warm = 0'])
        await until('the pool is drained', stepMs, () => qemus().length === 2)
        expect(qemus()).toEqual(both)
        expect((await statusOf(appliance.stateDir)).pool).toMatchObject({ wanted: 0, warm: 0, booting: 0 })
        expect((await appliance.ssh(taken.hostname, ['true'])).exitCode).toBe(0)
        // Its VM may be going at this moment: what is still there after that is a leak.
        await until('nothing of the pool is left', stepMs, async () => {
          const { exitCode } = await appliance.cli('doctor', '--leaks')
          return exitCode === 0
        })
      },
      timeoutMs,
    )

    test(
      'a ready instance whose QEMU is stopped or whose interface is lost is failed with its own code, and its name leads nowhere',
      async () => {
        // Goal: `ready` is looked at again, in a whole appliance: real QMP, real tap, real DNS.
        const { appliance, acme } = host
        const lost = async ({ name, hostname }: typeof taken, code: 'agent_unreachable' | 'network_lost') => {
          expect((await acme.reached(name, 'failed', 300_000)).failure_code).toBe(code)
          expect(await appliance.resolve(hostname)).toBeNull()
        }
        for (const { name, hostname } of [made, taken]) {
          expect((await acme.retrieve(name)).status).toBe('ready')
          expect(await appliance.resolve(hostname)).not.toBeNull()
        }
        // Silence counts as a loss after more than a minute.
        const silent = qemuProcesses(appliance.stateDir).find(pid => commandLine(pid).includes(taken.vmId)) ?? 0
        process.kill(silent, 'SIGSTOP')
        output(insideVms(['ip', 'link', 'delete', 'dev', made.tap]))
        await lost(made, 'network_lost')
        await lost(taken, 'agent_unreachable')
        await acme.end(made.name)
        await acme.end(taken.name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)

/** Not by the command line: its start costs what a VM needs to boot. */
async function statusOf(stateDir: string): Promise<AdminStatus> {
  const response = await fetch('http://operator/status', { unix: join(stateDir, adminSocketName) })
  expect(response.status).toBe(200)
  return (await response.json()) as AdminStatus
}

async function warm(stateDir: string, count: number): Promise<void> {
  await until(`${count} VMs are warm`, bootedMs, async () => {
    const { pool } = await statusOf(stateDir)
    if (pool.last_failure !== null) throw new Error(`the pool failed: ${pool.last_failure.reason}`)
    return pool.warm === count
  })
}

function commandLine(pid: number): string {
  return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
}

/** Console of its one VM, from the daemon's file: running the command would take CPU from the booting guest. */
function consoleOf(stateDir: string): string {
  const vms = join(stateDir, 'vms')
  const paths = existsSync(vms) ? readdirSync(vms).map(id => join(vms, id, consoleFiles.current)) : []
  return paths.map(path => (existsSync(path) ? readFileSync(path, 'utf8') : '')).join('')
}
