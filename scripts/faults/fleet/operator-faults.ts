// Faults of a fleet's operator: restores its directory from a dump, forgets a host and lets it join again, changes a
// password. Each under load; what may be lost by it is noted, and what a host
// must answer is checked. Effects: those of the operator's commands.

import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { systemClock } from '../../../src/base/clock.ts'
import { Fault } from '../../../src/base/fault.ts'
import { createFleetAdmin } from '../../../src/fleet/hosts/fleet-admin.ts'
import { dumpDirectory, restoreDirectory } from '../../rigs/postgres/dump.ts'
import { asOwner, roleOf } from '../../rigs/postgres/fleet.ts'
import { until } from '../../rigs/until.ts'
import type { FaultedFleet, FaultedHost, Heal } from './faulted-fleet.ts'

const patientMs = 60_000
/** A server whose clock was set back finds no deadlock: its timers wait by that clock. */
const deadlockMs = 5_000

let fileCount = 0

/** Puts nothing back that another restore has undone in part. */
export async function dumpAndRestore(fleet: FaultedFleet): Promise<Heal> {
  fileCount += 1
  const path = join(fleet.databases.directory, `dump-${fileCount}.sql`)
  const { restores } = fleet.expected
  const beganMs = performance.now()
  await dumpDirectory(fleet.ownerUrl(), path)
  return async () => {
    if (fleet.expected.restores === restores) await restore(fleet, path, beganMs)
    else fleet.note('a dump is not restored: an earlier one was restored since')
    rmSync(path)
  }
}

async function restore(fleet: FaultedFleet, path: string, beganMs: number): Promise<void> {
  const end = fleet.expected.restoring(beganMs)
  const isOver = restoreDirectory(fleet.ownerUrl(), path).then(() => true)
  while (!(await Promise.race([isOver, Bun.sleep(deadlockMs).then(() => false)]))) await endSessions(fleet)
  end()
  fleet.expected.mayHaveMoved = true
  // Usage that was reported for them since is in the directory only if they report it again.
  for (const host of fleet.hosts) host.history += 1
}

/** Ends the sessions of hosts, as an operator does whose restore waits for one of them. */
async function endSessions(fleet: FaultedFleet): Promise<void> {
  await fleet.sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'host-%'`)
}

export async function rotatePassword(fleet: FaultedFleet, host: FaultedHost): Promise<Heal> {
  const password = await fleet.newPassword(host)
  await fleet.sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '${roleOf(host.id)}'`)
  return () => fleet.writePassword(host, password)
}

/** The fleet loses the host, which may still run; it is forgotten, says so, and joins again with its records. */
export async function forgetHost(fleet: FaultedFleet, host: FaultedHost): Promise<Heal> {
  host.proxy.set('hole')
  return async () => {
    host.proxy.set('hole')
    // Silence counts only while others renew.
    for (const other of fleet.hosts) if (other !== host) other.proxy.set('open')
    await fleet.startAll()
    await forgetSilent(fleet, host)
    const given = await fleet.sql(`SELECT name FROM strongroom.instances WHERE host_id = '${host.id}'`)
    for (const name of given.split('\n')) fleet.expected.mayHaveFailed.add(name)
    fleet.expected.mayHaveMoved = true
    host.proxy.set('open')
    await until(`${host.name} says that it was forgotten`, patientMs, async () => {
      const answer = await fleet.answerOf(host)
      return answer.status === 503 && answer.text.includes('not a member of its fleet')
    })
    await fleet.join(host)
    await until(`${host.name} is back in the fleet`, patientMs, async () => {
      return (await fleet.answerOf(host)).status === 200
    })
  }
}

/** Waits until it has no lease: the fleet forgets no other host. */
export async function forgetSilent(fleet: FaultedFleet, { name }: FaultedHost): Promise<void> {
  await until(`${name} is forgotten`, patientMs, () =>
    asOwner(fleet.ownerUrl(), postgres =>
      createFleetAdmin({ postgres, hostId: null, clock: systemClock }).forget(name),
    ).catch((error: unknown) => {
      if (error instanceof Fault && error.message.includes('renews its lease')) return false
      throw error
    }),
  )
}
