// Two appliances with real VMs, a network namespace each, that share a directory in a PostgreSQL of their own. Effects:
// those of both, a namespace, the database's server; needs root. All of it ends with this.

import { withOwnNames } from '../../lib/own-names.ts'
import { type Appliance, createAppliance } from '../appliance.ts'
import { type PostgresServer, startPostgres } from '../postgres/server.ts'
import { eastAddress, secondMachine, westAddress, westPool } from '../second-machine.ts'

export type TwoMachines = AsyncDisposable & {
  readonly east: Appliance
  readonly west: Appliance
  readonly server: PostgresServer
}

type Options = {
  readonly image?: string
  /** Further lines of the table `fleet`, and whole tables behind it. */
  readonly fleet?: (address: string) => string
  /** Further lines of other tables. */
  readonly lines?: (address: string) => Readonly<Record<string, string>>
}

/** The first makes the fleet, the second joins it; both serve. */
export async function startTwoMachines(options: Options = {}): Promise<TwoMachines> {
  const { image, fleet = () => '', lines = () => ({}) } = options
  await using undo = new AsyncDisposableStack()
  const server = undo.use(await startPostgres())
  const machine = undo.use(await secondMachine())
  const database = await socketAddress(server)
  const tables = (name: string, address: string) =>
    `\n[fleet]\ndatabase = "${database}"\nname = "${name}"\n${fleet(address)}\n`
  const linesOf = (address: string): Readonly<Record<string, string>> => ({
    tls: `names = ["${address}"]`,
    ...lines(address),
  })
  const east = undo.use(
    await createAppliance('', 'vm', image, tables('east', eastAddress), linesOf(eastAddress), {
      address: eastAddress,
      within: [],
    }),
  )
  const west = undo.use(
    await createAppliance(
      `pool_v4 = "${westPool}"`,
      'network',
      image,
      tables('west', westAddress),
      { ...linesOf(westAddress), vm: `uid_min = 730000\nuid_max = 739999\n${linesOf(westAddress).vm ?? ''}` },
      { address: westAddress, within: machine.argv(withOwnNames(machine.name, [])) },
    ),
  )
  await east.admin('fleet', 'init')
  await west.admin('fleet', 'join')
  await east.start()
  await west.start()
  const running = undo.move()
  return { east, west, server, [Symbol.asyncDispose]: () => running.disposeAsync() }
}

/** Address of the server's database through its socket, which all network namespaces see. */
export async function socketAddress(server: PostgresServer): Promise<string> {
  const directory = (await server.run('SHOW unix_socket_directories')).trim()
  return `postgres://owner@localhost:${server.port}/postgres?host=${directory}`
}
