// Two daemons of a fleet become one operator for their clients: a host asks for the secrets of the other one, the
// evidence of its gateway VM is judged, and the VM that follows is the other's in every pin. Real QEMU and PostgreSQL.

import { expect, test } from 'bun:test'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import { builtImage } from '../../../scripts/rigs/appliance.ts'
import { startTwoMachines } from '../../../scripts/rigs/fleet/two-machines.ts'
import { createModelFile, gatewayTables } from '../../../scripts/rigs/gateway/appliance-gateway.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { hasPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { westAddress } from '../../../scripts/rigs/second-machine.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import type { AdminGateways } from '../../../src/contract/admin/gateways.ts'

const timeoutMs = 900_000
const startMs = 300_000

inOwnNetns(
  import.meta.path,
  () => {
    test.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))(
      'the operator key, control key and authority of one host on the other',
      async () => {
        // Goal: after `fleet share` a client that pins the one host's operator key and trusts its authority verifies
        // the gateway of the other.
        using model = createModelFile()
        const tables = await gatewayTables(model.path, 'vm')
        const isWest = (address: string) => address === westAddress
        await using machines = await startTwoMachines({
          fleet: address => (isWest(address) ? tables : ''),
          lines: address => ({ listen: isWest(address) ? `inference = "${address}:8442"` : '' }),
        })
        const { east, west } = machines
        const first = await servingVm(west, null)
        const file = (name: string) => join(west.directory, name)
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
        const simulated = ['--trust-simulated-root', join(west.stateDir, 'simulator/root.pem')]
        const [byWest, byEast] = [await policyFor(west, 'west'), await policyFor(east, 'east')]
        /** As a client of east's does that comes to west: its authority, its operator key. */
        const verified = async () => {
          const ca = ['--ca', join(east.stateDir, 'ca/ca.pem')]
          const url = `https://${westAddress}:8442`
          return (await east.cli('verify', 'gateway', url, ...ca, ...byEast, ...simulated)).exitCode
        }
        expect(await verified()).not.toBe(0)

        await done(west, 'fleet', 'share', 'request', file('request'))
        // East's own key is not the one of the machine that asks.
        const strange = await east.cli(
          'fleet',
          'share',
          'seal',
          file('request'),
          file('sealed'),
          ...byEast,
          ...simulated,
        )
        expect(strange.exitCode).toBe(6)
        await done(east, 'fleet', 'share', 'seal', file('request'), file('sealed'), ...byWest, ...simulated)
        const open = ['fleet', 'share', 'open', file('sealed'), '--operator-key', file('east.pem')]
        expect((await west.cli(...open)).exitCode).toBe(5)
        await west.stop()
        await done(west, ...open)
        await west.start()

        const second = await servingVm(west, first)
        expect(second).not.toBe(first)
        expect(readFileSync(join(west.stateDir, 'ca/ca.key'), 'utf8')).toBe(
          readFileSync(join(east.stateDir, 'ca/ca.key'), 'utf8'),
        )
        await until('its gateway is the one that clients of east expect', 60_000, async () => (await verified()) === 0)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)

/** The VM that serves without a problem, another one than `former`. */
async function servingVm(host: Appliance, former: string | null): Promise<string> {
  let found: string | undefined
  await until('a gateway VM serves', startMs, async () => {
    const { gateways } = await host.admin<AdminGateways>('inference', 'show')
    found = gateways.find(item => item.state === 'serving' && item.problem === null && item.vm !== former)?.vm
    return found !== undefined
  }).catch(error => {
    throw new Error([error.message, ...host.log().split('\n').slice(-40)].join('\n'))
  })
  return found ?? ''
}
