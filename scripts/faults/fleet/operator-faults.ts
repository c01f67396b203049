// What an operator does to a fleet: restores its directory from a dump, puts a host's older records back, forgets a
// host and lets it join again, changes a password. Each under load; what may be lost by it is noted, and what a host
// must answer is checked. Effects: those of the operator's commands.

import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { systemClock } from '../../../src/base/clock.ts'
import { createFleetAdmin } from '../../../src/fleet/hosts/fleet-admin.ts'
import { asOwner, roleOf } from '../../rigs/postgres/fleet.ts'
import { command, program } from '../../rigs/postgres/programs.ts'
import { until } from '../../rigs/until.ts'
import type { FaultedFleet, FaultedHost, Heal } from './faulted-fleet.ts'

const patientMs = 60_000
/** A restore waits for locks of hosts, which may wait for one of its own: then it is repeated, as an operator would. */
const restoresMax = 10

let fileCount = 0

export async function dumpDirectory(fleet: FaultedFleet): Promise<Heal> {
  fileCount += 1
  const path = join(fleet.databases.directory, `dump-${fileCount}.sql`)
  const beganMs = performance.now()
  const options = ['--schema=strongroom', `--file=${path}`]
  await command([program('pg_dump'), ...options, fleet.ownerUrl()])
  return async () => {
    const end = fleet.expected.restoring(beganMs)
    for (let count = 1; ; count += 1) {
      try {
        await restore(fleet, path)
        break
      } catch (error) {
        if (count === restoresMax || !/deadlock detected|lock timeout/.test(String(error))) throw error
      }
    }
    end()
    fleet.expected.mayHaveMoved = true
    // Usage that was reported for them since is in the directory only if they report it again.
    for (const host of fleet.hosts) host.history += 1
    rmSync(path)
  }
}

/** As `strongroom help fleet` has it. */
async function restore(fleet: FaultedFleet, path: string): Promise<void> {
  const line = `(echo 'DROP SCHEMA strongroom CASCADE;'; cat "$1") | "$2" --quiet --single-transaction --set=ON_ERROR_STOP=1 "$3"`
  await command(['sh', '-c', line, 'sh', path, program('psql'), fleet.ownerUrl()])
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
    await until(`${host.name} has no lease`, patientMs, async () => {
      const has = await fleet.sql(`SELECT has_lease FROM strongroom.host_states WHERE id = '${host.id}'`)
      return has === 'f'
    })
    await asOwner(fleet.ownerUrl(), postgres =>
      createFleetAdmin({ postgres, hostId: null, clock: systemClock }).forget(host.name),
    )
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
