// Goal: whatever form a Cargo project has, it ends in artifacts or in a message that names cause and
// remedy. The list of its packages equals what the compiler was called for, which a recording compiler
// notes independently of cargo. No source makes the list say anything else.
//
// The sample of `scripts/test`: every fifth row, counted from the first, and each row with `always`.
// `scripts/test --all` builds all rows.

import { describe, expect, test } from 'bun:test'
import { userInfo } from 'node:os'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { cgroup2Root, findRust } from '../../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { CODE } from '../../rigs/build/cargo-corpus/code.ts'
import { buildCorpus, type CorpusEnd } from '../../rigs/build/cargo-corpus/corpus.ts'
import { HOSTILE } from '../../rigs/build/cargo-corpus/hostile.ts'
import { LOCKS_AND_WORKSPACES } from '../../rigs/build/cargo-corpus/locks-and-workspaces.ts'
import { MISTAKES } from '../../rigs/build/cargo-corpus/mistakes.ts'
import type { Row } from '../../rigs/build/cargo-corpus/parts.ts'
import { repositoryRows } from '../../rigs/build/cargo-corpus/repositories.ts'
import { type FetchServers, startFetchServers } from '../../rigs/build/fetch-servers.ts'

const isRoot = userInfo().uid === 0
const skipped = skipUnless(isRoot && findRust() !== null && cgroup2Root() !== null, 'needs root, a cargo and cgroup2')
const timeoutMs = 1_800_000

const sampled = (rows: readonly Row[]) => rows.filter((row, index) => runsAll || row.always === true || index % 5 === 0)

function judged(row: Row, end: CorpusEnd | undefined): unknown {
  if (end === undefined) return 'not built'
  // In the same words, so that a difference shows the rows that failed and no other.
  if ('fails' in row) return row.fails.test(end.failure ?? '') ? expected(row) : { failure: end.failure }
  const { failure, artifacts, packages, lock } = end
  return { failure, artifacts, packages: packages.map(({ text }) => text), lock }
}

function expected(row: Row): unknown {
  if ('fails' in row) return { failure: `fails as ${row.fails}` }
  const { artifacts, packages, lock = 'Cargo.lock' } = row
  return { failure: null, artifacts, packages, lock }
}

/** Builds the rows and compares each with its own words and with the record of the compiler. */
async function expectRows(rows: readonly Row[], servers: FetchServers): Promise<void> {
  const ends = await buildCorpus(rows, servers.fetch)
  const found = rows.map(row => [row.what, judged(row, ends.get(row.what))])
  expect(found).toEqual(rows.map(row => [row.what, expected(row)]))
  for (const row of rows) {
    const end = ends.get(row.what)
    if ('fails' in row || end === undefined) continue
    const compiled = end.packages.flatMap(pkg => pkg.compiled ?? []).sort()
    const recorded = end.recorded.map(text => text.replace(/source:.*$/, place => row.places?.[place] ?? place))
    expect([row.what, compiled]).toEqual([row.what, recorded])
  }
  process.stdout.write(`${rows.length} Cargo projects end as their rows say\n`)
}

describe.skipIf(skipped)('a corpus of Cargo projects', () => {
  // Goal: at least 40 forms that people write end well, or in the right message.
  test(
    'forms that people write',
    async () => {
      await using servers = await startFetchServers()
      const rows = [...LOCKS_AND_WORKSPACES, ...CODE, ...MISTAKES, ...repositoryRows(servers)]
      expect(rows.length).toBeGreaterThanOrEqual(40)
      expect(new Set(rows.map(({ what }) => what)).size).toBe(rows.length)
      await expectRows(sampled(rows), servers)
    },
    timeoutMs,
  )

  // Goal: no setting, link, file or build script takes a compiled package off the list.
  test(
    'sources that lie about themselves',
    async () => {
      await using servers = await startFetchServers()
      await expectRows(sampled(HOSTILE), servers)
    },
    timeoutMs,
  )
})
