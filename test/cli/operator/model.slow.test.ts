// Goal: an operator makes, lists and removes model disks without a daemon; a model in use stays.

import { afterAll, describe, expect, test } from 'bun:test'
import { closeSync, mkdtempSync, openSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loadModel } from '../../../src/host/models/models.ts'
import { writeGguf } from '../../rigs/gguf-file.ts'
import { programArgv } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-cli-model-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))
const stateDir = join(dir, 'state')
const config = join(dir, 'strongroom.toml')
writeFileSync(config, '[inference.worker]\nimage_dir = "/none"\n')

type Result = { readonly code: number; readonly stdout: string; readonly stderr: string }

async function run(...argv: string[]): Promise<Result> {
  const child = Bun.spawn([...programArgv, 'model', ...argv], {
    env: { PATH: process.env.PATH ?? '', STRONGROOM_STATE_DIR: stateDir, STRONGROOM_CONFIG: config },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { code, stdout, stderr }
}

const file = writeGguf(join(dir, 'Some Model.gguf'), 200_000)
const other = writeGguf(join(dir, 'other.gguf'), 200_000, 3)
const name = 'some-model'

describe('add', () => {
  test('goal: the name is that of the file, and the document says all that pins the model', async () => {
    const { code, stdout, stderr } = await run('add', file, '--golden', 'none', '--json')
    const { model, disk } = loadModel(stateDir, name)
    expect([code, stderr, JSON.parse(stdout)]).toEqual([
      ...[0, ''],
      {
        name,
        disk,
        disk_bytes: 217_088,
        made: true,
        golden: null,
        root_hash: model.rootHash,
        hash_offset: model.hashOffset,
        file_sha256: model.fileSha256,
        file_bytes: 200_000,
      },
    ])
  })

  test('goal: people see each step, what to write in the configuration, and that a second time does nothing', async () => {
    const first = await run('add', other, '--golden', 'none')
    expect(first.stderr).toBe(
      'reading: 195.3 KiB of 195.3 KiB\nTo serve it in a VM: inference.worker.model_disk = "other"\n',
    )
    expect(first.stdout).toMatch(/^name: +other\nroot hash: +[0-9a-f]{64}\n/)
    const second = await run('add', other, '--golden', 'none')
    expect(second.stderr).toEndWith('It was there.\nTo serve it in a VM: inference.worker.model_disk = "other"\n')
    expect(second.stdout).toBe(first.stdout)
  })

  test('goal: a golden answer that is given is kept, and can be given later', async () => {
    const golden = ['--golden-prompt', '2 + 2 =', '--golden-answer', ' 4']
    expect((await run('add', file, '--name', name, ...golden)).code).toBe(0)
    expect(loadModel(stateDir, name).model.golden).toEqual({ prompt: '2 + 2 =', maxTokens: 16, expected: ' 4' })
  })

  test('goal: another file under a name that is taken is a conflict with its remedy', async () => {
    const { code, stderr } = await run('add', other, '--name', name, '--golden', 'none')
    expect(code).toBe(5)
    expect(stderr).toContain(`model ${name} is there, of a file with SHA-256`)
    expect(stderr).toContain('remedy: give another --name, or remove the one that is there')
  })

  // Goal: without an image or a user the model cannot run; the operator reads the other ways, nothing is half done.
  test('a golden answer that cannot be recorded here is said', async () => {
    const { code, stderr } = await run('add', other, '--name', 'unrun')
    expect(code).toBe(1)
    expect(stderr).toContain('no golden answer could be recorded: read the manifest of the inference image')
    expect(stderr).toContain('give --golden-prompt TEXT with --golden-answer TEXT, or --golden none')
    expect(readdirSync(join(stateDir, 'models')).toSorted()).toEqual(['.lock', 'other', name].toSorted())
  })

  const refused: readonly [string, readonly string[], string][] = [
    ['no model', ['add', config, '--golden', 'none'], 'not a GGUF file'],
    ['no file', ['add', '/none.gguf', '--golden', 'none'], 'there is no such file'],
    [
      'a name that leads elsewhere',
      ['add', file, '--name', '../x', '--golden', 'none'],
      'model name "../x": allowed are',
    ],
    ['a prompt alone', ['add', file, '--golden-prompt', 'x'], '--golden-answer'],
    ['an answer alone', ['add', file, '--golden-answer', 'x'], '--golden-prompt'],
    ['an empty answer', ['add', file, '--golden-prompt', 'x', '--golden-answer', ''], '1 to 1024 characters'],
    ['an endless answer', ['add', file, '--golden-prompt', 'x', '--golden-answer', 'x'.repeat(1025)], '1 to 1024'],
    ['two kinds of golden', ['add', file, '--golden', 'none', '--golden-prompt', 'x'], 'cannot be used with'],
    ['two names', ['add', file, '--name', 'a', '--name-by-digest'], 'cannot be used with'],
  ]
  for (const [what, argv, problem] of refused) {
    test(`goal: ${what} is bad input, and the message says why`, async () => {
      const { code, stderr } = await run(...argv)
      expect([code, stderr]).toEqual([2, expect.stringContaining(problem)])
    })
  }
})

describe('list', () => {
  test('goal: what pins each model, whether it is checked, and who uses it', async () => {
    const fd = openSync(loadModel(stateDir, 'other').disk, 'r')
    writeFileSync(config, `[inference.worker]\nmodel_file = "${file}"\nmodel_disk = "${name}"\n`)
    try {
      const [item, two] = [loadModel(stateDir, name).model, loadModel(stateDir, 'other').model]
      const { stdout } = await run('list')
      expect(stdout.split('\n').map(line => line.replaceAll(/ {2,}/g, '|'))).toEqual([
        'NAME|SIZE|ROOT HASH|GOLDEN|IN USE BY',
        `other|195.3 KiB|${two.rootHash}|no|process ${process.pid}`,
        `${name}|195.3 KiB|${item.rootHash}|yes|configuration`,
        '',
      ])
      const { models } = JSON.parse((await run('list', '--json')).stdout)
      expect(models.map((model: Record<string, unknown>) => [model.name, model.configured, model.open_by])).toEqual([
        ['other', false, [process.pid]],
        [name, true, []],
      ])
    } finally {
      closeSync(fd)
    }
  })

  test('goal: a spoilt model is shown as such, beside the others', async () => {
    rmSync(loadModel(stateDir, 'other').disk)
    const { code, stdout } = await run('list')
    expect([code, stdout]).toEqual([0, expect.stringContaining('broken: model other:')])
    expect(stdout).toContain(loadModel(stateDir, name).model.rootHash)
    rmSync(join(stateDir, 'models/other'), { recursive: true })
    await run('add', other, '--golden', 'none')
  })
})

describe('remove', () => {
  test('goal: the model of the configuration stays, by its name or by its file', async () => {
    for (const fields of [`model_file = "${file}"\nmodel_disk = "${name}"`, `model_file = "${file}"`]) {
      writeFileSync(config, `[inference.worker]\n${fields}\n`)
      const { code, stderr } = await run('remove', name)
      expect([code, stderr]).toEqual([5, expect.stringContaining(`model ${name} is what the configuration serves`)])
    }
    expect(loadModel(stateDir, name).model.name).toBe(name)
  })

  test('goal: a model that a VM has open stays', async () => {
    const fd = openSync(loadModel(stateDir, 'other').disk, 'r')
    const { code, stderr } = await run('remove', 'other')
    closeSync(fd)
    expect([code, stderr]).toEqual([5, expect.stringContaining(`is in use by process ${process.pid}`)])
    expect(loadModel(stateDir, 'other').model.name).toBe('other')
  })

  test('goal: what nobody uses goes, once', async () => {
    expect(await run('remove', 'other')).toEqual({ code: 0, stdout: 'removed other\n', stderr: '' })
    const again = await run('remove', 'other')
    expect([again.code, again.stderr]).toEqual([4, expect.stringContaining('there is no model "other"')])
    expect(readdirSync(join(stateDir, 'models')).toSorted()).toEqual(['.lock', name])
  })

  test('goal: a path is no name', async () => {
    const outside = join(dir, 'outside')
    writeFileSync(outside, 'x')
    for (const path of [outside, '../outside', '..', '.', `${name}/../../../outside`]) {
      expect([path, (await run('remove', path)).code]).toEqual([path, 4])
    }
    expect(readdirSync(dir)).toContain('outside')
  })
})
