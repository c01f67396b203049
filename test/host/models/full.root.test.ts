// Goal: a disk that fills up while a model's disk is made costs that disk, says which file system, and leaves nothing.
// Needs root: a small tmpfs.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { type AddDeps, addModel } from '../../../src/host/models/models.ts'
import { writeGguf } from '../../rigs/gguf-file.ts'

const missing = skipUnless(process.getuid?.() === 0, 'a full disk: needs root to mount a tmpfs')
const mib = 1024 * 1024
const dir = mkdtempSync(join(tmpdir(), 'srt-model-full-'))
const stateDir = join(dir, 'state')

beforeAll(() => {
  mkdirSync(stateDir)
  if (!missing) Bun.spawnSync(['mount', '--types', 'tmpfs', '--options', 'size=128m', 'tmpfs', stateDir])
})
afterAll(() => {
  if (!missing) Bun.spawnSync(['umount', stateDir])
  rmSync(dir, { recursive: true, force: true })
})

const add = (file: string, onProgress: AddDeps['onProgress'] = () => {}) =>
  addModel(
    { stateDir, file, name: 'full', golden: async () => null, replacesGolden: false },
    { onProgress, signal: new AbortController().signal, nowMs: Date.now },
  )

const freeMib = () => statfsSync(stateDir).bavail * (statfsSync(stateDir).bsize / mib)

describe('a small file system', () => {
  test.skipIf(missing)('goal: refuses what cannot fit before it reads it', async () => {
    let read = 0
    const file = writeGguf(join(dir, 'large.gguf'), 80 * mib)
    const count = () => {
      read += 1
    }
    await expect(add(file, count)).rejects.toMatchObject({
      code: 'host.disk_full',
      message: expect.stringContaining(stateDir),
    })
    expect(read).toBe(0)
    expect(readdirSync(join(stateDir, 'models'))).toEqual(['.lock'])
  })

  test.skipIf(missing)('goal: that others fill meanwhile costs nothing that was there', async () => {
    const file = writeGguf(join(dir, 'fits.gguf'), 40 * mib)
    const fill = join(stateDir, 'others')
    let isFull = false
    const fillUp = () => {
      if (!isFull) writeFileSync(fill, new Uint8Array((freeMib() - 2) * mib))
      isFull = true
    }
    await expect(add(file, fillUp)).rejects.toMatchObject({
      code: 'host.disk_full',
      message: `${stateDir}/models: no room for the disk of ${file}`,
    })
    expect(readdirSync(join(stateDir, 'models'))).toEqual(['.lock'])
    rmSync(fill)
    expect(freeMib()).toBeGreaterThan(120)
    expect((await add(file)).made).toBe(true)
  })
})
