// An instance with IPv6 alone: its scratch disk on a hostile or full host, and attacks of its customer
// on the own VM with everything an instance has. One VM, one boot. A VM without a scratch disk is in
// crash.image.test.ts.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statfsSync, statSync, unlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { type Appliance, createAppliance } from '../../../scripts/rigs/appliance.ts'
import { type Customer, createCustomer } from '../../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING } from '../../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { expectNetwork } from '../../rigs/instances/expect-network.ts'
import { blockBytes, middleOf, openScratchFile } from '../../rigs/launch/scratch-host.ts'

const timeoutMs = 1_200_000
const readyTimeoutMs = 900_000
const stepMs = 120_000
const listMsMax = 2_000
const MiB = 2 ** 20
const markerMiB = 16
const keptMiB = 8
const [zerosMiB, leftMiB] = [96, 40]
/** Files of each program. Few meet the same blocks as many do, and a fault shows less often. */
const filesEach = runsAll ? 2000 : 500

/** Eight programs make files in the same groups of inodes at once. */
const manyFiles = `mkdir ~/many && cd ~/many
  for p in 1 2 3 4 5 6 7 8; do (mkdir $p; i=0; while [ $i -lt ${filesEach} ] && : >$p/$i; do i=$((i+1)); done) & done
  wait; find . -type f | wc -l; cd; rm -r many`

inOwnNetns(
  import.meta.path,
  () => {
    const undo = new AsyncDisposableStack()
    let appliance: Appliance
    let acme: Customer
    let name = ''
    let hostname = ''

    beforeAll(async () => {
      const settings = 'scratch_gib = 4\nmemory_mib = 1024\nstop_grace_ms = 2_000\nboot_timeout_ms = 900_000'
      const lines = {
        listen: 'inference = "[::]:8442"',
        inference: 'placement = "host"',
        network: 'pool_v4 = ""\npool_v6 = "2001:db8:88::/64"\nresolvers = ["2620:fe::9"]',
      }
      appliance = undo.use(await createAppliance(settings, 'vm', undefined, '[capacity]\nscratch_gib = 4\n', lines))
      undo.use(await smallDisk(appliance.stateDir))
      await appliance.start()
      acme = await createCustomer(appliance, 'acme')
      name = (await acme.create()).body.data.name
    }, timeoutMs)
    afterAll(() => undo.disposeAsync())

    test(
      'a disk that is promised is not promised twice',
      async () => {
        // Goal: an instance that could not have its disk is refused.
        const refused = (await acme.create()).body.data.name
        expect((await acme.reached(refused, 'failed', 60_000)).failure_code).toBe('capacity_exhausted')
        await acme.end(refused)
      },
      timeoutMs,
    )

    test(
      'an instance with IPv6 alone becomes ready, is named and logged in to',
      async () => {
        // Goal: nothing on the way of an instance needs IPv4.
        hostname = (await acme.reached(name, 'ready', readyTimeoutMs)).hostname
        const address = (await appliance.resolveV6(hostname)) ?? ''
        expect(address).toMatch(/^2001:db8:88::/)
        // There is no IPv4 address.
        expect(await appliance.resolve(hostname)).toBe(address)
        await expectNetwork(appliance, hostname, {
          address,
          families: ['inet6'],
          holds: ['nameserver 2620:fe::9\n', 'fd73:7472:6f6e:67::1 inference.strongroom.internal\n'],
        })
        // The refused instance is the only one that failed.
        const errors = appliance
          .log()
          .split('\n')
          .filter(line => line.includes('"level":"error"'))
        // Nor is a gateway configured, which is a problem of its own.
        const expected = /"capacity_exhausted"|"problem":"models"/
        expect(errors.filter(line => !expected.test(line))).toEqual([])
        expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })
      },
      timeoutMs,
    )

    test(
      'an instance has room for its work on an encrypted disk',
      async () => {
        // Goal: a home larger than half of the memory; files made side by side need no block that was never
        // written; the host can neither read nor alter it nor restore older content; it survives a daemon restart.
        const size = await appliance.ssh(hostname, ['df -m --output=size ~ /var /tmp /usr | tail -n +2'])
        for (const mib of size.stdout.trim().split(/\s+/).map(Number)) expect(mib).toBeGreaterThan(3_800)
        expect((await appliance.ssh(hostname, [manyFiles])).stdout).toBe(`${8 * filesEach}\n`)
        const written = await appliance.ssh(hostname, [
          `yes "what only the guest may know" | head -c ${markerMiB}M >~/marker && sync -f ~/marker && echo done`,
        ])
        expect(written.stdout).toBe('done\n')
        const path = scratchFile(appliance)
        expect(statSync(path)).toMatchObject({ uid: 0, mode: 0o100600, size: 4 * 2 ** 30 })
        expect(statSync(path).blocks * 512).toBeGreaterThan(markerMiB * MiB)
        expect(await Bun.spawn(['grep', '-qF', 'what only the guest', path]).exited).toBe(1)
        await tamper(appliance, hostname, path)
        await appliance.kill()
        await appliance.start()
        expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })
      },
      timeoutMs,
    )

    test(
      'a full disk pauses the VM that meets it until there is room again',
      async () => {
        // Goal: ENOSPC ends nobody, and what was written is whole afterwards. The disk goes with its instance.
        const filler = join(appliance.stateDir, 'filler')
        // The guest may still write what it has in memory, so that what was free is not free any more.
        await until('all but the last room is taken', stepMs, async () => {
          const { bavail, bsize } = statfsSync(appliance.stateDir)
          const length = String(bavail * bsize - leftMiB * MiB)
          return (await Bun.spawn(['fallocate', '--length', length, filler], { stderr: 'ignore' }).exited) === 0
        })
        const session = appliance.sshSession(
          hostname,
          `head -c ${zerosMiB}M /dev/zero >~/zeros && sync -f ~/zeros; sha256sum ~/zeros`,
        )
        await until('the VM is paused', readyTimeoutMs, () => appliance.log().includes('a VM is paused'))
        expect((await acme.retrieve(name)).status).toBe('ready')
        const listed = expect.arrayContaining([expect.objectContaining({ name: 'vm_paused', severity: 'critical' })])
        expect(await appliance.admin('status')).toMatchObject({ ready: false, problems: listed })
        unlinkSync(filler)
        await until('it runs again', 60_000, () => appliance.log().includes('a paused VM runs again'))
        const zeros = new Bun.CryptoHasher('sha256').update(new Uint8Array(zerosMiB * MiB)).digest('hex')
        await session.printed(zeros, readyTimeoutMs)
        expect(await session.exited).toBe(0)
        expect(await appliance.ssh(hostname, ['head -c 4 ~/marker'])).toMatchObject({ stdout: 'what' })
      },
      timeoutMs,
    )

    test(
      'a guest that fills its disk or its memory recovers, and one that only forks is deleted like any other',
      async () => {
        // Goal: what a guest does to itself costs the API nothing, and the host gets back all that it gave.
        const listMs = async () => {
          const startedMs = performance.now()
          await acme.list()
          return performance.now() - startedMs
        }

        const full = await appliance.ssh(hostname, [
          'fallocate -l $(($(df --output=avail -B1M ~ | tail -n 1) - 8))M ~/most; head -c 64M /dev/zero >~/rest; rm ~/most ~/rest; echo still here',
        ])
        expect(full.stderr).toContain('No space left on device')
        expect(full.stdout).toBe('still here\n')

        await appliance.ssh(hostname, ['tail /dev/zero'])
        await until('the guest serves SSH after it was out of memory', 180_000, async () => {
          return (await appliance.ssh(hostname, ['true'])).exitCode === 0
        })

        await appliance.ssh(hostname, ["setsid -f bash -c 'f() { f | f & }; f' >/dev/null 2>&1 </dev/null"])
        const times: number[] = []
        for (let at = 0; at < 21; at += 1) times.push(await listMs())
        // Half of them: now and then the machine has something else to do.
        expect(times.toSorted((a, b) => a - b)[10]).toBeLessThan(listMsMax)
        expect(['ready', 'failed']).toContain((await acme.retrieve(name)).status)
        await acme.end(name, stepMs)
        expect([await appliance.resolveV6(hostname), await appliance.resolve(hostname)]).toEqual([null, null])
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
        expect(await appliance.stop()).toBe(0)
      },
      timeoutMs,
    )
  },
  { timeoutMs: 2 * timeoutMs },
)

/** Every block is as the guest has written it last, or an error for whoever reads it; nothing else is touched by it. */
async function tamper(appliance: Appliance, hostname: string, path: string): Promise<void> {
  const shell = async (command: string) => (await appliance.ssh(hostname, [`sync; ${command}`])).stdout.trim()
  // Past the page cache of the guest.
  const content = () =>
    shell('set -o pipefail; dd if=~/kept iflag=direct bs=1M status=none 2>/dev/null | sha256sum; echo $?')
  const sha256 = (word: string) =>
    new Bun.CryptoHasher('sha256').update(`${word}\n`.repeat(keptMiB * MiB).slice(0, keptMiB * MiB)).digest('hex')
  const good = (word: string) => `${sha256(word)}  -\n0`
  const write = (word: string) =>
    shell(`yes ${word} | head -c ${keptMiB}M | dd of=~/kept conv=notrunc,fsync bs=1M status=none`)
  using undo = new DisposableStack()
  // The file system of the state is small.
  const copies = mkdtempSync(join(tmpdir(), 'scratch-'))
  undo.defer(() => rmSync(copies, { recursive: true, force: true }))
  using host = openScratchFile(path)
  {
    using before = await host.copy(join(copies, 'before'))
    await write('one')
    expect(await content()).toBe(good('one'))
    const block = middleOf(host.changedSince(before))
    const [kept, next] = [host.read(block), host.read(block + 1)]
    for (const [what, altered] of [
      ['a bit flipped', kept.with(7, (kept[7] ?? 0) ^ 1)],
      ['nothing', new Uint8Array(blockBytes)],
      ['another block of the same file', next],
      ['what was there before the file', before.read(block)],
    ] as const) {
      host.write(block, altered)
      expect([what, await content()]).toEqual([what, expect.stringMatching(/\n1$/)])
      // The others can be read: the first MiB, and everything else on the disk.
      expect(await shell('dd if=~/kept iflag=direct bs=1M count=1 status=none | head -c 4; ls ~')).toContain('one')
      host.write(block, kept)
      expect([what, await content()]).toEqual([what, good('one')])
    }
  }
  // The whole disk as it was earlier in this boot, each block with whatever belonged to it then.
  using older = await host.copy(join(copies, 'older'))
  await write('two')
  expect(await content()).toBe(good('two'))
  using newer = await host.copy(join(copies, 'newer'))
  const changed = newer.changedSince(older)
  expect(changed.length).toBeGreaterThanOrEqual((keptMiB * MiB) / blockBytes)
  host.take(older, changed)
  expect(await content()).toMatch(/\n1$/)
  host.take(
    newer,
    changed.filter(block => host.read(block).equals(older.read(block))),
  )
  expect(await content()).toBe(good('two'))
  expect(await shell('touch ~/still-writable && cat ~/marker | head -c 4')).toBe('what')
}

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
