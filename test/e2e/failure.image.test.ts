import { expect, test } from 'bun:test'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { imageDir } from '../../scripts/rigs/appliance.ts'
import { insideVms } from '../../scripts/rigs/inside.ts'
import { qemuSpawned, startWithCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING, qemuProcesses } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import { sha256 } from '../../src/attest/hash.ts'
import { launchDigest } from '../../src/attest/launch/digest.ts'
import { toHex } from '../../src/base/bytes.ts'
import { defaultConfig } from '../../src/config/load.ts'

const timeoutMs = 120_000
/** Two boots, and minutes of silence. */
const lossTimeoutMs = 600_000

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'a VM that never says hello becomes failed and is cleaned',
      async () => {
        // Goal: boot_timeout, with everything but the console released, and the message safe to show.
        await using started = await startWithCustomer('boot_timeout_ms = 1500', 'vm')
        const { appliance, acme } = started
        const { name } = (await acme.create()).body.data
        const failed = await acme.reached(name, 'failed', 60_000)
        expect(failed.failure_code).toBe('boot_timeout')
        expect(failed.failure_message).not.toMatch(/\/|qmp|qemu|ms/i)
        await until('QEMU is gone', 60_000, () => qemuProcesses(appliance.stateDir).length === 0)
        await until('all but the console is released', 60_000, () =>
          Bun.deepEquals({ ...holdings(appliance.stateDir), directories: [] }, NOTHING),
        )
        expect(holdings(appliance.stateDir).directories).toEqual([expect.any(String)])
        await acme.end(name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'an image that does not boot gives boot_failed, and one that is not what its manifest says launch_mismatch',
      async () => {
        // Goal: QEMU that cannot start (an invalid kernel) fails the instance, not the daemon; an altered kernel is
        // never launched.
        using broken = await brokenImage()
        await using started = await startWithCustomer('', 'vm', broken.directory)
        const { acme, appliance } = started
        const { name } = (await acme.create()).body.data
        expect(await acme.reached(name, 'failed', 60_000)).toMatchObject({
          failure_code: 'launch_mismatch',
          failure_message: 'The virtual machine was not launched from what this host expects: kernel.',
        })
        expect(qemuProcesses(appliance.stateDir)).toEqual([])
        await acme.end(name)
        await broken.admitKernel()
        const again = (await acme.create()).body.data.name
        expect((await acme.reached(again, 'failed', 60_000)).failure_code).toBe('boot_failed')
      },
      timeoutMs,
    )

    test(
      'beyond capacity an instance fails with capacity_exhausted, or waits its configured time for room',
      async () => {
        // Goal: admission refuses what does not fit, frees what is released, and gives freed room to a waiting
        // instance.
        await using started = await startWithCustomer('memory_mib = 2048\nwait_ms = 600000', 'capacity')
        const { appliance, acme } = started
        const first = (await acme.create()).body.data.name
        await qemuSpawned(appliance)
        const second = (await acme.create()).body.data.name
        expect((await acme.retrieve(second)).status).toBe('provisioning')
        expect(qemuProcesses(appliance.stateDir).length).toBe(1)
        await acme.end(first)
        await qemuSpawned(appliance)
        await acme.end(second)

        await appliance.stop()

        await using strict = await startWithCustomer('memory_mib = 2048', 'capacity')
        const fits = (await strict.acme.create()).body.data.name
        await qemuSpawned(strict.appliance)
        const refused = (await strict.acme.create()).body.data.name
        expect((await strict.acme.reached(refused, 'failed', 60_000)).failure_code).toBe('capacity_exhausted')
        await strict.acme.end(fits)
        expect(holdings(strict.appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'a hundred creates with one Idempotency-Key make one VM, and a kill -9 makes no second one',
      async () => {
        // Goal: identical responses, one record, one QEMU; the same after a crash and restart.
        await using started = await startWithCustomer()
        const { appliance, acme } = started
        const responses = await Promise.all(Array.from({ length: 100 }, () => acme.create('one')))
        expect(new Set(responses.map(response => response.status))).toEqual(new Set([202]))
        expect(new Set(responses.map(response => JSON.stringify(response.body.data))).size).toBe(1)
        expect(new Set(responses.map(response => response.body.request_id)).size).toBe(100)
        await appliance.kill()
        await appliance.start()
        expect(JSON.stringify((await acme.create('one')).body.data)).toBe(JSON.stringify(responses[0]?.body.data))
        expect((await acme.list()).length).toBe(1)
        await qemuSpawned(appliance)
        const name = responses[0]?.body.data.name ?? ''
        await acme.end(name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'a QEMU that is stopped in its tracks slows nobody down, and can be deleted',
      async () => {
        // Goal: SIGSTOP of one QEMU: listing stays fast, the delete completes by force.
        await using started = await startWithCustomer()
        const { appliance, acme } = started
        const { name } = (await acme.create()).body.data
        await qemuSpawned(appliance)
        for (const pid of qemuProcesses(appliance.stateDir)) process.kill(pid, 'SIGSTOP')
        const startedMs = performance.now()
        for (let i = 0; i < 20; i += 1) await acme.list()
        // Each of them would wait for that QEMU's answer as long.
        expect(performance.now() - startedMs).toBeLessThan(40_000)
        await acme.end(name, 60_000)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'a ready instance whose QEMU is stopped or whose interface is lost is failed with its own code, and its name leads nowhere',
      async () => {
        // Goal: `ready` is looked at again (issue 9), in a whole appliance: real QMP, real tap, real DNS.
        await using started = await startWithCustomer()
        const { appliance, acme } = started
        const ready = async () => {
          const { name } = (await acme.create()).body.data
          const { hostname } = await acme.reached(name, 'ready', 180_000)
          expect(await appliance.resolve(hostname)).not.toBeNull()
          return { name, hostname }
        }
        const lost = async (
          { name, hostname }: Awaited<ReturnType<typeof ready>>,
          code: 'agent_unreachable' | 'network_lost',
        ) => {
          expect((await acme.reached(name, 'failed', 150_000)).failure_code).toBe(code)
          expect(await appliance.resolve(hostname)).toBeNull()
          await acme.end(name)
        }
        const silent = await ready()
        const [tap = ''] = holdings(appliance.stateDir).taps
        stopQemu(appliance.stateDir)
        // It takes more than a minute until silence counts as a loss: the other one boots meanwhile.
        const cut = await ready()
        const [otherTap = ''] = holdings(appliance.stateDir).taps.filter(name => name !== tap)
        Bun.spawnSync(insideVms(['ip', 'link', 'delete', 'dev', otherTap]))
        await lost(cut, 'network_lost')
        await lost(silent, 'agent_unreachable')
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      lossTimeoutMs,
    )
  },
  { timeoutMs: timeoutMs + lossTimeoutMs },
)

function stopQemu(stateDir: string): void {
  for (const pid of qemuProcesses(stateDir)) process.kill(pid, 'SIGSTOP')
}

/** The image with another kernel, which is none, of the size that the manifest says. */
async function brokenImage() {
  const directory = mkdtempSync(join(tmpdir(), 'srt-image-'))
  const sound = await imageDir()
  const kernel = new Uint8Array(4096).fill(1)
  writeFileSync(join(directory, 'kernel'), kernel)
  for (const file of ['firmware.fd', 'initrd', 'cmdline']) cpSync(join(sound, file), join(directory, file))
  symlinkSync(join(sound, 'root.img'), join(directory, 'root.img'))
  const manifest = JSON.parse(readFileSync(join(sound, 'manifest.json'), 'utf8'))
  manifest.files.kernel.sizeBytes = kernel.length
  const write = () => {
    writeFileSync(join(directory, 'manifest.json'), JSON.stringify(manifest))
    Bun.spawnSync(['chmod', '-R', 'go+rX', directory])
  }
  write()
  return {
    directory,
    /** From now on the manifest says that this is the kernel. */
    admitKernel: async () => {
      const read = (file: string) => new Uint8Array(readFileSync(join(directory, file)))
      const cmdline = readFileSync(join(directory, 'cmdline'), 'utf8')
      const { vcpus, vcpu_type: vcpuType } = defaultConfig().vm
      const { digest } = await launchDigest({
        firmware: read('firmware.fd'),
        kernel,
        initrd: read('initrd'),
        cmdline,
        vcpus,
        vcpuType,
        features: 1n,
        profile: 'qemu-kvm',
      })
      manifest.files.kernel.sha256 = toHex(sha256(kernel))
      manifest.launchDigests[`qemu-kvm/bios/${vcpuType}/${vcpus}`] = toHex(digest)
      write()
    },
    [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }),
  }
}
