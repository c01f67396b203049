import { expect, test } from 'bun:test'
import { existsSync, readdirSync, readFileSync, statSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { type Appliance, createAppliance } from '../rigs/appliance.ts'
import { createCustomer, startWithCustomer } from '../rigs/instances-client.ts'
import { holdings, NOTHING } from '../rigs/leftovers.ts'
import { inOwnNetns } from '../rigs/netns.ts'
import { until } from '../rigs/until.ts'

const timeoutMs = 300_000
const readyTimeoutMs = 150_000

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'an instance has room for its work on an encrypted disk, whose file shrinks and goes with it',
      async () => {
        // Goal: a home larger than half of the memory; the host cannot read it; a restarted daemon and a delete know of it.
        await using started = await startWithCustomer('scratch_gib = 4')
        const { appliance, acme } = started
        const { name } = (await acme.create()).body.data
        const { hostname } = await acme.reached(name, 'ready', readyTimeoutMs)
        const size = await appliance.ssh(hostname, ['df -m --output=size ~ /var /tmp /usr | tail -n +2'])
        for (const mib of size.stdout.trim().split(/\s+/).map(Number)) expect(mib).toBeGreaterThan(3_800)
        const written = await appliance.ssh(hostname, [
          'yes "what only the guest may know" | head -c 64M >~/marker && sync -f ~/marker && echo done',
        ])
        expect(written.stdout).toBe('done\n')
        const path = scratchFile(appliance)
        expect(statSync(path)).toMatchObject({ uid: 0, mode: 0o100600, size: 4 * 2 ** 30 })
        expect(statSync(path).blocks * 512).toBeGreaterThan(64 * 2 ** 20)
        expect(await Bun.spawn(['grep', '-qF', 'what only the guest', path]).exited).toBe(1)

        await appliance.kill()
        await appliance.start()
        expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })
        await acme.end(name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'a full disk refuses a create, and pauses the VM that meets it until there is room again',
      async () => {
        // Goal: the host's disk is not promised twice; ENOSPC ends nobody, and what was written is whole afterwards.
        await using appliance = await createAppliance(
          'scratch_gib = 4',
          'vm',
          undefined,
          '[capacity]\nscratch_gib = 4\n',
        )
        await using _small = await smallDisk(appliance.stateDir)
        await appliance.start()
        const acme = await createCustomer(appliance, 'acme')
        const { name } = (await acme.create()).body.data
        const refused = (await acme.create()).body.data.name
        expect((await acme.reached(refused, 'failed', 10_000)).failure_code).toBe('capacity_exhausted')
        await acme.end(refused)
        const { hostname } = await acme.reached(name, 'ready', readyTimeoutMs)
        const filler = join(appliance.stateDir, 'filler')
        expect(await Bun.spawn(['fallocate', '--length', '1350M', filler]).exited).toBe(0)
        const session = appliance.sshSession(
          hostname,
          'head -c 256M /dev/zero >~/zeros && sync -f ~/zeros; sha256sum ~/zeros',
        )
        await until('the VM is paused', readyTimeoutMs, () => appliance.log().includes('a VM is paused'))
        expect((await acme.retrieve(name)).status).toBe('ready')
        unlinkSync(filler)
        await until('it runs again', 30_000, () => appliance.log().includes('a paused VM runs again'))
        // SHA-256 of 256 MiB of zeros.
        await session.printed('a6d72ac7690f53be6ae46ba88506bd97302a093f7108472bd9efc3cefda06484')
        expect(await session.exited).toBe(0)
        await acme.end(name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )

    test(
      'without a scratch disk an instance works in its memory',
      async () => {
        // Goal: 0 is as it was before there were scratch disks.
        await using started = await startWithCustomer('scratch_gib = 0')
        const { appliance, acme } = started
        const { name } = (await acme.create()).body.data
        const { hostname } = await acme.reached(name, 'ready', readyTimeoutMs)
        const size = await appliance.ssh(hostname, ['df -m --output=size ~ | tail -n 1'])
        expect(Number(size.stdout)).toBeLessThan(1_025)
        expect(existsSync(scratchFile(appliance))).toBe(false)
        await acme.end(name)
      },
      timeoutMs,
    )
  },
  { timeoutMs: 3 * timeoutMs },
)

function scratchFile({ stateDir }: Appliance): string {
  const [vmId = ''] = readdirSync(join(stateDir, 'vms'))
  return join(stateDir, 'vms', vmId, 'scratch.img')
}

/** A file system of 1.5 GiB for the state directory. */
async function smallDisk(stateDir: string): Promise<AsyncDisposable> {
  const mount = async (...argv: string[]) => {
    if ((await Bun.spawn(argv).exited) !== 0) throw new Error(`${argv.join(' ')} failed`)
  }
  await mount('mkdir', '-p', stateDir)
  await mount('mount', '-t', 'tmpfs', '-o', 'size=1500m,mode=0700', 'strongroom-test', stateDir)
  expect(readFileSync('/proc/mounts', 'utf8')).toContain(stateDir)
  return { [Symbol.asyncDispose]: () => mount('umount', '--lazy', stateDir) }
}
