// Readiness of a host whose disk is full: a small file system of its own.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, unlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { diskProblems } from '../../src/operator/disk.ts'
import { fillDisk, smallDisk } from '../rigs/small-disk.ts'

inOwnNetns(
  import.meta.path,
  () => {
    // Goal: a full disk makes the host not ready, with what to do; with room again it is ready.
    test('a full disk', () => {
      const parent = mkdtempSync(join(tmpdir(), 'strongroom-disk-'))
      const dir = join(parent, 'state')
      {
        using _ = smallDisk(dir, 300)
        expect(diskProblems(dir)).toEqual([])
        const ballast = fillDisk(dir)
        expect(diskProblems(dir)).toMatchObject([
          { name: 'disk', detail: expect.stringContaining('is full'), remedy: expect.stringContaining('free 256 MiB') },
        ])
        unlinkSync(ballast)
        expect(diskProblems(dir)).toEqual([])
      }
      expect(diskProblems(dir)).toMatchObject([{ detail: expect.stringContaining('cannot be read') }])
      rmSync(parent, { recursive: true })
    })
  },
  { timeoutMs: 60_000 },
)
