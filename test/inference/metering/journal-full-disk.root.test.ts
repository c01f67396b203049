// Goal: on a full disk an existing usage journal still takes rows. A journal that cannot be made leaves no file that
// takes the last room, and says why.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { UsageJournal } from '../../../src/inference/metering/journal/journal.ts'
import type { Usage } from '../../../src/store/directory/usage/usage.table.ts'
import { fillDisk, smallDisk } from '../../rigs/small-disk.ts'

function rowOf(id: string): Usage {
  return {
    id,
    atMs: 1_000,
    organizationId: 'o1',
    keyPrefix: 'aaaaaaaa',
    instanceId: null,
    model: 'tiny',
    upstream: 'local',
    promptTokens: 10,
    completionTokens: 20,
    cachedTokens: 0,
    costNanoUsd: 5,
    outcome: 'completed',
    tokensSource: 'reported',
    endUser: null,
    tags: null,
  }
}

inOwnNetns(
  import.meta.path,
  () => {
    // Goal: a full disk does not stop the recording of usage: the file has its room already.
    test('a journal that was made before takes rows, and gives them back', () => {
      using undo = new DisposableStack()
      const parent = mkdtempSync(join(tmpdir(), 'srt-journal-disk-'))
      undo.defer(() => rmSync(parent, { recursive: true }))
      const directory = join(parent, 'state')
      undo.use(smallDisk(directory, 32))
      const path = join(directory, 'usage-journal.bin')
      const journal = new UsageJournal(path)
      fillDisk(directory)
      const ids = Array.from({ length: 5_000 }, (_, at) => `r${at}`)
      expect(ids.map(id => journal.append(rowOf(id))).filter(place => place < 0)).toEqual([])
      journal.close()
      const next = new UsageJournal(path)
      expect(next.takeFound().map(({ row }) => row.id)).toEqual(ids)
      next.close()
    })

    // Goal: a disk without room for the whole file is a refusal at the start, never a process that ends at a write.
    test('a journal that finds no room is not made', () => {
      using undo = new DisposableStack()
      const parent = mkdtempSync(join(tmpdir(), 'srt-journal-disk-'))
      undo.defer(() => rmSync(parent, { recursive: true }))
      const directory = join(parent, 'state')
      undo.use(smallDisk(directory, 8))
      const path = join(directory, 'usage-journal.bin')
      expect(() => new UsageJournal(path)).toThrow('ENOSPC')
      expect(statSync(path).size).toBe(0)
    })
  },
  { timeoutMs: 120_000 },
)
