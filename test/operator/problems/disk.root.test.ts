// Readiness of a host whose disk is full: a small file system of its own.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, unlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { diskProblems } from '../../../src/operator/problems/disk.ts'
import { fillDisk, smallDisk } from '../../rigs/small-disk.ts'

inOwnNetns(
  import.meta.path,
  () => {
    // Goal: a full disk makes the host not ready, with what to do; with little room left it warns before.
    test('a full disk', () => {
      const parent = mkdtempSync(join(tmpdir(), 'strongroom-disk-'))
      const dir = join(parent, 'state')
      {
        using _ = smallDisk(dir, 1_100)
        expect(diskProblems(dir)).toEqual([])
      }
      {
        using _ = smallDisk(dir, 300)
        const nearlyFull = { name: 'disk', severity: 'warning', detail: expect.stringContaining('is nearly full') }
        expect(diskProblems(dir)).toMatchObject([nearlyFull])
        const ballast = fillDisk(dir)
        expect(diskProblems(dir)).toMatchObject([
          {
            ...{ name: 'disk', severity: 'critical', detail: expect.stringContaining('is full') },
            remedy: expect.stringContaining('free 256 MiB'),
          },
        ])
        unlinkSync(ballast)
        expect(diskProblems(dir)).toMatchObject([nearlyFull])
      }
      expect(diskProblems(dir)).toMatchObject([{ detail: expect.stringContaining('cannot be read') }])
      rmSync(parent, { recursive: true })
    })
  },
  { timeoutMs: 60_000 },
)
