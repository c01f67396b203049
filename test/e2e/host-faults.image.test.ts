// What the host does to a daemon that serves: a full disk, a database that somebody else holds, clients that only connect. No VM boots.

import { Database } from 'bun:sqlite'
import { expect, test } from 'bun:test'
import { rmSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { createAppliance } from '../rigs/appliance.ts'
import { createCustomer, startWithCustomer } from '../rigs/instances-client.ts'
import { inOwnNetns } from '../rigs/netns.ts'
import { fillDisk, smallDisk } from '../rigs/small-disk.ts'
import { until } from '../rigs/until.ts'

const timeoutMs = 120_000
/** What is created fails at once. */
const noVm = ['qemu = "/bin/false"', 'vm'] as const
const stateMib = 32
const idleCount = 200

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'with a full disk the API stays readable, creates are refused, and with room again all goes on',
      async () => {
        // Goal: what was accepted before is there after; what could not be kept was not accepted.
        await using appliance = await createAppliance(...noVm)
        using _ = smallDisk(appliance.stateDir, stateMib)
        await appliance.start()
        const acme = await createCustomer(appliance, 'acme')
        const first = (await acme.create('first')).body.data.name
        await until('the simulated platform is made', 60_000, () =>
          isFile(join(appliance.stateDir, 'simulator/root.pem')),
        )

        const ballast = fillDisk(appliance.stateDir)
        const statuses: number[] = []
        // The database's log has some room left within its file.
        await until('a create is refused', 30_000, async () => {
          statuses.push((await acme.create()).status)
          return statuses.at(-1) !== 202
        })
        expect(statuses.at(-1)).toBe(503)
        const accepted = statuses.length - 1
        expect(await acme.list()).toHaveLength(1 + accepted)
        expect((await acme.retrieve(first)).name).toBe(first)

        rmSync(ballast)
        expect((await acme.create('second')).status).toBe(202)
        await appliance.kill()
        await appliance.start()
        expect(await acme.list()).toHaveLength(2 + accepted)
        expect((await acme.create('first')).body.data.name).toBe(first)
        expect(integrityOf(appliance.stateDir)).toEqual(['ok'])
      },
      timeoutMs,
    )

    test(
      'a daemon that is killed while its disk is full says so at its next start, and starts once there is room',
      async () => {
        // Goal: nobody is told that the database is broken when the disk is full.
        await using appliance = await createAppliance(...noVm)
        using _ = smallDisk(appliance.stateDir, stateMib)
        await appliance.start()
        const acme = await createCustomer(appliance, 'acme')
        const { name } = (await acme.create('first')).body.data
        const ballast = fillDisk(appliance.stateDir)
        await until('a create is refused', 30_000, async () => (await acme.create()).status !== 202)
        const count = (await acme.list()).length
        await appliance.kill()
        const told = await appliance.start().then(
          () => 'it started',
          error => String(error),
        )
        if (told !== 'it started') expect(told).toMatch(/disk|space|full/i)
        await appliance.kill()
        rmSync(ballast)
        await appliance.start()
        expect((await acme.list()).length).toBe(count)
        expect((await acme.create('first')).body.data.name).toBe(name)
        expect(integrityOf(appliance.stateDir)).toEqual(['ok'])
      },
      timeoutMs,
    )

    test(
      'while another process holds the database, the API stays readable, and a create is refused or kept',
      async () => {
        // Goal: SQLITE_BUSY ends in an answer, and the daemon goes on when the database is free.
        await using started = await startWithCustomer(...noVm)
        const { appliance, acme } = started
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
        await using started = await startWithCustomer(...noVm)
        const { appliance, acme } = started
        const { hostname, port } = new URL(appliance.url)
        const idle = await Promise.all(Array.from({ length: idleCount }, () => connected(hostname, Number(port))))
        const startedMs = performance.now()
        for (let at = 0; at < 20; at += 1) expect(await acme.list()).toEqual([])
        expect(performance.now() - startedMs).toBeLessThan(10_000)
        expect((await acme.create()).status).toBe(202)
        for (const socket of idle) socket.destroy()
      },
      timeoutMs,
    )
  },
  { timeoutMs: 4 * timeoutMs },
)

function isFile(path: string): Promise<boolean> {
  return Bun.file(path).exists()
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
