// Faults of the host while the daemon serves: a full disk, a locked database, clients that only connect. One
// appliance on a small disk of its own; no VM boots.

import { Database } from 'bun:sqlite'
import { afterAll, beforeAll, expect, test } from 'bun:test'
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Appliance, createAppliance } from '../../scripts/rigs/appliance.ts'
import { type Customer, createCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { writeLaunchImage } from '../../scripts/rigs/launch/launch-image.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import { fillDisk, smallDisk } from '../rigs/small-disk.ts'

const timeoutMs = 300_000
const stepMs = 60_000
const stateMib = 32
const idleCount = 200
/**
 * Instances fail at once, and not for want of room for a scratch disk. On a full disk some hundred creates may still be
 * accepted: the database's log has room left within its file. No limit refuses them before the disk does.
 */
const lines = {
  vm: 'qemu = "/bin/false"\nscratch_gib = 0',
  capacity: 'instances_per_organization_max = 10_000',
  instances: 'creates_per_day_max = 10_000',
}

inOwnNetns(
  import.meta.path,
  () => {
    const ending = new AsyncDisposableStack()
    let image: Awaited<ReturnType<typeof smallImage>>
    let appliance: Appliance
    let acme: Customer
    beforeAll(async () => {
      image = ending.use(await smallImage())
      appliance = ending.use(await createAppliance('', 'vm', image.directory, '', lines))
      ending.use(smallDisk(appliance.stateDir, stateMib))
      await appliance.start()
      acme = await createCustomer(appliance, 'acme')
      const root = join(appliance.stateDir, 'simulator/root.pem')
      await until('the simulated platform is made', stepMs, () => existsSync(root))
    }, timeoutMs)
    afterAll(() => ending.disposeAsync())

    test(
      'while another process holds the database, the API stays readable, and a create is refused or kept',
      async () => {
        // Goal: SQLITE_BUSY ends in an answer, and the daemon goes on when the database is free.
        const holder = new Database(join(appliance.stateDir, 'strongroom.db'))
        holder.run('BEGIN IMMEDIATE')
        const held = await acme.create('held')
        expect(held.status).toBe(503)
        expect(await acme.list()).toEqual([])
        holder.run('ROLLBACK')
        holder.close()
        expect((await acme.create('held')).status).toBe(202)
        expect(await acme.list()).toHaveLength(1)
      },
      timeoutMs,
    )

    test(
      'clients that connect and send nothing do not keep others out',
      async () => {
        // Goal: 200 silent connections to the API cost others nothing that they would notice.
        const { hostname, port } = new URL(appliance.url)
        const idle = await Promise.all(Array.from({ length: idleCount }, () => connected(hostname, Number(port))))
        const startedMs = performance.now()
        for (let at = 0; at < 20; at += 1) expect(await acme.list()).toHaveLength(1)
        expect(performance.now() - startedMs).toBeLessThan(30_000)
        expect((await acme.create()).status).toBe(202)
        for (const socket of idle) socket.destroy()
      },
      timeoutMs,
    )

    test(
      'an image file that is damaged or gone fails what is created with a code, and nothing else; doctor names the file; put right, it is used',
      async () => {
        // Goal: the daemon serves whatever happens to the image, even without one at the start, and says where to
        // look.
        const failureOf = async () => {
          const { name } = (await acme.create()).body.data
          const { failure_code } = await acme.reached(name, 'failed', stepMs)
          await acme.end(name)
          return failure_code
        }
        const faultsLogged = () => {
          const lines = appliance.log().split('\n')
          return lines.filter(line => line.includes('a VM could not be started') && line.includes('image.invalid'))
            .length
        }
        // There is no QEMU to boot it.
        expect([await failureOf(), faultsLogged()]).toEqual(['boot_failed', 0])
        // Doctor looks at one damage of each kind of file, which is then put right.
        for (const [file, damage, code, isLooked] of [
          ['kernel', flipBit, 'launch_mismatch', true],
          ['initrd', flipBit, 'launch_mismatch', false],
          ['root', (path: string) => truncateSync(path, 1), 'boot_failed', true],
          ['kernel', (path: string) => rmSync(path), 'boot_failed', false],
          ['manifest.json', (path: string) => truncateSync(path, 10), 'boot_failed', false],
          ['manifest.json', (path: string) => rmSync(path), 'boot_failed', true],
        ] as const) {
          const path = join(image.directory, file)
          const whole = readFileSync(path)
          damage(path)
          if (file === 'manifest.json') {
            await appliance.kill()
            await appliance.start()
          }
          const before = faultsLogged()
          expect([file, await failureOf()]).toEqual([file, code])
          if (code === 'boot_failed') {
            expect(faultsLogged()).toBeGreaterThan(before)
            expect(appliance.log()).toContain(path)
          }
          if (isLooked) {
            const { exitCode, stdout } = await appliance.cli('doctor', '--json')
            expect([exitCode, stdout.includes(path)]).toEqual([1, true])
          }
          writeFileSync(path, whole)
          if (!isLooked) continue
          const mended = faultsLogged()
          expect([file, await failureOf(), faultsLogged()]).toEqual([file, 'boot_failed', mended])
        }
        expect(await acme.usage()).toBeDefined()
      },
      timeoutMs,
    )

    test(
      'with a full disk the API stays readable, creates are refused, and with room again all goes on',
      async () => {
        // Goal: what was accepted before is there after; what could not be kept was not accepted.
        const first = (await acme.create('first')).body.data.name
        const before = (await acme.list()).length

        const ballast = fillDisk(appliance.stateDir)
        const accepted = await createUntilRefused(acme)
        expect(await acme.list()).toHaveLength(before + accepted)
        expect((await acme.retrieve(first)).name).toBe(first)

        rmSync(ballast)
        expect((await acme.create('second')).status).toBe(202)
        await appliance.kill()
        await appliance.start()
        expect(await acme.list()).toHaveLength(before + accepted + 1)
        expect((await acme.create('first')).body.data.name).toBe(first)
        expect(integrityOf(appliance.stateDir)).toEqual(['ok'])
      },
      timeoutMs,
    )

    test(
      'a daemon that is killed while its disk is full says so at its next start, and starts once there is room',
      async () => {
        // Goal: a full disk is not reported as a broken database.
        const { name } = (await acme.create('first')).body.data
        const ballast = fillDisk(appliance.stateDir)
        await createUntilRefused(acme)
        const count = (await acme.list()).length
        await appliance.kill()
        const answer = await appliance.start().then(
          () => 'it started',
          error => String(error),
        )
        if (answer !== 'it started') expect(answer).toMatch(/disk|space|full/i)
        await appliance.kill()
        rmSync(ballast)
        await appliance.start()
        expect((await acme.list()).length).toBe(count)
        expect((await acme.create('first')).body.data.name).toBe(name)
        expect(integrityOf(appliance.stateDir)).toEqual(['ok'])
      },
      timeoutMs,
    )
  },
  { timeoutMs: 2 * timeoutMs },
)

/** For want of room, with 503. Returns how many were accepted before that. */
async function createUntilRefused(acme: Customer): Promise<number> {
  const statuses: number[] = []
  await until('a create is refused', 100_000, async () => {
    statuses.push((await acme.create()).status)
    return statuses.at(-1) !== 202
  })
  expect(statuses.at(-1)).toBe(503)
  return statuses.length - 1
}

/** A few kilobytes, whole but for being bootable. */
async function smallImage(): Promise<{ readonly directory: string } & Disposable> {
  const directory = mkdtempSync(join(tmpdir(), 'srt-image-'))
  chmodSync(directory, 0o755)
  await writeLaunchImage(directory)
  return { directory, [Symbol.dispose]: () => rmSync(directory, { recursive: true }) }
}

function flipBit(path: string): void {
  const bytes = readFileSync(path)
  bytes[0] = (bytes[0] ?? 0) ^ 1
  writeFileSync(path, bytes)
}

function integrityOf(stateDir: string): string[] {
  using db = new Database(join(stateDir, 'strongroom.db'), { readonly: true })
  return db
    .query<{ integrity_check: string }, []>('PRAGMA integrity_check')
    .all()
    .map(row => row.integrity_check)
}

function connected(host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port }, () => resolve(socket))
    socket.on('error', reject)
  })
}
