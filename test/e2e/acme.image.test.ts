// Certificates by ACME in a whole appliance: Pebble asks the daemon's own DNS server and its HTTP listener, and a real
// gateway VM serves what was ordered for its key; names that change reach the VM that runs.

import { expect, test } from 'bun:test'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Appliance, createAppliance } from '../../scripts/rigs/appliance.ts'
import { caOf, createModelFile, gatewayTables } from '../../scripts/rigs/gateway/appliance-gateway.ts'
import { servingGatewayVm } from '../../scripts/rigs/gateway/serving-gateway-vm.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import { startPebble } from '../rigs/acme/pebble.ts'
import { certificateShown } from '../rigs/acme/tls-client.ts'

const testMs = 600_000
const [instancesPort, gatewayPort] = [8441, 8442]

type Status = { tls: { acme: { name: string; holder: string; expires_at: string | null; failure: unknown }[] } }
type Doctor = { checks: { name: string; result: string; detail: string; remedy: string | null }[] }

const acmeOf = async (appliance: Appliance) => (await appliance.admin<Status>('status')).tls.acme
const haveAll = async (appliance: Appliance) => (await acmeOf(appliance)).every(({ expires_at }) => expires_at !== null)

function changeConfig(appliance: Appliance, change: (text: string) => string): void {
  const file = join(appliance.directory, 'strongroom.toml')
  writeFileSync(file, change(readFileSync(file, 'utf8')))
}

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'goal: host and gateway VM serve certificates by ACME, a restart keeps them, an added name reaches the VM that runs, a failure is in doctor',
      async () => {
        using file = createModelFile()
        const tables = await gatewayTables(file.path, 'vm')
        await using appliance = await createAppliance('', 'vm', undefined, tables, {
          listen: 'inference = "127.0.0.1:8442"',
          tls: 'names = []',
          'tls.acme': 'directory = ""',
        })
        await using pebble = await startPebble({
          directory: appliance.directory,
          dnsServer: '127.0.0.1:53',
          httpPort: 80,
        })
        changeConfig(appliance, text =>
          text.replace(
            'directory = ""',
            [
              `directory = "${pebble.directoryUrl}"`,
              `ca_file = "${pebble.caFile}"`,
              'terms_agreed = true',
              'challenge = "http-01"',
              'http_listen = "127.0.0.1:80"',
            ].join('\n'),
          ),
        )
        await appliance.start()
        const first = await servingGatewayVm(appliance)
        await until('all names have a certificate', 60_000, () => haveAll(appliance))
        const root = await pebble.root()
        const ca = caOf(appliance)
        const shown = (port: number, name: string, by: string) => certificateShown(port, name, by)
        const ofHost = await shown(instancesPort, 'instances.agents.test', root)
        expect([ofHost.names, ofHost.problem]).toEqual(['DNS:instances.agents.test', null])
        // The VM gets its certificate from the host a moment after the host has it.
        await until('the gateway VM serves its certificate', 60_000, async () => {
          // While its listener is replaced, a connection that nobody has accepted yet is reset.
          const found = await shown(gatewayPort, 'inference.agents.test', root).catch(() => null)
          return found?.names === 'DNS:inference.agents.test'
        })
        const ofVm = await shown(gatewayPort, 'inference.agents.test', root)
        expect([ofVm.names, ofVm.problem]).toEqual(['DNS:inference.agents.test', null])
        // The VM's key is its own, and one for all its certificates.
        const local = await certificateShown(gatewayPort, null, ca)
        expect([local.problem, local.spki === ofVm.spki, ofVm.spki === ofHost.spki]).toEqual([null, true, false])
        const accounts = () => readdirSync(join(appliance.stateDir, 'acme')).filter(name => name.startsWith('account-'))
        const account = accounts().map(name => readFileSync(join(appliance.stateDir, 'acme', name), 'utf8'))
        expect(account).toHaveLength(1)

        // A name is added while nobody issues: what there is stays, and the running VM serves the new name.
        await pebble[Symbol.asyncDispose]()
        await appliance.stop()
        changeConfig(appliance, text =>
          text
            .replace('names = []', 'names = ["api.other.test"]')
            .replace('terms_agreed', 'names = ["api.other.test"]\nterms_agreed'),
        )
        await appliance.start()
        await until('the running VM serves the added name', 60_000, async () => {
          const found = await shown(gatewayPort, 'api.other.test', caOf(appliance)).catch(() => null)
          return found?.names === 'DNS:api.other.test'
        })
        expect(await servingGatewayVm(appliance)).toBe(first)
        await until('its listener is the new one alone', 60_000, async () => {
          const problem = shown(gatewayPort, 'api.other.test', caOf(appliance)).then(found => found.problem)
          return (await problem.catch(() => 'reset')) === null
        })
        // Clients of before, with the authority of before, by a name or an address of before.
        expect((await certificateShown(gatewayPort, 'localhost', ca)).problem).toBe(null)
        expect((await certificateShown(gatewayPort, null, ca)).problem).toBe(null)
        expect((await shown(gatewayPort, 'inference.agents.test', root)).raw).toBe(ofVm.raw)
        expect((await shown(instancesPort, 'instances.agents.test', root)).raw).toBe(ofHost.raw)
        expect(accounts().map(name => readFileSync(join(appliance.stateDir, 'acme', name), 'utf8'))).toEqual(account)

        await until('the failure is known', 60_000, async () =>
          (await acmeOf(appliance)).some(({ failure }) => failure !== null),
        )
        const doctor = await appliance.cli('doctor', '--json')
        const { checks } = JSON.parse(doctor.stdout) as Doctor
        const found = checks.filter(({ name }) => name.startsWith('acme '))
        expect(found.map(({ name, result }) => [name, result])).toContainEqual(['acme instances.agents.test', 'PASS'])
        expect(found.map(({ name, result }) => [name, result])).toContainEqual(['acme api.other.test', 'FAIL'])
        expect(found.find(({ result }) => result === 'FAIL')?.remedy).toContain('systemctl reload strongroom')
        const metrics = (await appliance.cli('metrics')).stdout
        expect(metrics).toMatch(
          /^strongroom_acme_last_failure_timestamp_seconds\{name="api.other.test",holder="host"\} [1-9]/m,
        )
        await appliance.stop()
      },
      testMs,
    )
  },
  { timeoutMs: testMs + 60_000 },
)
