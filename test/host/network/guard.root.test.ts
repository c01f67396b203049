// The firewall guard comes back with the appliance's own table, with real nftables in a namespace of its own.

import { expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { createLogger } from '../../../src/base/log.ts'
import { lookAtGuard } from '../../../src/host/network/guard.ts'
import { createNft } from '../../../src/host/network/nft.ts'
import { run } from '../../../src/linux/command.ts'

const shipped = readFileSync(join(import.meta.dir, '../../../scripts/systemd/strongroom-guard.nft'), 'utf8')
const timeoutMs = 5_000

inOwnNetns(
  import.meta.path,
  () => {
    const nft = (...argv: string[]) => run(['nft', ...argv], { timeoutMs, outputBytesMax: 100_000 })

    /** An nft that knows a guard file of this text (null: there is none), and the levels of what it logs. */
    const bench = async (text: string | null) => {
      await nft('flush', 'ruleset')
      const directory = mkdtempSync(join(tmpdir(), 'srt-guard-'))
      const guardFile = join(directory, 'strongroom-guard.nft')
      if (text !== null) writeFileSync(guardFile, text)
      const levels: string[] = []
      const log = createLogger({
        level: 'debug',
        sink: line => void levels.push(JSON.parse(line).level),
        nowMs: Date.now,
        priorities: false,
      })
      const apply = () =>
        createNft({ table: 'strongroom', log, guardFile }).applyRuleset('add table inet strongroom\n', timeoutMs)
      const tables = async () => (await nft('list', 'tables')).stdout.split('\n').filter(Boolean).toSorted()
      return { apply, tables, levels, [Symbol.dispose]: () => rmSync(directory, { recursive: true }) }
    }
    const both = ['table inet strongroom', 'table inet strongroom_guard']

    test('whoever flushes the ruleset takes the guard along; it comes back with our own table, and the log says so', async () => {
      // Goal: a hand-made flush leaves no gap for the next time the daemon is down.
      using b = await bench(shipped)
      await b.apply()
      expect(await b.tables()).toEqual(both)
      expect((await lookAtGuard(timeoutMs)).prefixes).toEqual(['sr'])
      await nft('flush', 'ruleset')
      expect((await lookAtGuard(timeoutMs)).prefixes).toBeNull()
      await b.apply()
      expect(await b.tables()).toEqual(both)
      expect(b.levels).toEqual(['warn', 'warn'])
    })

    test('a guard that stands is left as it is', async () => {
      // Goal: somebody may have changed it; every change of VMs passes here.
      using b = await bench(shipped)
      await nft('add', 'table', 'inet', 'strongroom_guard')
      await b.apply()
      expect((await nft('list', 'table', 'inet', 'strongroom_guard')).stdout).not.toContain('chain')
      expect(b.levels).toEqual([])
    })

    test('where none is installed, and where its file is broken, VMs get their own rules all the same', async () => {
      // Goal: the guard is the second wall; without it the first must stand.
      for (const [text, levels] of [
        [null, []],
        ['table inet strongroom_guard { nonsense }\n', ['error']],
      ] as const) {
        using b = await bench(text)
        await b.apply()
        expect(await b.tables()).toEqual(['table inet strongroom'])
        expect(b.levels).toEqual([...levels])
      }
    })
  },
  { timeoutMs: 30_000 },
)
