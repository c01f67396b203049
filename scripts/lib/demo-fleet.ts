// The demonstration of a fleet: two hosts over one PostgreSQL, each in a network namespace of its own, and the death of
// one. Effects: namespaces, PostgreSQL, daemons and VMs; all of it is removed at the end. `showFleet` runs this file
// again inside the namespace of the first host.

import type { FleetHosts } from '../../src/contract/admin/fleet.ts'
import { type Appliance, createAppliance } from '../rigs/appliance.ts'
import { socketAddress } from '../rigs/fleet/two-machines.ts'
import { createCustomer } from '../rigs/instances/instances-client.ts'
import { qemuProcesses } from '../rigs/leftovers.ts'
import { createNetns, type Netns } from '../rigs/netns.ts'
import { type PostgresServer, startPostgres } from '../rigs/postgres/server.ts'
import { eastAddress, secondMachine, westAddress, westPool } from '../rigs/second-machine.ts'
import { until } from '../rigs/until.ts'
import { withOwnNames } from './own-names.ts'
import { runSteps, type Steps } from './steps.ts'
import { seconds } from './terminal.ts'

/** Under software emulation on a busy machine. */
const readyMs = 3_000_000
const [seenMs, backMs, endedMs] = [300_000, 1_200_000, 1_200_000]
/** The shortest that may be configured. */
const lostAfterS = 10

if (import.meta.main) process.exit(await runSteps(steps => show(steps, process.argv[2] ?? '')))

/** `image`: the instances' launch image. */
export async function showFleet({ signal }: Pick<Steps, 'signal'>, image: string): Promise<void> {
  using east = createNetns()
  // Without names of its own the first host's would stay on this host, of a namespace that nobody else sees.
  const child = Bun.spawn(east.argv(withOwnNames(east.name, [process.execPath, import.meta.path, image])), {
    stdin: 'ignore',
    stdout: 'inherit',
    stderr: 'inherit',
  })
  // From a terminal it gets the signal itself, and twice is as once.
  signal.addEventListener('abort', () => child.kill('SIGTERM'), { once: true })
  const exitCode = await child.exited
  if (exitCode !== 0) throw new Error(`the demonstration of a fleet ended with ${exitCode}`)
}

async function show(steps: Steps, image: string): Promise<void> {
  const { step, note, defer } = steps
  const kept = <T extends AsyncDisposable>(name: string, thing: T): T => {
    defer(name, () => thing[Symbol.asyncDispose]())
    return thing
  }
  const server = kept('PostgreSQL', await step('PostgreSQL, for both hosts', () => startPostgres()))
  const west = await step('a second network namespace, and a cable to it', () => secondMachine())
  defer('the second network namespace', () => west.close())
  const hosts = await hostsOf(server, west, image)
  for (const host of [hosts.east, hosts.west]) kept('a host, and its VMs', host)
  await step('east: strongroom fleet init', () => hosts.east.admin('fleet', 'init').then(() => ''))
  await step('west: strongroom fleet join', () => hosts.west.admin('fleet', 'join').then(() => ''))
  await step('east: strongroom serve', () => hosts.east.start().then(() => ''))
  await step('west: strongroom serve', () => hosts.west.start().then(() => ''))
  await step('strongroom fleet list, once both have a lease', async () => {
    await until('both serve', seenMs, async () => (await states(hosts.east)).split('serving').length === 3)
    return await states(hosts.east)
  })
  const created = await createThere(steps, hosts)
  await die(steps, hosts, created)
  await comeBack(steps, hosts, created)
  note('both hosts and the database end')
}

type Hosts = { readonly east: Appliance; readonly west: Appliance }
type Created = { readonly key: string; readonly name: string; readonly hostname: string }

async function hostsOf(server: PostgresServer, west: Netns, image: string): Promise<Hosts> {
  const database = await socketAddress(server)
  const fleet = (name: string) =>
    `\n[fleet]\ndatabase = "${database}"\nname = "${name}"\nhost_lost_after_s = ${lostAfterS}\n`
  const lines = (address: string) => ({ tls: `names = ["${address}"]` })
  return {
    east: await createAppliance('', 'vm', image, fleet('east'), lines(eastAddress), {
      address: eastAddress,
      within: [],
    }),
    west: await createAppliance(
      `pool_v4 = "${westPool}"`,
      'network',
      image,
      fleet('west'),
      // Its VMs' users are others than the first host's.
      { ...lines(westAddress), vm: 'uid_min = 730000\nuid_max = 739999' },
      { address: westAddress, within: west.argv(withOwnNames(west.name, [])) },
    ),
  }
}

/** Asked of the first host, which drains, so that the second one gets the instance. */
async function createThere({ step, note }: Pick<Steps, 'step' | 'note'>, { east, west }: Hosts): Promise<Created> {
  await step('strongroom fleet drain east', () => east.admin('fleet', 'drain', 'east').then(() => ''))
  const customer = await step('strongroom org create acme, key create acme', () => createCustomer(east, 'acme'))
  const { key } = customer
  const startedMs = performance.now()
  const { name, hostname } = await step('east: POST /v1/instances', async () => {
    const { status, body } = await customer.create('demo')
    if (status !== 202) throw new Error(`${status}: ${JSON.stringify(body)}`)
    return body.data
  })
  await step('west has it: provisioning → ready, as east shows', () =>
    customer.reached(name, 'ready', readyMs).then(() => ''),
  )
  note(`VMs: ${qemuProcesses(east.stateDir).length} on east, ${qemuProcesses(west.stateDir).length} on west`)
  await step('GET /v1/instances, on east', () => listed(east, key))
  await step('GET /v1/instances, on west', () => listed(west, key))
  await step(`ssh agent@${hostname} uname -r, its name by east's DNS`, async () => {
    await until('the name is known', seenMs, () => east.resolve(hostname))
    return (await east.ssh(hostname, ['uname', '-r'])).stdout.trim()
  })
  note(`${seconds(performance.now() - startedMs).trim()} from the POST to the first output over SSH`)
  return { key, name, hostname }
}

async function die(
  { step }: Pick<Steps, 'step'>,
  { east, west }: Hosts,
  { key, name, hostname }: Created,
): Promise<void> {
  await west.kill()
  await step('west is killed: seen by east', () => reachedState(east, 'silent', seenMs))
  await step('its instance has failed', async () => {
    await until(
      'the instance has failed',
      seenMs + lostAfterS * 1_000,
      async () => (await retrieved(east, key, name)).status === 'failed',
    )
    return (await retrieved(east, key, name)).failure_code ?? ''
  })
  await step("its name leads nowhere, by east's DNS", async () => {
    await until('the name is gone', seenMs, async () => (await east.resolve(hostname)) === null)
    return ''
  })
}

async function comeBack(
  { step, note }: Pick<Steps, 'step' | 'note'>,
  { east, west }: Hosts,
  { key, name }: Created,
): Promise<void> {
  note(`VMs on west, which outlived its daemon: ${qemuProcesses(west.stateDir).length}`)
  await step('west: strongroom serve', () => west.start().then(() => ''))
  await step('west is back, as east sees it', () => reachedState(east, 'serving', backMs))
  await step('west has ended what was given up', async () => {
    await until('its VM is gone', endedMs, () => qemuProcesses(west.stateDir).length === 0)
    return `${(await retrieved(west, key, name)).status} on both`
  })
}

async function states(host: Appliance): Promise<string> {
  const { hosts } = await host.admin<FleetHosts>('fleet', 'list')
  return hosts.map(({ name, state, places_free: free }) => `${name} ${state}, ${free} places free`).join('; ')
}

/** Waits for the second host. */
async function reachedState(host: Appliance, state: string, timeoutMs: number): Promise<string> {
  await until(`west is ${state}`, timeoutMs, async () => {
    const { hosts } = await host.admin<FleetHosts>('fleet', 'list')
    return hosts.some(other => other.name === 'west' && other.state === state)
  })
  return await states(host)
}

type Record = { readonly name: string; readonly status: string; readonly failure_code: string | null }

async function listed(host: Appliance, key: string): Promise<string> {
  const { body } = await host.http<{ data: { instances: readonly Record[] } }>('GET', '/v1/instances', { key })
  return body.data.instances.map(({ name, status }) => `${name} ${status}`).join(', ')
}

async function retrieved(host: Appliance, key: string, name: string): Promise<Record> {
  return (await host.http<{ data: Record }>('GET', `/v1/instances/${name}`, { key })).body.data
}
