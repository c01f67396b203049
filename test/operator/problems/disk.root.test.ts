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
        const nearlyFull = {
          ...{ name: 'disk', severity: 'warning' },
          detail: expect.stringMatching(
            /is nearly full: \d+ MiB are free at \S+\/state; the problem ends once 1024 MiB are free$/,
          ),
          remedy: expect.stringMatching(/^run `df .+`; `du .+\/state \| sort .+strongroom help problem disk/),
        }
        expect(diskProblems(dir)).toMatchObject([nearlyFull])
        const ballast = fillDisk(dir)
        expect(diskProblems(dir)).toMatchObject([
          {
            ...{ name: 'disk', severity: 'critical' },
            detail: expect.stringMatching(
              /is full: \d+ MiB are free at \S+\. From 256 MiB on it is a warning; the problem ends once 1024 MiB are free$/,
            ),
            // Inodes are not short.
            remedy: expect.not.stringContaining('inode'),
          },
        ])
        unlinkSync(ballast)
        expect(diskProblems(dir)).toMatchObject([nearlyFull])
        expect(Bun.spawnSync(['mount', '-o', 'remount,nr_inodes=40', dir]).exitCode).toBe(0)
        expect(diskProblems(dir)).toMatchObject([
          {
            ...{ name: 'disk', severity: 'critical' },
            detail: expect.stringMatching(/is full: \d+ inodes are free at \S+, and 64 are needed$/),
            remedy: expect.stringContaining('until 64 inodes are free'),
          },
        ])
      }
      expect(diskProblems(dir)).toMatchObject([{ detail: expect.stringContaining('cannot be read') }])
      rmSync(parent, { recursive: true })
    })
  },
  { timeoutMs: 60_000 },
)
