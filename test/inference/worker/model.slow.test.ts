// Goal: the digest that is admitted and attested is that of the very bytes that the worker serves.

import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { appendFileSync, copyFileSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { toHex } from '../../../src/base/bytes.ts'
import { createModelReader } from '../../../src/inference/worker/model.ts'
import { admitOnce, sha256, standIn, until, workerBench } from '../../rigs/gateway/worker-bench.ts'

/** All that an owner of the file can do to it; the last leaves size and time of writing as they were. */
const CHANGES: [how: string, change: (path: string) => void][] = [
  ['appended to', path => appendFileSync(path, 'more')],
  ['removed', path => rmSync(path)],
  [
    'replaced by a file like it',
    path => {
      copyFileSync(path, `${path}.next`)
      renameSync(`${path}.next`, path)
    },
  ],
  [
    'written to and dated back',
    path => {
      const shell = `cp --preserve=timestamps "$0" "$0.old"; printf other > "$0"; touch --reference="$0.old" "$0"`
      expect(Bun.spawnSync(['sh', '-ec', shell, path]).exitCode).toBe(0)
    },
  ],
]

describe('the reader', () => {
  let dir = ''
  let path = ''
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'worker-model-'))
    path = join(dir, 'model.gguf')
  })
  afterEach(() => rmSync(dir, { recursive: true, force: true }))
  const never = new AbortController().signal

  // Goal: no byte is left out or taken twice, whatever the size is to the pieces it is read in.
  test.each([0, 1, 262_143, 262_144, 262_145, 1_000_000])('hashes %p bytes', async sizeBytes => {
    const bytes = Buffer.alloc(sizeBytes, 'a model')
    writeFileSync(path, bytes)
    const { digest, checkUnchanged } = await createModelReader(path)(never)
    expect(toHex(digest)).toBe(Bun.CryptoHasher.hash('sha256', bytes, 'hex'))
    checkUnchanged()
  })

  for (const [how, change] of CHANGES) {
    test(`goal: a file that was ${how} is another file`, async () => {
      writeFileSync(path, 'model')
      const { checkUnchanged } = await createModelReader(path)(never)
      change(path)
      expect(checkUnchanged).toThrow(`model ${path}: the file has changed`)
    })
  }

  // Goal: a file that is still being copied is refused, not hashed half.
  test.each([
    ['a', 'appended to'],
    ['r+', 'written over'],
  ] as const)('%s: %s while it is read', async flag => {
    writeFileSync(path, Buffer.alloc(64 * 1_048_576))
    const reading = createModelReader(path)(never)
    const change = setInterval(() => writeFileSync(path, 'more', { flag }), 1)
    try {
      await expect(reading).rejects.toThrow('the file has changed')
    } finally {
      clearInterval(change)
    }
  })

  // Goal: a restart does not read gigabytes again.
  test('the same file is read once', async () => {
    const sizeBytes = 64 * 1_048_576
    writeFileSync(path, Buffer.alloc(sizeBytes))
    const read = createModelReader(path)
    const bytesRead = () => Number(/^rchar: (\d+)/m.exec(readFileSync('/proc/self/io', 'utf8'))?.[1])
    const first = await read(never)
    const before = bytesRead()
    expect(await read(never)).toMatchObject({ digest: first.digest })
    expect(bytesRead() - before).toBeLessThan(sizeBytes / 2)
    writeFileSync(path, 'other')
    expect(toHex((await read(never)).digest)).toBe(toHex(sha256('other')))
  })

  // Goal: stopping the appliance does not wait until a file of many gigabytes is read.
  test('stops at an abort', async () => {
    writeFileSync(path, Buffer.alloc(8 * 1_048_576))
    const stopping = new AbortController()
    const reading = createModelReader(path)(stopping.signal)
    stopping.abort(new Error('aborted by the test'))
    await expect(reading).rejects.toThrow('aborted by the test')
  })

  // Goal: the operator's mistakes are named.
  test('what is no file', async () => {
    await expect(createModelReader(path)(never)).rejects.toThrow(`model ${path}: no such file`)
    await expect(createModelReader(dir)(never)).rejects.toThrow(`model ${dir}: not a file`)
  })
})

describe('the worker', () => {
  // Goal: the digest that is admitted is that of the bytes that are there now.
  test('another file has another digest, the same one again the same', async () => {
    const stand = standIn([{ kind: 'healthy' }])
    await using bench = workerBench(stand)
    bench.worker.start()
    await bench.worker.settled
    stand.exit(1)
    await until(() => stand.started.length === 2 && bench.worker.state.kind === 'ready', 'the second life')
    writeFileSync(join(bench.dir, 'next.gguf'), 'other')
    renameSync(join(bench.dir, 'next.gguf'), join(bench.dir, 'model.gguf'))
    await until(() => stand.started.length === 3 && bench.worker.state.kind === 'ready', 'the third life')
    const digests = stand.started.map(({ command }) => /sha256-(\w+)/.exec(command.join(' '))?.[1])
    expect(digests).toEqual(['model', 'model', 'other'].map(text => toHex(sha256(text))))
    expect(bench.logged.join('\n')).toContain('model.gguf: the file has changed')
  })

  for (const [how, change] of CHANGES) {
    test(`goal: a worker whose model was ${how} while it started never becomes ready`, async () => {
      const stand = standIn([{ kind: 'loading' }])
      await using bench = workerBench(stand)
      bench.worker.start()
      await until(() => stand.started.length === 1, 'the start')
      change(join(bench.dir, 'model.gguf'))
      stand.become('healthy')
      expect(await bench.worker.settled).toEqual({
        kind: 'failed',
        message: `model ${join(bench.dir, 'model.gguf')}: the file has changed`,
      })
    })

    test(`goal: a worker whose model is ${how} later is stopped`, async () => {
      const stand = standIn([{ kind: 'healthy' }])
      await using bench = workerBench(stand, { admit: admitOnce() })
      bench.worker.start()
      await bench.worker.settled
      change(join(bench.dir, 'model.gguf'))
      await until(() => bench.worker.state.kind !== 'ready', 'the end')
      expect(stand.killed()).toBe(1)
    })
  }
})
