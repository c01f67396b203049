// Goal: the disks are what others take for such: erofs-utils and veritysetup, which have nothing of ours; and a
// process that makes one may die at any time.

import { afterAll, describe, expect, test } from 'bun:test'
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tinyModel } from '../../../scripts/model/tiny-model.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { ensureModel } from '../../../src/host/models/ensure.ts'
import { erofsHead } from '../../../src/host/models/erofs.ts'
import { hashOffsetOf } from '../../../src/host/models/extent.ts'
import { addModel, listModels, loadModel, settledAfterMs } from '../../../src/host/models/models.ts'
import { writeGguf, writeSparseGguf } from '../../rigs/gguf-file.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-model-disk-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))
const main = join(import.meta.dir, '../../../src/main.ts')
const signal = new AbortController().signal

let states = 0
function newState(): string {
  states += 1
  return join(dir, `state-${states}`)
}

const add = (stateDir: string, file: string, name: string) =>
  addModel(
    { stateDir, file, name, golden: async () => null, replacesGolden: false },
    { onProgress: () => {}, signal, nowMs: Date.now },
  )

/** Standard output of a command that must succeed. */
function tool(...argv: string[]): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync(argv)
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${exitCode}\n${stdout}${stderr}`)
  return stdout.toString()
}

describe('other tools', () => {
  for (const sizeBytes of [132, 4096, 12_345_678]) {
    test(`goal: fsck.erofs finds the one file in a disk of ${sizeBytes} bytes, for root alone to change`, async () => {
      const file = writeGguf(join(dir, 'fsck.gguf'), sizeBytes)
      const { disk } = await add(newState(), file, 'fsck')
      const out = join(dir, `out-${sizeBytes}`)
      tool('fsck.erofs', `--extract=${out}`, '--preserve', disk)
      expect(readdirSync(out)).toEqual(['model.gguf'])
      expect(readFileSync(join(out, 'model.gguf')).equals(readFileSync(file))).toBe(true)
      const { mode, mtimeMs } = statSync(join(out, 'model.gguf'))
      expect([mode & 0o7777, mtimeMs]).toEqual([0o444, 0])
      expect(statSync(out).mode & 0o7777).toBe(0o555)
    })

    test(`goal: veritysetup finds the same root for ${sizeBytes} bytes, with the superblock and without`, async () => {
      const { disk, model } = await add(newState(), writeGguf(join(dir, 'verity.gguf'), sizeBytes), 'verity')
      tool('veritysetup', 'verify', `--hash-offset=${model.hashOffset}`, disk, disk, model.rootHash)
      const blocks = model.hashOffset / 4096
      // As the gateway VM opens it.
      const plain = ['--no-superblock', '--format=1', '--hash=sha256', '--salt=-', `--data-blocks=${blocks}`]
      tool('veritysetup', 'verify', ...plain, `--hash-offset=${model.hashOffset + 4096}`, disk, disk, model.rootHash)
      // And from nothing but the file system: the tree is the only one.
      const formatted = tool('veritysetup', 'format', '--salt=-', `--data-blocks=${blocks}`, disk, join(dir, 'hashes'))
      expect(/Root hash:\s+([0-9a-f]{64})/.exec(formatted)?.[1]).toBe(model.rootHash)
    })
  }

  // Goal: a size beyond 32 bits is written right. The file system alone: hashing that much takes a minute.
  test('a file of more than 4 GiB', () => {
    const sizeBytes = 4 * 1024 ** 3 + 5
    const image = join(dir, 'large.erofs')
    writeFileSync(image, erofsHead(sizeBytes))
    truncateSync(image, hashOffsetOf(sizeBytes))
    expect(tool('dump.erofs', '--path=/model.gguf', image)).toMatch(new RegExp(`Size: ${sizeBytes} `))
    tool('fsck.erofs', image)
  })
})

describe('a process that dies', () => {
  // Goal: after SIGKILL in the middle nothing has the name; the next attempt makes the same disk and clears up.
  test('is followed by one that begins anew', async () => {
    const [stateDir, other] = [newState(), newState()]
    const file = writeSparseGguf(join(dir, 'killed.gguf'), 256 * 1024 ** 2)
    const argv = ['model', 'add', file, '--name', 'killed', '--golden', 'none', '--state-dir', stateDir]
    const child = Bun.spawn([process.execPath, main, ...argv], { stdout: 'ignore', stderr: 'ignore' })
    const half = join(stateDir, 'models/.adding/model.erofs')
    await until('it writes', 60_000, () => existsSync(half) && statSync(half).size > 1_000_000)
    child.kill('SIGKILL')
    await child.exited
    expect(listModels(stateDir)).toEqual([])
    expect(existsSync(half)).toBe(true)
    const again = await add(stateDir, file, 'killed')
    expect(again.model).toEqual((await add(other, file, 'killed')).model)
    expect(readdirSync(join(stateDir, 'models')).toSorted()).toEqual(['.lock', 'killed'])
  }, 120_000)

  test('goal: a signal ends it, says so, and leaves nothing', async () => {
    const stateDir = newState()
    const file = writeSparseGguf(join(dir, 'stopped.gguf'), 1024 ** 3)
    const argv = ['model', 'add', file, '--name', 'stopped', '--golden', 'none', '--state-dir', stateDir]
    const child = Bun.spawn([process.execPath, main, ...argv], { stdout: 'ignore', stderr: 'pipe' })
    const half = join(stateDir, 'models/.adding/model.erofs')
    await until('it writes', 60_000, () => existsSync(half) && statSync(half).size > 1_000_000)
    child.kill('SIGINT')
    expect([await child.exited, await child.stderr.text()]).toEqual([1, expect.stringContaining('nothing was added')])
    expect(readdirSync(join(stateDir, 'models'))).toEqual(['.lock'])
  }, 120_000)
})

describe('for a daemon', () => {
  // Goal: the daemon gets the disk of the file that it was given without reading it itself.
  test.each(['just written', 'settled'])(
    'the disk of a file that is %s is made by a process, then found',
    async age => {
      const stateDir = newState()
      const file = join(dir, `${age}.gguf`)
      writeFileSync(file, tinyModel())
      if (age === 'settled') await Bun.sleep(settledAfterMs)
      const made = await ensureModel(stateDir, file, signal)
      expect(made).toEqual(loadModel(stateDir, `file-${made.model.fileSha256.slice(0, 32)}`))
      expect(made.model.golden).toBeNull()
      expect(await ensureModel(stateDir, file, signal)).toEqual(made)
    },
  )

  // Goal: the event loop goes on, whatever the size of the model: the work is another process's.
  test('this process does none of the reading', async () => {
    const file = writeSparseGguf(join(dir, 'slow.gguf'), 1024 ** 3)
    const before = process.cpuUsage()
    await ensureModel(newState(), file, signal)
    const { user, system } = process.cpuUsage(before)
    // Microseconds. To hash so much takes two seconds and more.
    expect(user + system).toBeLessThan(1_000_000)
  }, 120_000)

  test('goal: a file that is no model is a message that names it', async () => {
    const file = join(dir, 'text.gguf')
    writeFileSync(file, 'this is no model at all, is it?')
    const refused = ensureModel(newState(), file, signal)
    await expect(refused).rejects.toMatchObject({
      code: 'config.file',
      message: `make the model's disk: ${file}: not a GGUF file: it does not begin with "GGUF"`,
    })
  })

  test('goal: stopping ends the process', async () => {
    const stateDir = newState()
    const stopping = new AbortController()
    const file = writeSparseGguf(join(dir, 'aborted.gguf'), 1024 ** 3)
    const made = ensureModel(stateDir, file, stopping.signal)
    const half = join(stateDir, 'models/.adding/model.erofs')
    await until('it writes', 60_000, () => existsSync(half) && statSync(half).size > 1_000_000)
    const pid = readFileSync(join(stateDir, 'models/.lock'), 'utf8').trim()
    stopping.abort(new Error('stopped'))
    await expect(made).rejects.toThrow('stopped')
    await until('it is gone', 60_000, () => !existsSync(`/proc/${pid}`))
    expect(listModels(stateDir)).toEqual([])
  })
})
