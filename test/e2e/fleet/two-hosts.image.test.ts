// Two daemons with real VMs, a network namespace each, share a directory in PostgreSQL: created on one through the
// other, reached by name, deleted. Real QEMU, OpenSSH and PostgreSQL.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { withOwnNames } from '../../../scripts/lib/own-names.ts'
import { createAppliance } from '../../../scripts/rigs/appliance.ts'
import { createCustomer } from '../../../scripts/rigs/instances/instances-client.ts'
import { qemuProcesses } from '../../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { eastAddress, secondMachine, westAddress, westPool } from '../../../scripts/rigs/second-machine.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'

const timeoutMs = 1_500_000
const bootedMs = 600_000

inOwnNetns(
  import.meta.path,
  () => {
    let server: PostgresServer
    beforeAll(async () => {
      if (hasPostgres) server = await startPostgres()
    }, 60_000)
    afterAll(async () => {
      await server?.[Symbol.asyncDispose]()
    })

    test.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))(
      'an instance on one host through the other',
      async () => {
        // Goal: whichever host is asked, the instance is made where there is room, reached by its name, and ends.
        using machine = await secondMachine()
        // Through its socket, which both namespaces see.
        const directory = (await server.run('SHOW unix_socket_directories')).trim()
        const database = `postgres://owner@localhost:${server.port}/postgres?host=${directory}`
        const fleet = (name: string) => `\n[fleet]\ndatabase = "${database}"\nname = "${name}"\n`
        const lines = (address: string) => ({ tls: `names = ["${address}"]` })
        await using east = await createAppliance('', 'vm', undefined, fleet('east'), lines(eastAddress), {
          address: eastAddress,
          within: [],
        })
        await using west = await createAppliance(
          `pool_v4 = "${westPool}"`,
          'network',
          undefined,
          fleet('west'),
          { ...lines(westAddress), vm: 'uid_min = 730000\nuid_max = 739999' },
          { address: westAddress, within: machine.argv(withOwnNames(machine.name, [])) },
        )
        await east.admin('fleet', 'init')
        await west.admin('fleet', 'join')
        await east.start()
        await west.start()
        const acme = await createCustomer(east, 'acme')
        await east.admin('fleet', 'drain', 'east')
        const made = await acme.create('once')
        expect(made.status).toBe(202)
        const { name, hostname } = made.body.data
        const throughWest = await west.http<typeof made.body>('POST', '/v1/instances', {
          key: acme.key,
          body: { public_key: east.publicKey },
          headers: { 'Idempotency-Key': 'once' },
        })
        expect(throughWest.body.data.name).toBe(name)
        await acme.reached(name, 'ready', bootedMs)
        expect([qemuProcesses(east.stateDir).length, qemuProcesses(west.stateDir).length]).toEqual([0, 1])
        await until('both name it', 5_000, async () => {
          const addresses = await Promise.all([east.resolve(hostname), west.resolve(hostname)])
          return addresses[0] !== null && addresses[0] === addresses[1]
        })
        expect((await east.ssh(hostname, ['hostname'])).stdout.trim()).toBe(name)

        expect((await acme.remove(name)).status).toBe(202)
        expect(await east.resolve(hostname)).toBeNull()
        await acme.reached(name, 'terminated', 60_000)
        expect(qemuProcesses(west.stateDir)).toEqual([])
        expect(await west.resolve(hostname)).toBeNull()
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
