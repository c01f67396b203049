// A host whose older records are put back, as by a snapshot of its disk: its VMs have ended with the machine, and
// its later usage is in the directory as far as it was reported. Effects: files of the host, its processes.

import { renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { databaseFile } from '../../../src/host/state-files.ts'
import { loseVms } from '../../rigs/fleet/ledger-vms.ts'
import { roleOf } from '../../rigs/postgres/fleet.ts'
import { until } from '../../rigs/until.ts'
import type { UsageRow } from './expected.ts'
import type { FaultedFleet, FaultedHost, Heal } from './faulted-fleet.ts'
import { copyRecords, reportedUsage, usageIn } from './records.ts'

const patientMs = 60_000
/** Attempts to find a host's usage reported to the last row, while it goes on. */
const keepsMax = 20
const keepAgainMs = 50

let fileCount = 0

/** Keeps the records of a host, and returns what puts them back. */
export async function keepRecords(fleet: FaultedFleet, host: FaultedHost): Promise<Heal> {
  fileCount += 1
  const kept = join(fleet.directory, `records-${fileCount}`)
  const { history } = host
  for (let count = 1; !(await keep(fleet, host, kept)); count += 1) {
    rmSync(kept)
    if (count === keepsMax) {
      fleet.note(`the records of ${host.name} were not kept: its usage is not reported`)
      return () => {}
    }
    await Bun.sleep(keepAgainMs)
  }
  return async () => {
    if (host.history === history) await putBack(fleet, host, kept)
    else fleet.note(`the records of ${host.name} are not put back: what it has reported since is not known`)
    rmSync(kept, { force: true })
  }
}

/** False if the directory does not have the same usage. */
async function keep(fleet: FaultedFleet, host: FaultedHost, path: string): Promise<boolean> {
  copyRecords(host, path)
  const rows = [...(fleet.expected.reported.get(host.name) ?? []), ...usageIn(path)]
  const reported = await reportedUsage(fleet, host)
  return Bun.deepEquals(new Map([...reported].toSorted()), new Map([...sumsOfRows(rows)].toSorted()))
}

function sumsOfRows(rows: readonly UsageRow[]): Map<string, { requests: number; cost: number }> {
  const sums = new Map<string, { requests: number; cost: number }>()
  for (const { month, key, cost } of rows) {
    const name = `${month} ${key}`
    const sum = sums.get(name) ?? { requests: 0, cost: 0 }
    sums.set(name, { requests: sum.requests + 1, cost: sum.cost + cost })
  }
  return sums
}

async function putBack(fleet: FaultedFleet, host: FaultedHost, kept: string): Promise<void> {
  await fleet.kill(host)
  // A way that drops bytes keeps them open.
  await until(`no session of ${host.name} is left`, patientMs, async () => {
    const from = `FROM pg_stat_activity WHERE usename = '${roleOf(host.id)}'`
    return (await fleet.sql(`SELECT count(pg_terminate_backend(pid)) ${from}`)) === '0'
  })
  await noteUsage(fleet, host, kept)
  const living = `SELECT name FROM strongroom.instances WHERE host_id = '${host.id}' AND status <> 'terminated'`
  for (const name of (await fleet.sql(living)).split('\n')) fleet.expected.mayHaveFailed.add(name)
  fleet.expected.mayHaveMoved = true
  host.history += 1
  loseVms(host.directory)
  const path = join(host.directory, databaseFile)
  for (const end of ['-wal', '-shm']) rmSync(path + end, { force: true })
  renameSync(kept, path)
  await fleet.start(host)
}

/** The directory has the reported part of the usage that the older records lack: the first rows of each sum. */
async function noteUsage(fleet: FaultedFleet, host: FaultedHost, kept: string): Promise<void> {
  const { expected } = fleet
  const before = expected.reported.get(host.name) ?? []
  const rows = usageIn(join(host.directory, databaseFile))
  const known = new Set(usageIn(kept).map(({ id }) => id))
  const reported: UsageRow[] = [...before]
  for (const [name, { requests, cost }] of await reportedUsage(fleet, host)) {
    const isOf = (row: UsageRow) => `${row.month} ${row.key}` === name
    const earlier = before.filter(isOf)
    const first = rows.filter(isOf).slice(0, requests - earlier.length)
    const found = sumsOfRows([...earlier, ...first]).get(name)
    if (found?.requests !== requests || found.cost !== cost) {
      const text = JSON.stringify({ name, requests, cost, found })
      throw new Error(`${host.name} has reported other sums than those of its first rows: ${text}`)
    }
    reported.push(...first.filter(({ id }) => !known.has(id)))
  }
  expected.reported.set(host.name, reported)
  const ids = new Set(reported.map(({ id }) => id))
  for (const { id } of rows) if (!known.has(id) && !ids.has(id)) expected.unreported.add(id)
}
