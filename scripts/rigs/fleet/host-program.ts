// One host of a fleet as a process of its own, to be killed. Arguments: its options as JSON. Prints its addresses. At
// `booksUrl` it spends what it is asked to, and answers once the row is on the disk: GET
// /spend?id=…&key=…&most=…&tokens=…&holdMs=…. GET /clock?wrongMs=… sets its wall clock wrong. Effects: those of the
// host, a port; ends with its standard input. GET /status: its state in the fleet. Locks a file of the
// directory.

import { writeSync } from 'node:fs'
import { join } from 'node:path'
import { Fault } from '../../../src/base/fault.ts'
import { lockHolderId } from '../../../src/host/system.ts'
import { BudgetFault } from '../../../src/inference/metering/budgets.ts'
import { lockFile } from '../../../src/linux/lock.ts'
import { type FleetHostOptions, startFleetHost } from './fleet-host.ts'

export type HostProgramOptions = Omit<FleetHostOptions, 'wrongMs' | 'log' | 'mayBoot' | 'process'> & {
  readonly wrongMs?: number
}

/** The line that it prints. */
export type HostAddresses = {
  readonly url: string
  readonly booksUrl: string
  readonly peerPort: number
  readonly hostId: string
}

export type HostStatus = {
  readonly hasLease: boolean
  /** Why it has none. */
  readonly problem: string | null
  readonly isMember: boolean
  readonly unreported: number
}

const { wrongMs: wrongMsFirst = 0, ...options }: HostProgramOptions = JSON.parse(process.argv[2] ?? '')
let wrongMs = wrongMsFirst
const lockPath = join(options.directory, 'lock')
lockFile(lockPath)
const host = await startFleetHost({
  ...options,
  process: lockHolderId(lockPath),
  wrongMs: () => wrongMs,
  log: line => writeSync(2, `${line}\n`),
})
const { books, peers, fleet } = host

async function spend(asked: URLSearchParams): Promise<Response> {
  const number = (name: string) => Number(asked.get(name) ?? 0)
  const key = asked.get('key') ?? ''
  try {
    const release = await books.reserve(key, number('most'))
    await Bun.sleep(number('holdMs'))
    const id = books.book(key, number('tokens'), asked.get('id') ?? undefined)
    release?.()
    books.metering.flush()
    return Response.json({ id })
  } catch (error) {
    const isSoon = error instanceof BudgetFault && error.mayFitSoon
    const status = error instanceof Fault && error.code === 'budget_exceeded' ? 429 : 503
    return Response.json({ isSoon, error: String(error) }, { status })
  }
}

/** Over all hosts, as far as this one knows. */
function view(asked: URLSearchParams): Response {
  const { organizationId, keyPrefix } = books.caller(asked.get('key') ?? '')
  const spent = books.metering.spent({ organizationId, keyPrefix }, asked.get('month') ?? '')
  return Response.json({ ...spent, unreported: fleet.view().unreportedRows })
}

function status(): HostStatus {
  const { hasLease, problem } = host.lease()
  return { hasLease, problem, isMember: fleet.isMember(), unreported: fleet.view().unreportedRows }
}

const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  development: false,
  fetch: request => {
    const { pathname, searchParams } = new URL(request.url)
    if (pathname === '/spend') return spend(searchParams)
    if (pathname === '/clock') {
      wrongMs = Number(searchParams.get('wrongMs'))
      return new Response('')
    }
    if (pathname === '/status') return Response.json(status())
    if (pathname === '/peers') return Response.json({ reach: peers.watch.view(), calls: peers.caller.view() })
    return view(searchParams)
  },
})
const { url, peerPort, hostId } = host
const addresses: HostAddresses = { url, booksUrl: `http://127.0.0.1:${server.port}`, peerPort, hostId }
writeSync(1, `${JSON.stringify(addresses)}\n`)
for await (const _ of process.stdin);
process.exit(0)
