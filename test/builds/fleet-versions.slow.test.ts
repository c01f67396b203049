// Builds of a fleet whose hosts know different schemas of the directory, over real PostgreSQL and HTTP, with build VMs
// that play scripts: no host builds a request of which it knows a part.

import { expect, test } from 'bun:test'
import { createHash, randomUUID } from 'node:crypto'
import { hasPostgres, type PostgresServer } from '../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { until } from '../../scripts/rigs/until.ts'
import { openBuildFleet } from '../rigs/fleet/build-fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')
const full = () => ({ kind: 'full', lacking: 'memory', isEnding: false }) as const

let server: PostgresServer

startForTests(started => {
  server = started
})

// Goal: a host of an earlier schema, whose copy of the directory has neither options nor waivers, gets no source of a
// build that has them: it must not build something else. Expected digests are written out.
test.skipIf(missing)('a host that does not know the options of a build', async () => {
  await using rig = await openBuildFleet(server)
  const east = await rig.host('east', { room: full })
  const statusesOf = async (body: object, queries: readonly string[]) => {
    const id = await east.submit(body)
    await rig.asOwner(owner =>
      owner.transact(tx =>
        tx.query(
          "UPDATE builds SET host_id = 'west', state = 'starting', claims = 1, source_host_id = $2 WHERE id = $1",
          [id, east.hostId],
        ),
      ),
    )
    await until('east knows that', 60_000, () => east.build(id).hostId === 'west')
    const statuses: number[] = []
    for (const query of queries) {
      const request = new Request(`https://host.invalid/handover/${id}/source${query}`)
      statuses.push((await east.builds.answerHost(request, 'west')).status)
    }
    return statuses
  }
  const sha256 = (text: string) => `?request=${createHash('sha256').update(text).digest('hex')}`
  const cargo =
    '{"cargo":{"bin":null,"features":[],"noDefaultFeatures":false,"package":"cli","profile":null,"target":null}}'
  expect(await statusesOf({ package: 'cli' }, ['', sha256(''), sha256(`{"options":${cargo},"waivers":[]}`)])).toEqual([
    503, 503, 200,
  ])
  expect(
    await statusesOf({ any_toolchain: true }, ['', sha256('{"options":null,"waivers":["any_toolchain"]}')]),
  ).toEqual([503, 200])
  expect(await statusesOf({}, ['', sha256('')])).toEqual([200, 503])
})

// Goal: the directory leaves a build to a host whose lease names a schema with all fields of the request. A repository
// needs no source from the host that took it, so nothing else would stop an older host.
test.skipIf(missing)('a host of an earlier schema takes up no build with fields that it does not know', async () => {
  await using rig = await openBuildFleet(server)
  const east = await rig.host('east', { room: full })
  const west = await rig.host('west', { schema: 14 })
  const ask = async (nonce: string, fields: object) => {
    const body = { nonce, repo_url: 'https://git.example/a.git', ...fields }
    return String((await east.send('POST', '/build', { body })).json.job_id)
  }
  const known = await ask('21', { package: 'cli' })
  expect((await west.ended(known)).hostId).toBe(west.hostId)
  const failures = west.postgres.view().failureCount
  const waived = await ask('22', { any_toolchain: true })
  // Builds that it knows go on there, and so does everything else that the fleet changes.
  const plain = await ask('23', {})
  const others = await Promise.all(['24', '25', '26'].map(nonce => ask(nonce, {})))
  for (const id of [plain, ...others]) {
    expect(await west.ended(id)).toMatchObject({ state: 'ok', hostId: west.hostId })
  }
  expect(west.build(waived)).toMatchObject({ state: 'queued', hostId: east.hostId, claims: 0 })
  // The directory has refused, and is not away for that.
  expect(west.postgres.view().failureCount).toBe(failures)
  const north = await rig.host('north')
  const build = await north.ended(waived)
  expect(build).toMatchObject({ state: 'ok', hostId: north.hostId, waivers: ['any_toolchain'] })
})

// Goal: what a host of schema 13 writes into \`nix\` reaches hosts that read \`options\`.
test.skipIf(missing)('a build whose host wrote its options where schema 13 has them', async () => {
  await using rig = await openBuildFleet(server)
  const east = await rig.host('east', { room: full })
  const id = await east.submit()
  const copied = randomUUID()
  const nix = { output: 'packages.x86_64-linux.other', caches: [] }
  await rig.asOwner(owner =>
    owner.transact(tx =>
      tx.query(
        `INSERT INTO builds SELECT (jsonb_populate_record(b, jsonb_build_object('id', $2::text, 'nix', $3::text))).*
         FROM builds b WHERE id = $1`,
        [id, copied, JSON.stringify(nix)],
      ),
    ),
  )
  await until('east has it', 60_000, () => east.look(copied) !== null)
  expect(east.build(copied).options).toEqual({ nix })
})
