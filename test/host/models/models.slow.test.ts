// Goal: a model's disk is there whole or not at all, is the same for the same file everywhere, and no file or name
// gets more than its own place.

import { afterAll, describe, expect, test } from 'bun:test'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkVerity } from '../../../src/attest/verity/verify.ts'
import { fromHex } from '../../../src/base/bytes.ts'
import { Fault } from '../../../src/base/fault.ts'
import type { GoldenAnswer } from '../../../src/contract/vm/workload.ts'
import { modelDiskBytes } from '../../../src/host/models/disk.ts'
import { modelBytesMax } from '../../../src/host/models/erofs.ts'
import {
  type AddDeps,
  addModel,
  findModelOf,
  listModels,
  loadModel,
  mayBeModelOf,
  modelNameOf,
  type NewModel,
  removeModel,
} from '../../../src/host/models/models.ts'
import { lockFile } from '../../../src/linux/lock.ts'
import { ggufBytes, ggufHeader, writeGguf, writeSparseGguf } from '../../rigs/gguf-file.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-models-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

let states = 0
function newState(): string {
  states += 1
  return join(dir, `state-${states}`)
}

/** Long after every write of these tests, so that files count as settled. */
const laterMs = Date.now() + 3_600_000
const deps: AddDeps = { onProgress: () => {}, signal: new AbortController().signal, nowMs: () => laterMs }
const golden: GoldenAnswer = { prompt: 'a', maxTokens: 4, expected: ' b' }

function add(stateDir: string, file: string, name: string | null, more: Partial<NewModel & AddDeps> = {}) {
  const plain = { golden: async () => null, replacesGolden: false }
  return addModel({ stateDir, file, name, ...plain, ...more }, { ...deps, ...more })
}

/** Everything below, but for the lock, which stays. */
const left = (stateDir: string) => readdirSync(join(stateDir, 'models')).filter(name => name !== '.lock')

async function faultOf(work: () => unknown): Promise<Fault> {
  try {
    await work()
  } catch (error) {
    if (error instanceof Fault) return error
    throw error
  }
  throw new Error('no fault')
}

describe('one disk', () => {
  // Goal: the operator on another host, and any verifier, gets the same root hash.
  test('the same file gives the same bytes, whatever its name, times and directory', async () => {
    const bytes = ggufBytes(1_000_001)
    const [text, two] = [join(dir, 'one.gguf'), join(dir, 'two.gguf')]
    writeFileSync(text, bytes)
    writeFileSync(two, bytes, { mode: 0o600 })
    utimesSync(two, 1, 1)
    const first = await add(newState(), text, 'a')
    const second = await add(newState(), two, 'b')
    expect(readFileSync(second.disk).equals(readFileSync(first.disk))).toBe(true)
    expect(second.model).toEqual({ ...first.model, name: 'b' })
    // Fixed for ever: a change of this text changes what operators have published.
    expect(first.model).toEqual({
      name: 'a',
      rootHash: '8bd260a23540eccfcbd490ff5a4b8518bcf0a09357f5a9743de53918bb581296',
      hashOffset: (2 + 245) * 4096,
      fileSha256: new Bun.CryptoHasher('sha256').update(bytes).digest('hex'),
      fileBytes: 1_000_001,
      golden: null,
    })
  })

  for (const size of [24 + 2 * 33 + 3 * 14, 4096, 4097, 128 * 4096 - 1, 4 * 1024 * 1024, 4 * 1024 * 1024 + 1]) {
    test(`goal: tree and root belong to a file of ${size} bytes, and its bytes stand behind two blocks`, async () => {
      const file = writeGguf(join(dir, `sized-${size}.gguf`), size)
      const { disk, model } = await add(newState(), file, 'sized')
      const bytes = readFileSync(disk)
      expect(bytes.length).toBe(modelDiskBytes(model.fileBytes))
      expect(bytes.subarray(8192, 8192 + model.fileBytes).equals(readFileSync(file))).toBe(true)
      const data = {
        read: async (offset: number, length: number) => new Uint8Array(bytes.subarray(offset, offset + length)),
      }
      const expected = { rootHash: fromHex(model.rootHash) ?? new Uint8Array(0), uuid: 'any' } as const
      const checks = await checkVerity({ data, hashOffset: model.hashOffset }, expected)
      expect(checks.map(check => check.outcome)).toEqual(['pass', 'pass', 'pass'])
    })
  }

  // Goal: root alone reads and writes what is there, and what workload.json needs is what is written.
  test('its files are root’s alone, and are what `loadModel` gives', async () => {
    const stateDir = newState()
    const added = await add(stateDir, writeGguf(join(dir, 'own.gguf'), 5_000), 'own', { golden: async () => golden })
    expect(loadModel(stateDir, 'own')).toEqual({ disk: added.disk, model: added.model })
    expect(added.model.golden).toEqual(golden)
    const modeOf = (path: string) => statSync(join(stateDir, 'models', path)).mode & 0o777
    expect(['.', 'own', 'own/model.erofs', 'own/model.json'].map(modeOf)).toEqual([0o700, 0o700, 0o400, 0o600])
    expect(left(stateDir)).toEqual(['own'])
  })
})

describe('adding again', () => {
  // Goal: a script may add at every start of a host; a file of many GB is not even read again.
  test('the same file is not read, and nothing changes', async () => {
    const stateDir = newState()
    const file = writeGguf(join(dir, 'again.gguf'), 50_000)
    const first = await add(stateDir, file, 'again', { golden: async () => golden })
    const before = statSync(first.disk, { bigint: true })
    let read = 0
    const count = () => {
      read += 1
    }
    const asked = async () => {
      throw new Error('asked for a golden answer')
    }
    const second = await add(stateDir, file, 'again', { golden: asked, onProgress: count })
    expect({ made: second.made, model: second.model, read }).toEqual({ made: false, model: first.model, read: 0 })
    expect(statSync(first.disk, { bigint: true }).ino).toBe(before.ino)
  })

  // Goal: what a recent write may have changed without a trace is read, not believed.
  test('a file that had only just changed is read again', async () => {
    const stateDir = newState()
    const file = writeGguf(join(dir, 'recent.gguf'), 50_000)
    await add(stateDir, file, 'recent', { nowMs: () => statSync(file).ctimeMs })
    let read = 0
    const count = () => {
      read += 1
    }
    // Nobody removes it for another's, either.
    const other = writeGguf(join(dir, 'settled.gguf'), 50_000, 3)
    await add(stateDir, other, 'settled')
    const mayBe = (from: string) => ['recent', 'settled'].filter(name => mayBeModelOf(stateDir, from, name))
    expect([mayBe(file), mayBe(other), mayBe('/none')]).toEqual([['recent'], ['settled'], []])
    const second = await add(stateDir, file, 'recent', { onProgress: count })
    expect([second.made, read > 0]).toEqual([false, true])
  })

  test('goal: a copy of the file is known by its bytes', async () => {
    const stateDir = newState()
    await add(stateDir, writeGguf(join(dir, 'copy-1.gguf'), 50_000), 'copy')
    expect((await add(stateDir, writeGguf(join(dir, 'copy-2.gguf'), 50_000), 'copy')).made).toBe(false)
    expect(findModelOf(stateDir, join(dir, 'copy-2.gguf'))?.model.name).toBe('copy')
  })

  // Goal: nobody serves another model than the one that has the name.
  test('another file under the same name is a conflict that names both, and changes nothing', async () => {
    const stateDir = newState()
    const first = await add(stateDir, writeGguf(join(dir, 'first.gguf'), 5_000), 'taken')
    const other = writeGguf(join(dir, 'other.gguf'), 5_000, 3)
    const fault = await faultOf(() => add(stateDir, other, 'taken'))
    const sha256 = new Bun.CryptoHasher('sha256').update(readFileSync(other)).digest('hex')
    expect([fault.code, fault.param]).toEqual(['conflict', 'name'])
    expect(fault.message).toContain(first.model.fileSha256)
    expect(fault.message).toContain(sha256)
    expect(loadModel(stateDir, 'taken').model).toEqual(first.model)
    expect(left(stateDir)).toEqual(['taken'])
  })

  test('goal: a golden answer that is given replaces the one that is there, and a disk is not made again', async () => {
    const stateDir = newState()
    const file = writeGguf(join(dir, 'golden.gguf'), 5_000)
    const first = await add(stateDir, file, 'golden', { golden: async () => golden })
    const second = await add(stateDir, file, 'golden', { golden: async () => null, replacesGolden: true })
    expect([second.made, second.model]).toEqual([false, { ...first.model, golden: null }])
    expect(loadModel(stateDir, 'golden').model.golden).toBeNull()
  })

  describe('without a name', () => {
    // Goal: a daemon that was given a file finds the disk that its operator made, golden answer and all.
    test('a disk of the same bytes is taken, by identity or by digest', async () => {
      const stateDir = newState()
      const file = writeGguf(join(dir, 'named.gguf'), 5_000)
      await add(stateDir, file, 'named', { golden: async () => golden })
      expect((await add(stateDir, file, null)).model.name).toBe('named')
      expect((await add(stateDir, writeGguf(join(dir, 'copy.gguf'), 5_000), null)).model).toMatchObject({
        name: 'named',
        golden,
      })
      expect(left(stateDir)).toEqual(['named'])
    })

    // Goal: a daemon makes a spoilt disk of its own again, for nobody else would.
    test('a disk that is not whole is made anew', async () => {
      const stateDir = newState()
      const file = writeGguf(join(dir, 'spoilt-auto.gguf'), 5_000)
      const first = await add(stateDir, file, null)
      rmSync(first.disk)
      expect(await add(stateDir, file, null)).toEqual(first)
      expect(left(stateDir)).toEqual([first.model.name])
    })

    test('goal: the name is the same on every host, and another file gets another', async () => {
      const stateDir = newState()
      const first = await add(stateDir, writeGguf(join(dir, 'x.gguf'), 5_000), null)
      const two = await add(stateDir, writeGguf(join(dir, 'x.gguf'), 5_000, 3), null)
      expect(first.model.name).toBe(`file-${first.model.fileSha256.slice(0, 32)}`)
      expect(two.model.name).toBe(`file-${two.model.fileSha256.slice(0, 32)}`)
      expect(left(stateDir).toSorted()).toEqual([first.model.name, two.model.name].toSorted())
    })
  })
})

describe('crashes', () => {
  // Leftovers of a crash while adding or removing: the next change clears them, and they never count as a model.
  const leftovers: readonly [string, (models: string, whole: string) => void][] = [
    ['an empty directory', models => mkdirSync(join(models, '.adding'))],
    [
      'half a disk',
      models => {
        mkdirSync(join(models, '.adding'))
        writeFileSync(join(models, '.adding/model.erofs'), 'half', { mode: 0o400 })
      },
    ],
    [
      'a disk without its facts',
      (models, whole) => {
        renameSync(whole, join(models, '.adding'))
        rmSync(join(models, '.adding/model.json'))
      },
    ],
    ['everything but the name', (models, whole) => renameSync(whole, join(models, '.adding'))],
    ['half removed', (models, whole) => renameSync(whole, join(models, '.removing'))],
    ['a temporary file', models => writeFileSync(join(models, '.lock.tmp'), 'x')],
  ]
  for (const [what, leave] of leftovers) {
    test(`goal: ${what} is cleared`, async () => {
      const stateDir = newState()
      const models = join(stateDir, 'models')
      const file = writeGguf(join(dir, 'crash.gguf'), 9_000)
      await add(stateDir, file, 'crashed')
      leave(models, join(models, 'crashed'))
      const isThere = existsSync(join(models, 'crashed'))
      expect(listModels(stateDir).map(model => model.name)).toEqual(isThere ? ['crashed'] : [])
      const again = await add(stateDir, file, 'crashed')
      expect(again.made).toBe(!isThere)
      expect(loadModel(stateDir, 'crashed').model).toEqual(again.model)
      expect(left(stateDir).filter(name => name.startsWith('.') && !name.endsWith('.tmp'))).toEqual([])
    })
  }

  test('goal: an add that is stopped leaves nothing', async () => {
    const stateDir = newState()
    const stopping = new AbortController()
    const file = writeGguf(join(dir, 'long.gguf'), 12_000_000)
    const added = add(stateDir, file, 'long', { signal: stopping.signal, onProgress: () => stopping.abort() })
    await expect(added).rejects.toThrow('abort')
    expect(left(stateDir)).toEqual([])
  })

  test('goal: a golden answer that cannot be had leaves nothing', async () => {
    const stateDir = newState()
    const refuse = async () => {
      throw new Fault('host.command_failed', 'no golden answer')
    }
    const fault = await faultOf(() => add(stateDir, writeGguf(join(dir, 'g.gguf'), 5_000), 'g', { golden: refuse }))
    expect([fault.code, fault.message, left(stateDir)]).toEqual(['host.command_failed', 'no golden answer', []])
  })

  test('goal: two that add at the same time do not meet', async () => {
    const stateDir = newState()
    mkdirSync(join(stateDir, 'models'), { recursive: true })
    using _held = lockFile(join(stateDir, 'models/.lock'))
    const fault = await faultOf(() => add(stateDir, writeGguf(join(dir, 'l.gguf'), 5_000), 'l'))
    expect([fault.code, fault.message]).toEqual(['conflict', expect.stringContaining(`pid ${process.pid}`)])
  })
})

describe('files that are refused', () => {
  const refusals: readonly [string, (path: string) => void, string][] = [
    ['none', () => {}, 'no such file'],
    ['a directory', path => mkdirSync(path), 'not a regular file'],
    ['a FIFO without a writer', path => void Bun.spawnSync(['mkfifo', path]), 'not a regular file'],
    ['empty', path => writeFileSync(path, ''), 'too few'],
    ['text', path => writeFileSync(path, 'this is no model, but it is long enough for a header\n'), '"GGUF"'],
    ['an end too early', path => writeFileSync(path, ggufHeader({ tensors: 1_000n })), 'cut short'],
    ['larger than any model', path => void writeSparseGguf(path, modelBytesMax + 1), 'at most'],
    ['a dangling link', path => symlinkSync('/none', path), 'no such file'],
  ]
  for (const [what, make, problem] of refusals) {
    test(`goal: refused: ${what}`, async () => {
      // The message names the file and what is wrong; nothing is left, and nothing is waited for.
      const stateDir = newState()
      const path = join(mkdtempSync(join(dir, 'refused-')), 'model.gguf')
      make(path)
      const fault = await faultOf(() => add(stateDir, path, 'refused'))
      expect([fault.code, fault.param]).toEqual(['invalid_request', 'file'])
      expect(fault.message).toStartWith(`${path}: `)
      expect(fault.message).toContain(problem)
      expect(existsSync(join(stateDir, 'models'))).toBe(false)
    })
  }

  test('goal: one part of several is refused with what to do, for no worker could load it', async () => {
    const file = writeGguf(join(dir, 'big-00002-of-00004.gguf'), 5_000)
    expect((await faultOf(() => add(newState(), file, 'big'))).message).toContain('part 2 of 4 of a model; join')
  })

  // Goal: a file that is huge but holds nothing is refused before it is read.
  test('a sparse file beyond the free disk is refused at once', async () => {
    const stateDir = newState()
    const file = writeSparseGguf(join(dir, 'huge.gguf'), modelBytesMax)
    const asked = async () => {
      throw new Error('the model would be run')
    }
    const fault = await faultOf(() => add(stateDir, file, 'huge', { golden: asked }))
    expect([fault.code, fault.message]).toEqual(['host.disk_full', expect.stringContaining('are free')])
    expect(left(stateDir)).toEqual([])
  })

  test('goal: a file that changes or ends while it is read gives no disk', async () => {
    for (const change of [(path: string) => truncateSync(path, 5_000_000), (path: string) => utimesSync(path, 1, 1)]) {
      const stateDir = newState()
      const file = writeGguf(join(dir, 'changes.gguf'), 12_000_000)
      let changed = false
      const onProgress = () => {
        if (!changed) change(file)
        changed = true
      }
      const fault = await faultOf(() => add(stateDir, file, 'changes', { onProgress }))
      expect(fault.message).toMatch(/changed while it was read|became shorter/)
      expect(left(stateDir)).toEqual([])
    }
  })
})

describe('names', () => {
  const escapes = [
    '',
    '.',
    '..',
    '../x',
    'a/b',
    '/etc',
    '.adding',
    '-rf',
    'A',
    'a b',
    'a\n',
    'ä',
    'a'.repeat(64),
    'a\0b',
  ]
  for (const name of escapes) {
    test(`goal: ${JSON.stringify(name)} names no model and leads nowhere else`, async () => {
      const stateDir = newState()
      const file = writeGguf(join(dir, 'named-badly.gguf'), 5_000)
      expect((await faultOf(() => add(stateDir, file, name))).param).toBe('name')
      expect((await faultOf(() => loadModel(stateDir, name))).code).toBe('config.file')
      expect((await faultOf(() => removeModel(stateDir, name))).code).toBe('not_found')
      expect(existsSync(stateDir)).toBe(false)
    })
  }

  test('goal: every file name gives a name that is allowed', () => {
    const names = [
      'Llama-3.1 8B (Q4_K_M).gguf',
      '..gguf',
      '.hidden.gguf',
      '---',
      'ä.gguf',
      'A'.repeat(300),
      'model.GGUF',
    ]
    expect(names.map(name => modelNameOf(`/x/${name}`))).toEqual([
      ...['llama-3.1-8b-q4_k_m-', 'model', 'hidden', 'model', 'model', 'a'.repeat(63), 'model'],
    ])
  })
})

describe('what somebody has spoilt', () => {
  const spoilt: readonly [string, (directory: string) => void, string][] = [
    ['a disk cut short', at => chmodSync(`${at}/model.erofs`, 0o600), ''],
    ['no disk', at => rmSync(`${at}/model.erofs`), 'no bytes'],
    ['no facts', at => rmSync(`${at}/model.json`), 'make its disk: strongroom model add FILE.gguf --name spoilt'],
    ['facts that are no JSON', at => writeFileSync(`${at}/model.json`, '{'), 'model.json'],
    ['facts with a field too many', at => edit(at, { extra: 1 }), 'model.json'],
    ['facts of another name', at => edit(at, { name: 'other' }), 'not that of this disk'],
    ['a hash offset that does not follow', at => edit(at, { hashOffset: 4096 }), 'not that of this disk'],
    ['an absurd size', at => edit(at, { fileBytes: Number.MAX_SAFE_INTEGER }), 'not that of this disk'],
  ]
  function edit(directory: string, fields: Record<string, unknown>): void {
    const path = `${directory}/model.json`
    writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), ...fields }))
  }
  for (const [what, spoil, problem] of spoilt) {
    test(what, async () => {
      // Goal: the daemon does not start a worker on it, the list says so, and it can be removed.
      const stateDir = newState()
      await add(stateDir, writeGguf(join(dir, 'spoilt.gguf'), 9_000), 'spoilt')
      const directory = join(stateDir, 'models/spoilt')
      spoil(directory)
      if (problem === '') truncateSync(`${directory}/model.erofs`, 100)
      const fault = await faultOf(() => loadModel(stateDir, 'spoilt'))
      expect([fault.code, fault.message]).toEqual(['config.file', expect.stringContaining(problem)])
      expect(listModels(stateDir)).toEqual([{ kind: 'broken', name: 'spoilt', problem: fault.message }])
      removeModel(stateDir, 'spoilt')
      expect(left(stateDir)).toEqual([])
    })
  }

  test('goal: without knowledge of the source the file is read, and the disk is still the same', async () => {
    const stateDir = newState()
    const file = writeGguf(join(dir, 'source.gguf'), 9_000)
    const first = await add(stateDir, file, 'source')
    for (const text of ['{', '{"path":1}', '']) {
      writeFileSync(join(stateDir, 'models/source/source.json'), text)
      expect(await add(stateDir, file, 'source')).toEqual({ ...first, made: false })
    }
  })
})
