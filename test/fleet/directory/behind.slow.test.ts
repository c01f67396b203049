// Which hosts the placement of instances passes over, because their copy of the directory is behind. Real PostgreSQL.

import { expect, test } from 'bun:test'
import { connect, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { report } from '../../../scripts/rigs/postgres/hosts.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { readHosts } from '../../../src/fleet/directory/feed.ts'
import { joinHost } from '../../../src/fleet/hosts/hosts.query.ts'
import { renewLease } from '../../../src/fleet/hosts/lease.query.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

let server: PostgresServer

startForTests(started => {
  server = started
})

// Goal: a host is behind while it lacks a change that is older than half a minute, by the version in its lease; a
// report of an earlier release, or one with nonsense, neither fails the statement nor excludes a host that follows.
test.skipIf(missing)('a copy that is behind', async () => {
  const postgres = await connect(server, await newFleet(server))
  const hostId = 'h'
  const version = await postgres.transact(async tx => {
    await joinHost(tx, { id: hostId, name: hostId, role: 'owner', nowMs: 0 })
    return tx.version
  })
  const renewal = { hostId, process: 'p', lostAfterMs: 60_000, platform: 'tcg', places: 1 }
  const isBehind = async (copied: unknown) => {
    const given = { ...report, ...(copied === undefined ? {} : { copied_version: copied }) } as typeof report
    await renewLease(postgres, { ...renewal, report: given })
    const [host] = await readHosts(postgres)
    return host?.isBehind
  }
  expect(await isBehind(version - 1)).toBe(false)
  await postgres.query("UPDATE changes SET at = at - interval '31 seconds'")
  expect(await isBehind(version - 1)).toBe(true)
  expect(await isBehind(version)).toBe(false)
  expect(await isBehind(undefined)).toBe(false)
  expect(await isBehind(null)).toBe(false)
  expect(await isBehind('1; DROP')).toBe(false)
  expect(await isBehind(-1e300)).toBe(true)
  expect(await isBehind(1e300)).toBe(false)
  expect(await isBehind(0.4)).toBe(true)
  await postgres.close()
})
