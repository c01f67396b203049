// Two daemons with real VMs, a network namespace each, share a directory in PostgreSQL: created on one through the
// other, reached by name, verified, deleted. Real QEMU, OpenSSH and PostgreSQL.

import { expect, test } from 'bun:test'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Appliance, imageDir } from '../../../scripts/rigs/appliance.ts'
import { startTwoMachines } from '../../../scripts/rigs/fleet/two-machines.ts'
import { createCustomer } from '../../../scripts/rigs/instances/instances-client.ts'
import { qemuProcesses } from '../../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { hasPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'

const timeoutMs = 1_500_000
const bootedMs = 600_000

type Owned = { readonly host: Appliance; readonly hostname: string; readonly key: string }

/**
 * Goal: an owner verifies an instance, over a nonce of its own, through a host that does not have it. `host` has it;
 * its simulated root, operator key and image are the ones to trust.
 */
async function verifiedThrough(asked: Appliance, { host, hostname, key }: Owned): Promise<void> {
  await until('the hosts reach each other', 60_000, async () => {
    const shown = await asked.admin<{ hosts: readonly { is_this_host: boolean; is_reached: boolean | null }[] }>(
      ...['fleet', 'list'],
    )
    return shown.hosts.some(({ is_this_host: isOwn, is_reached: isReached }) => !isOwn && isReached === true)
  })
  const file = (name: string, text: string) => {
    writeFileSync(join(asked.directory, name), text)
    return join(asked.directory, name)
  }
  const image = await imageDir()
  const operatorKey = ['--operator-key', file('west-key.pem', (await host.cli('operator-key')).stdout)]
  const example = await host.cli('verify', 'policy-example', '--image', image, ...operatorKey)
  const { exitCode, stdout } = await asked.cli(
    ...['verify', 'instance', hostname, '--no-known-hosts', '--json', '--key-file', file('key.txt', key)],
    ...['--api', asked.url, '--ca', join(asked.stateDir, 'ca/ca.pem'), '--image', image],
    ...['--trust-simulated-root', join(host.stateDir, 'simulator/root.pem')],
    ...['--policy', file('policy.json', example.stdout), '--unattested-gateway', 'no-worker'],
    ...['--public-key', file('own.pub', asked.publicKey)],
  )
  const { checks, simulated } = JSON.parse(stdout) as {
    readonly checks: readonly { readonly name: string; readonly outcome: string }[]
    readonly simulated: boolean
  }
  expect({ exitCode, simulated, failed: checks.filter(({ outcome }) => outcome.toUpperCase() === 'FAIL') }).toEqual({
    ...{ exitCode: 0, simulated: true, failed: [] },
  })
  // The host that has the VM made it.
  const metrics = await host.cli('metrics')
  expect(metrics.stdout).toMatch(/^strongroom_fleet_peer_calls_total\{service="instances"\} [1-9]/m)
}

inOwnNetns(
  import.meta.path,
  () => {
    test.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))(
      'an instance on one host through the other',
      async () => {
        // Goal: whichever host is asked, the instance is made where there is room, reached by its name, and ends.
        const fleet = (address: string) => `peer_listen = "${address}:7443"`
        await using machines = await startTwoMachines({ fleet })
        const { east, west } = machines
        const acme = await createCustomer(east, 'acme')
        await east.admin('fleet', 'drain', 'east')
        let made = await acme.create('once')
        await until('a host takes it', 60_000, async () => {
          if (made.status !== 202) made = await acme.create('once')
          return made.status === 202
        })
        const { name, hostname } = made.body.data
        const throughWest = await west.http<typeof made.body>('POST', '/v1/instances', {
          key: acme.key,
          body: { public_key: east.publicKey },
          headers: { 'Idempotency-Key': 'once' },
        })
        expect(throughWest.body.data.name).toBe(name)
        await acme.reached(name, 'ready', bootedMs)
        expect([qemuProcesses(east.stateDir).length, qemuProcesses(west.stateDir).length]).toEqual([0, 1])
        await until('both name it', 60_000, async () => {
          const addresses = await Promise.all([east.resolve(hostname), west.resolve(hostname)])
          return addresses[0] !== null && addresses[0] === addresses[1]
        })
        expect((await east.ssh(hostname, ['hostname'])).stdout.trim()).toBe(name)

        await verifiedThrough(east, { host: west, hostname, key: acme.key })

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
