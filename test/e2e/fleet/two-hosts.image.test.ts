// Two daemons with real VMs, a network namespace each, share a directory in PostgreSQL. An instance is created on one
// through the other, reached by name, verified, deleted. Then they become one operator for their clients: a host asks
// for the secrets of the other one, the evidence of its gateway VM is judged, and the VM that follows is the other's in
// every pin. Real QEMU, OpenSSH and PostgreSQL; the gateway boots beside the instance.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Appliance, builtImage, imageDir } from '../../../scripts/rigs/appliance.ts'
import { startTwoMachines, type TwoMachines } from '../../../scripts/rigs/fleet/two-machines.ts'
import { createModelFile, gatewayTables } from '../../../scripts/rigs/gateway/appliance-gateway.ts'
import { servingGatewayVm } from '../../../scripts/rigs/gateway/serving-gateway-vm.ts'
import { createCustomer } from '../../../scripts/rigs/instances/instances-client.ts'
import { qemuProcesses } from '../../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { hasPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { eastAddress } from '../../../scripts/rigs/second-machine.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'

const timeoutMs = 1_500_000
const bootedMs = 600_000
const stepMs = 120_000

type Owned = { readonly host: Appliance; readonly hostname: string; readonly key: string }

/**
 * Goal: an owner verifies an instance, over a nonce of its own, through a host that does not have it. `host` has it;
 * its simulated root, operator key and image are the ones to trust.
 */
async function verifiedThrough(asked: Appliance, { host, hostname, key }: Owned): Promise<void> {
  await until('the hosts reach each other', stepMs, async () => {
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
    const isLeftOut = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')
    const ending = new AsyncDisposableStack()
    let machines: TwoMachines
    beforeAll(async () => {
      if (isLeftOut) return
      const model = ending.use(createModelFile())
      const tables = await gatewayTables(model.path, 'vm')
      const isEast = (address: string) => address === eastAddress
      machines = ending.use(
        await startTwoMachines({
          fleet: address => `peer_listen = "${address}:7443"\n${isEast(address) ? tables : ''}`,
          lines: address => ({
            listen: isEast(address) ? `inference = "${address}:8442"` : '',
            // It boots beside another VM.
            vm: 'boot_timeout_ms = 900_000',
          }),
        }),
      )
    }, timeoutMs)
    afterAll(() => ending.disposeAsync())

    test.skipIf(isLeftOut)(
      'an instance on one host through the other',
      async () => {
        // Goal: whichever host is asked, the instance is made where there is room, reached by its name, and ends.
        const { east, west } = machines
        const acme = await createCustomer(east, 'acme')
        await east.admin('fleet', 'drain', 'east')
        let made = await acme.create('once')
        await until('a host takes it', stepMs, async () => {
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
        // East has the gateway's VM alone.
        const vms = { east: qemuProcesses(east.stateDir).length, west: qemuProcesses(west.stateDir).length }
        expect(vms).toEqual({ east: 1, west: 1 })
        await until('both name it', stepMs, async () => {
          const addresses = await Promise.all([east.resolve(hostname), west.resolve(hostname)])
          return addresses[0] !== null && addresses[0] === addresses[1]
        })
        expect((await east.ssh(hostname, ['hostname'])).stdout.trim()).toBe(name)

        await verifiedThrough(east, { host: west, hostname, key: acme.key })

        expect((await acme.remove(name)).status).toBe(202)
        expect(await east.resolve(hostname)).toBeNull()
        await acme.reached(name, 'terminated', stepMs)
        expect(qemuProcesses(west.stateDir)).toEqual([])
        expect(await west.resolve(hostname)).toBeNull()
      },
      timeoutMs,
    )

    test.skipIf(isLeftOut)(
      'the operator key, control key and authority of one host on the other',
      async () => {
        // Goal: after `fleet share` a client that pins the one host's operator key and trusts its authority verifies
        // the gateway of the other.
        const { east, west } = machines
        const first = await servingGatewayVm(east)
        const file = (name: string) => join(east.directory, name)
        const done = async (host: Appliance, ...argv: string[]) => {
          const { exitCode, stdout, stderr } = await host.cli(...argv)
          expect({ argv, exitCode, said: `${stdout}${stderr}` }).toMatchObject({ argv, exitCode: 0 })
          return stdout
        }
        const policyFor = async (host: Appliance, name: string) => {
          writeFileSync(file(`${name}.pem`), await done(host, 'operator-key'))
          const image = ['--image', await builtImage('inference'), '--operator-key', file(`${name}.pem`)]
          writeFileSync(file(`${name}.json`), await done(host, 'verify', 'policy-example', ...image))
          return ['--policy', file(`${name}.json`), '--any-crl', '--any-tcb']
        }
        const simulated = ['--trust-simulated-root', join(east.stateDir, 'simulator/root.pem')]
        const [byEast, byWest] = [await policyFor(east, 'east'), await policyFor(west, 'west')]
        /** As a client of west's does that comes to east: its authority, its operator key. */
        const verified = async () => {
          const ca = ['--ca', join(west.stateDir, 'ca/ca.pem')]
          const url = `https://${eastAddress}:8442`
          return (await west.cli('verify', 'gateway', url, ...ca, ...byWest, ...simulated)).exitCode
        }
        expect(await verified()).not.toBe(0)

        await done(east, 'fleet', 'share', 'request', file('request'))
        // West's own key is not the one of the machine that asks.
        const strange = await west.cli(
          'fleet',
          'share',
          'seal',
          file('request'),
          file('sealed'),
          ...byWest,
          ...simulated,
        )
        expect(strange.exitCode).toBe(6)
        await done(west, 'fleet', 'share', 'seal', file('request'), file('sealed'), ...byEast, ...simulated)
        const open = ['fleet', 'share', 'open', file('sealed'), '--operator-key', file('west.pem')]
        expect((await east.cli(...open)).exitCode).toBe(5)
        await east.stop()
        await done(east, ...open)
        await east.start()

        await servingGatewayVm(east, first)
        expect(readFileSync(join(east.stateDir, 'ca/ca.key'), 'utf8')).toBe(
          readFileSync(join(west.stateDir, 'ca/ca.key'), 'utf8'),
        )
        await until('its gateway is the one that clients of west expect', stepMs, async () => (await verified()) === 0)
      },
      timeoutMs,
    )
  },
  { timeoutMs: 2 * timeoutMs },
)
