// Goal: whatever form a flake has, it ends in artifacts or in a message that names cause and remedy. The list of what
// came from elsewhere equals what Nix itself finds in the store, and no source makes the list say anything else.
//
// The sample of `scripts/test`: each row with `always`. `scripts/test --all` builds all rows.

import { describe, expect, test } from 'bun:test'
import { existsSync } from 'node:fs'
import { userInfo } from 'node:os'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { cgroup2Root, findRust } from '../../../scripts/rigs/build/vm.ts'
import { succeed } from '../../../scripts/rigs/guest/root.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { type FetchServers, startFetchServers } from '../../rigs/build/fetch-servers.ts'
import { buildNix } from '../../rigs/build/nix-corpus/corpus.ts'
import { formRows } from '../../rigs/build/nix-corpus/forms.ts'
import { hostileRows } from '../../rigs/build/nix-corpus/hostile.ts'
import { mistakeRows } from '../../rigs/build/nix-corpus/mistakes.ts'
import type { Row } from '../../rigs/build/nix-corpus/parts.ts'

const hasTools = Bun.which('nix') !== null && existsSync('/usr/bin/busybox') && findRust() !== null
const skipped = skipUnless(
  userInfo().uid === 0 && hasTools && cgroup2Root() !== null,
  'needs root, nix, a static busybox, a cargo and cgroup2',
)
const timeoutMs = 1_800_000

const [, minor = '0'] = /^nix \(Nix\) 2\.(\d+)/.exec(skipped ? '' : succeed(['nix', '--version'])) ?? []
const isOld = skipUnless(Number(minor) >= 26, 'rows of the corpus need Nix 2.26')
const sampled = (rows: readonly Row[]) =>
  rows.filter(row => (runsAll || row.always === true) && !(isOld && row.since26 === true))
const withoutHash = (line: string) => line.replace(/ ?[0-9a-f]{64}$/, '')

async function judge(
  row: Row,
  servers: FetchServers,
): Promise<{ readonly found: unknown; readonly expected: unknown }> {
  const { failure, artifacts, listed, stored, log } = await buildNix(row, servers)
  if ('fails' in row) {
    const expected = `fails as ${row.fails}`
    return { found: row.fails.test(failure ?? '') ? expected : { failure }, expected }
  }
  const { logs = null } = row
  return {
    found: {
      failure,
      artifacts,
      names: listed?.map(withoutHash) ?? null,
      listed,
      log: logs?.test(log) === true ? null : log,
    },
    expected: {
      failure: null,
      artifacts: row.artifacts,
      names: row.lists === null ? null : [...row.lists].sort(),
      // Nix finds these in the store; they are not of this table.
      listed: stored,
      log: logs === null ? log : null,
    },
  }
}

async function expectRows(rows: readonly Row[], servers: FetchServers): Promise<void> {
  const judged = await Promise.all(rows.map(async row => ({ what: row.what, ...(await judge(row, servers)) })))
  expect(judged.map(({ what, found }) => [what, found])).toEqual(judged.map(({ what, expected }) => [what, expected]))
  process.stdout.write(`${rows.length} flakes end as their rows say, with Nix 2.${minor}\n`)
}

describe.skipIf(skipped)('a corpus of flakes', () => {
  // Goal: at least 15 forms that people write end well, and each mistake in its own message.
  test(
    'forms and mistakes of people',
    async () => {
      await using servers = await startFetchServers()
      const [forms, mistakes] = [formRows(servers), mistakeRows(servers)]
      const rows = [...forms, ...mistakes]
      expect(forms.length).toBeGreaterThanOrEqual(15)
      expect(new Set(rows.map(({ what }) => what)).size).toBe(rows.length)
      await expectRows(sampled(rows), servers)
    },
    timeoutMs,
  )

  // Goal: no lock, setting, attribute, derivation or cache takes a fetched path off the list, or puts another on it.
  test(
    'sources that lie about themselves',
    async () => {
      await using servers = await startFetchServers()
      await expectRows(sampled(hostileRows(servers)), servers)
    },
    timeoutMs,
  )
})
