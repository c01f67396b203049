// Goal: whatever form a Go project has, it ends in artifacts or in a message that names cause and remedy. The list of
// its modules equals what Go itself reads from the artifacts, and no source makes the list say anything else.
//
// The sample of `scripts/test`: each row with `always`. `scripts/test --all` builds all rows.

import { describe, expect, test } from 'bun:test'
import { userInfo } from 'node:os'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { cgroup2Root } from '../../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { startFetchServers } from '../../rigs/build/fetch-servers.ts'
import { buildGo } from '../../rigs/build/go-corpus/corpus.ts'
import { FORMS } from '../../rigs/build/go-corpus/forms.ts'
import { HOSTILE } from '../../rigs/build/go-corpus/hostile.ts'
import { MISTAKES } from '../../rigs/build/go-corpus/mistakes.ts'
import type { Row } from '../../rigs/build/go-corpus/parts.ts'

const skipped = skipUnless(userInfo().uid === 0 && cgroup2Root() !== null, 'needs root and cgroup2')
const timeoutMs = 1_800_000

const sampled = (rows: readonly Row[]) => rows.filter(row => runsAll || row.always === true)

async function judge(row: Row): Promise<{ readonly found: unknown; readonly expected: unknown }> {
  await using servers = await startFetchServers()
  const { failure, artifacts, modules, named, linked, output } = await buildGo(row, servers)
  if ('fails' in row) {
    const expected = `fails as ${row.fails}`
    return { found: row.fails.test(failure ?? '') ? expected : { failure }, expected }
  }
  const { notLinked = [] } = row
  return {
    found: { failure, artifacts, modules, named, output },
    expected: {
      failure: null,
      artifacts: row.artifacts,
      modules: [...row.modules].sort(),
      // Go reads these from the artifacts; they are not of this table.
      named: [...linked, ...notLinked].sort(),
      output: row.output ?? '',
    },
  }
}

async function expectRows(rows: readonly Row[]): Promise<void> {
  const judged = await Promise.all(rows.map(async row => ({ what: row.what, ...(await judge(row)) })))
  expect(judged.map(({ what, found }) => [what, found])).toEqual(judged.map(({ what, expected }) => [what, expected]))
  process.stdout.write(`${rows.length} Go projects end as their rows say\n`)
}

describe.skipIf(skipped)('a corpus of Go projects', () => {
  // Goal: at least 10 forms that people write end well, and each mistake in its own message.
  test(
    'forms and mistakes of people',
    async () => {
      const rows = [...FORMS, ...MISTAKES]
      expect(FORMS.length).toBeGreaterThanOrEqual(10)
      expect(new Set(rows.map(({ what }) => what)).size).toBe(rows.length)
      await expectRows(sampled(rows))
    },
    timeoutMs,
  )

  // Goal: no setting, link, file or C code takes a compiled module off the list, or puts another one on it.
  test('sources that lie about themselves', async () => await expectRows(sampled(HOSTILE)), timeoutMs)
})
