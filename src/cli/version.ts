// strongroom version: the version of this executable, of the Bun inside it, and the digests of what it is made of.

import { type Provenance, provenance, version } from '../base/version.ts'
import { MIGRATIONS, schemaVersionOf } from '../store/db.ts'
import type { Command } from './operator-run.ts'

export function addVersion(program: Command): void {
  program
    .command('version')
    .description(
      'print the version of this executable and the digests of its parts; with --json also the schema of its database',
    )
    .examples('strongroom version', 'strongroom version --json')
    .runs(async run => {
      const lines = [`strongroom ${version} (Bun ${Bun.version})`, ...linesOf(provenance)]
      const schema = schemaVersionOf(MIGRATIONS)
      const document = { version, schema, bun: Bun.version, provenance: fieldsOf(provenance) }
      await run.result(document, `${lines.join('\n')}\n`)
    })
}

function fieldsOf(made: Provenance | null) {
  if (made === null) return null
  const { bunSha256, lockSha256, sourceSha256, commit } = made
  return { bun_sha256: bunSha256, lock_sha256: lockSha256, source_sha256: sourceSha256, commit }
}

function linesOf(made: Provenance | null): string[] {
  if (made === null) return ['run from source']
  return [
    `commit   ${made.commit ?? 'none: built from sources that no commit has'}`,
    `source   sha256 ${made.sourceSha256}`,
    `bun.lock sha256 ${made.lockSha256}`,
    `Bun      sha256 ${made.bunSha256}`,
  ]
}
