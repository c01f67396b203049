// Goal: an operator reads which setting is wrong, not that the directory is away. Real PostgreSQL with TLS.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { patientLimits } from '../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, startPostgres } from '../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { failure } from '../../scripts/rigs/until.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { withPostgres } from '../../src/cli/fleet/direct.ts'
import type { PostgresTarget } from '../../src/fleet/driver.ts'
import { reasonOf } from '../../src/fleet/failures.ts'
import { checkSchema } from '../../src/fleet/migrations.ts'
import { openPostgres } from '../../src/fleet/postgres.ts'
import { openAuthority } from '../../src/http/authority.ts'
import { remedyOf } from '../../src/terminal/exit.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

// Goal: by the log and status of a daemon, and by commands of the operator, with what to do.
test.skipIf(missing)('what is wrong with the way to the database', async () => {
  await using undo = new AsyncDisposableStack()
  const access = [
    'local all all trust',
    'hostssl all rack 127.0.0.1/32 scram-sha-256',
    'hostssl all few 127.0.0.1/32 trust',
  ]
  const server = undo.use(await startPostgres({ isTls: true, access }))
  const root = mkdtempSync(join(tmpdir(), 'srt-advice-'))
  undo.defer(() => rmSync(root, { recursive: true, force: true }))
  for (const role of ["rack LOGIN PASSWORD 'right'", 'few LOGIN']) {
    await server.run(`CREATE ROLE ${role}`)
  }
  await server.run('CREATE SCHEMA strongroom; CREATE TABLE strongroom.migrations (version integer, release integer)')
  const names = ['localhost']
  const other = await openAuthority({ kind: 'clients', stateDir: root, nowMs: Date.now, random: systemRandom, names })
  const target: PostgresTarget = {
    ...{ host: 'localhost', port: server.port, user: 'rack', database: 'postgres', password: 'right' },
    ...{ caPem: server.caPem, applicationName: 'test' },
  }
  const wrong: readonly (readonly [Partial<PostgresTarget>, RegExp, RegExp])[] = [
    [{ password: 'wrong' }, /^the database refuses the password: .*"rack" \(28P01\)$/, /fleet\.password_file/],
    [{ password: null }, /^the database requests a password, and none/, /fleet\.password_file/],
    [{ user: 'nobody' }, /does not let this role sign in from here: .*\(28000\)$/, /LOGIN.*pg_hba\.conf/],
    [{ caPem: null }, /does not let this role sign in from here: .*no encryption/, /hostssl/],
    [{ caPem: other.caPem }, /certificate is not signed by an authority in fleet\.ca_file: /, /into fleet\.ca_file/],
    [{ host: '127.0.0.1' }, /certificate is for another name than the host of fleet\.database: /, /fleet\.database/],
    [{ user: 'few' }, /^the role lacks a right: permission denied for/, /strongroom fleet join --as/],
  ]
  for (const [given, reason, remedy] of wrong) {
    const there = { ...target, ...given }
    const postgres = await openPostgres({ target: there, limits: patientLimits, clock: systemClock, log: silentLogger })
    expect(reasonOf(await failure(checkSchema(postgres)))).toMatch(reason)
    await postgres.close()
    const shown = await failure(withPostgres(there, checkSchema))
    expect([shown.message, remedyOf(shown)]).toEqual([expect.stringMatching(reason), expect.stringMatching(remedy)])
  }
  // No setting of this host corrects this.
  expect(reasonOf(await failure(withPostgres({ ...target, port: 1 }, checkSchema)))).toMatch(/^connect ECONNREFUSED/)
})
