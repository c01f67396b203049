// A copy of a host's disk that starts elsewhere beside the host. Effects: files, a process, a way to the database.

import { copyFileSync, cpSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { databaseFile } from '../../../src/host/state-files.ts'
import { startProxy } from '../../rigs/postgres/proxy.ts'
import { until } from '../../rigs/until.ts'
import { type FaultedFleet, type FaultedHost, type Heal, type HostProcess, passwordFile } from './faulted-fleet.ts'
import { copyRecords } from './records.ts'

const patientMs = 60_000
const hostAddress = '127.0.0.1'
const copyAddress = '127.0.0.9'
const pool = '10.200.0.0/22'

let copyCount = 0

/** The copy is refused, with both addresses, and answers no client, as long as it runs. */
export async function cloneHost(fleet: FaultedFleet, host: FaultedHost): Promise<Heal> {
  // A copy of a host that is silent becomes the host.
  host.proxy.set('open')
  await fleet.start(host)
  await until(`${host.name} has its lease`, patientMs, async () => (await fleet.statusOf(host))?.hasLease)
  copyCount += 1
  const directory = join(fleet.directory, `copy-${copyCount}`)
  mkdirSync(directory)
  copyRecords(host, join(directory, databaseFile))
  copyFileSync(passwordFile(host.directory), passwordFile(directory))
  cpSync(join(host.directory, 'peer'), join(directory, 'peer'), { recursive: true })
  const way = await startProxy(fleet.databases.primary.port, copyAddress)
  fleet.copyWays.add(way)
  const copy = await fleet.spawn(host, { directory, port: way.port, pool, ways: {} })
  if (copy === null) throw new Error(`a copy of ${host.name} ended`)
  await until(`a copy of ${host.name} is refused`, patientMs, async () => {
    const status = await fleet.statusOf({ process: copy })
    if (status?.hasLease === true) throw new Error(`a copy of ${host.name} got its lease`)
    return status?.problem?.includes('does not try again') === true
  })
  await checkRefused(fleet, host, copy)
  return async () => {
    await checkRefused(fleet, host, copy)
    copy.child.kill('SIGKILL')
    await copy.child.exited
    fleet.copyWays.delete(way)
    await way[Symbol.asyncDispose]()
    rmSync(directory, { recursive: true })
  }
}

async function checkRefused(fleet: FaultedFleet, { name }: FaultedHost, copy: HostProcess): Promise<void> {
  const status = await fleet.statusOf({ process: copy })
  const text = `signs in from ${hostAddress}, this one from ${copyAddress}`
  const isNamed = status?.problem?.includes(text) === true
  const answer = await fleet.answerOf({ process: copy })
  if (status?.isMember === false && !status.hasLease && isNamed && answer.status === 503) return
  throw new Error(`a copy of ${name} is not refused: ${JSON.stringify({ status, answer })}`)
}
