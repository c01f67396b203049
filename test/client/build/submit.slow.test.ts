// Goal: `build submit` takes a directory to a verified result, or names the failure, also by its exit code.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { line } from '../../../scripts/rigs/build/engine.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { packSource } from '../../../src/client/source/pack.ts'
import { type BuildSubmitter, openBuildSubmitter, type Submitting, scriptOf } from '../../rigs/build/submitter.ts'

let site: BuildSubmitter
let self: Submitting

beforeAll(async () => {
  site = await openBuildSubmitter()
})
afterAll(() => site[Symbol.dispose]())
beforeEach(async () => {
  self = await site.start()
})
afterEach(async () => await self[Symbol.asyncDispose]())

const submit: Submitting['submit'] = (more, options) => self.submit(more, options)
const script = () => scriptOf(site.archive)

describe('a good build', () => {
  test('goal: plain lines while it goes, then the verdict, the archive and the files', async () => {
    const { code, stdout, stderr } = await submit()
    expect([code, stderr]).toEqual([0, expect.stringContaining('left out: target, what .gitignore names')])
    expect(stdout).toStartWith('VERDICT: PASS SIMULATED')
    const [id = ''] = self.rig
      .store()
      .directory.db.all<{ id: string }>('SELECT id FROM builds')
      .map(row => row.id)
    expect(stdout).toEndWith(`result: ${join(self.output, 'demo')}\narchive: ${join(self.output, `${id}.tar.gz`)}\n`)
    for (const text of [
      'init: unpacked',
      'build: compiling',
      'host: Stages: queued ',
      'complete: ok',
      `job ${id}, nonce`,
    ])
      expect(stderr).toContain(`${text}`)
    expect(stderr).not.toContain('\u001b')
    expect(readFileSync(join(self.output, `${id}.tar.gz`)).equals(site.archive)).toBe(true)
    for (const [path, bytes] of site.sample.files) {
      expect([path, readFileSync(join(self.output, 'demo', path)).equals(bytes)]).toEqual([path, true])
    }
    expect(readdirSync(self.output).sort()).toEqual([`${id}.tar.gz`, 'demo'].sort())
  })

  test('goal: one document with --json, and nothing on stderr', async () => {
    const { code, stdout, stderr } = await submit(['--json'])
    expect([code, stderr]).toEqual([0, ''])
    const { stages, ...document } = JSON.parse(stdout)
    const names: string[] = stages.map(({ stage }: { stage: string }) => stage)
    expect(names).toContain('build')
    expect(names.at(-1)).toBe('result')
    for (const { seconds } of stages) expect(seconds).toBeGreaterThanOrEqual(0)
    expect(document).toMatchObject({
      state: 'ok',
      nonce: toHex(site.sample.nonce),
      directory: join(self.output, 'demo'),
      verification: { ok: true, simulated: true },
    })
  })

  test('goal: a spinner with phases on a terminal', async () => {
    const held = Promise.withResolvers<void>()
    self.rig.world.script = [line('init', 'begun'), { kind: 'wait', until: held.promise }, ...script()]
    let shown = ''
    const done = submit([], {
      isTerminal: true,
      onStderr: text => {
        shown = text
      },
    })
    await until('it turns', 60_000, () => shown.includes('⠙ init'))
    held.resolve()
    const { code, stdout, stderr } = await done
    expect([code, stdout]).toEqual([0, expect.stringContaining('PASS')])
    expect(stderr).toContain('⠙ init')
    expect(stderr).toMatch(/✓\S* init +[0-9.]+ s\n/)
    expect(stderr).toMatch(/✓\S* download/)
  })

  test('goal: a stream that breaks and a download that stops are taken up where they were', async () => {
    let streams = 0
    let downloads = 0
    const seen: (string | null)[] = []
    const held = Promise.withResolvers<void>()
    self.rig.world.script = [line('init', 'unpacked'), { kind: 'wait', until: held.promise }, ...script().slice(1)]
    self.intercept = async request => {
      const { pathname } = new URL(request.url)
      if (pathname.endsWith('/events')) {
        streams += 1
        seen.push(request.headers.get('last-event-id'))
        if (streams > 2) {
          held.resolve()
          return null
        }
        const whole = await self.rig.builds().fetch(request, { address: () => '', mayPause: () => {} })
        const reader = whole.body?.getReader()
        const wanted = streams === 1 ? 'data: ' : 'unpacked'
        let text = ''
        // Cuts within the end of this event, before the next one, which may come in the same piece.
        const end = () => (text.includes(wanted) ? text.indexOf('\n\n', text.indexOf(wanted)) : -1)
        while (end() === -1) {
          const { value, done } = present(await reader?.read(), 'a body')
          if (done) throw new Error(`the stream ended without ${wanted}: ${text}`)
          text += Buffer.from(value).toString()
        }
        await reader?.cancel()
        // In the middle of an event.
        return new Response(`${text.slice(0, end() + 2)}event: init\nid: 99\ndata: {"type"`, { headers: whole.headers })
      }
      if (pathname.endsWith('/result')) {
        downloads += 1
        if (downloads > 1) return null
        const whole = await self.rig.builds().fetch(request, { address: () => '', mayPause: () => {} })
        const bytes = new Uint8Array(await whole.arrayBuffer()).subarray(0, 1000)
        const cut = new ReadableStream({
          start: controller => controller.enqueue(bytes),
          pull: controller => controller.error(new Error('cut')),
        })
        return new Response(cut, { headers: { etag: whole.headers.get('etag') ?? '' } })
      }
      return null
    }
    const { code, stderr } = await submit()
    expect([code, streams >= 3, downloads]).toEqual([0, true, 2])
    expect(stderr.match(/^init: unpacked$/gm)?.length).toBe(1)
    expect(seen[0]).toBeNull()
    expect(Number(seen[1])).toBeGreaterThan(0)
  })
})

describe('what is sent', () => {
  const bodies: string[] = []
  beforeEach(() => {
    bodies.length = 0
    self.intercept = async request => {
      if (request.method === 'POST') bodies.push(await request.clone().text())
      return null
    }
  })

  test('goal: an archive file as it is, and what the build leaves out of it is named', async () => {
    const packed = mkdtempSync(join(site.dir, 'packed-'))
    for (const name of ['Cargo.toml', '._Cargo.toml', '.DS_Store']) writeFileSync(join(packed, name), '[package]')
    // The name counts, as that of the directory does, for a project without one.
    const archive = join(mkdtempSync(join(site.dir, 'archive-')), 'hello.tar.gz')
    expect(Bun.spawnSync(['tar', '--create', '--xz', '--file', archive, '--directory', packed, '.']).exitCode).toBe(0)
    const { code, stdout, stderr } = await submit([], { from: archive })
    expect([code, stdout]).toEqual([0, expect.stringContaining('PASS')])
    expect(stderr).toMatch(/left out: files that macOS adds: "[^"]*", "[^"]*"\n/)
    const [body = '{}'] = bodies
    expect(JSON.parse(body)).toMatchObject({
      source_name: 'hello.tar.gz',
      source_data: readFileSync(archive).toString('base64'),
    })
  })

  test('goal: nothing, if a manifest needs what git ignores; the message names the option that sends it', async () => {
    const source = mkdtempSync(join(site.dir, 'ignored-'))
    for (const [name, text] of [
      ['Cargo.toml', '[package]'],
      ['Cargo.lock', 'version = 4'],
      ['.gitignore', 'Cargo.lock'],
    ] as const)
      writeFileSync(join(source, name), text)
    const { code, stderr } = await submit([], { from: source })
    expect([code, bodies]).toEqual([2, []])
    expect(stderr).toContain('the build needs what would not be sent: Cargo.lock')
    expect(stderr).toContain('send it: --include Cargo.lock')
    await submit(['--include', 'Cargo.lock', '--any-source'], { from: source })
    expect(bodies).toHaveLength(1)
    const tar = Bun.gunzipSync(Uint8Array.from(Buffer.from(JSON.parse(bodies[0] ?? '{}').source_data, 'base64')))
    expect(Buffer.from(tar).toString('latin1')).toContain('version = 4')
  })

  test('goal: Git LFS pointers are not sent unless accepted; each waiver is in the request by its own option', async () => {
    const source = mkdtempSync(join(site.dir, 'lfs-'))
    const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${'aa'.repeat(32)}\nsize 123456\n`
    writeFileSync(join(source, 'Cargo.toml'), '[package]')
    writeFileSync(join(source, 'data.bin'), pointer)
    const waivers = () =>
      bodies.map(body => JSON.parse(body)).map(sent => [sent.allow_lfs_pointers, sent.any_toolchain])
    for (const more of [[], ['--any-toolchain']]) {
      const { code, stderr } = await submit(more, { from: source })
      expect([code, bodies]).toEqual([2, []])
      expect(stderr).toContain('has Git LFS pointers without their content, 1: data.bin')
      expect(stderr).toContain('run `git lfs pull`, or accept them by --allow-lfs-pointers')
    }
    await submit(['--allow-lfs-pointers', '--any-source'], { from: source })
    expect(waivers()).toEqual([[true, null]])
    await submit(['--any-toolchain', '--nonce', 'abcd'])
    expect(waivers()).toEqual([
      [true, null],
      [null, true],
    ])
  })

  test('goal: --include is refused where nothing is left out', async () => {
    const archive = join(mkdtempSync(join(site.dir, 'archive-')), 'hello.tar.gz')
    writeFileSync(archive, 'x')
    const repository = ['--commit', 'a'.repeat(40)]
    for (const [from, more] of [
      [archive, []],
      ['https://git.example/a', repository],
    ] as const) {
      const { code, stderr } = await submit(['--include', 'x', ...more], { from })
      expect([code, stderr, bodies]).toEqual([2, expect.stringContaining('--include is for a directory'), []])
    }
    const { code, stderr } = await submit([], { from: archive })
    expect([code, stderr, bodies]).toEqual([2, expect.stringContaining('neither gzip, xz, zstd, tar nor zip'), []])
  })
})

describe('exit code 1', () => {
  test('goal: a build that fails, with its error type and what it said, harmless on a terminal', async () => {
    self.rig.world.script = [{ kind: 'failed', errorType: 'build_failed', error: 'error[E0425]\n\u001b[2Jgone' }]
    const { code, stdout } = await submit()
    expect([code, stdout]).toEqual([1, 'build failed: build_failed\nerror[E0425]\n\\x1b[2Jgone\n'])
    const json = await submit(['--json', '--nonce', 'ab'])
    expect([json.code, JSON.parse(json.stdout)]).toMatchObject([1, { state: 'failed', error_type: 'build_failed' }])
  })

  test('goal: a result that is not the one of this nonce', async () => {
    const { code, stdout } = await submit(['--nonce', '0102'])
    expect(code).toBe(1)
    expect(stdout).toStartWith('VERDICT: FAIL')
  })

  test('goal: Ctrl-C, which cancels the build on the server', async () => {
    const held = Promise.withResolvers<void>()
    self.rig.world.script = [line('init', 'begun'), { kind: 'wait', until: held.promise }, ...script()]
    let interrupt = () => {}
    const done = submit([], {
      onSignal: listener => {
        interrupt = listener
      },
    })
    const states = () =>
      self.rig
        .store()
        .directory.db.all<{ state: string }>('SELECT state FROM builds')
        .map(row => row.state)
    await until('it runs', 60_000, () => states()[0] === 'running')
    interrupt()
    const { code, stderr } = await done
    expect([code, states()]).toEqual([1, ['cancelled']])
    expect(stderr).toMatch(/build \S+ was cancelled\n$/)
  })
})

describe('other exit codes', () => {
  test('goal: 2 for what this client or the service refuses, 3 for a service that is not there, 5 for a nonce that was used', async () => {
    expect((await submit(['--toolchain', 'bazel'])).code).toBe(2)
    expect((await submit(['--ref', 'v1'])).code).toBe(2)
    expect((await submit([], { from: join(site.dir, 'nothing') })).code).toBe(2)
    expect((await submit(['--project-dir', '../x'])).stderr).toContain('project_dir must be a relative path')
    expect((await submit([], { from: 'https://other.example/a' })).stderr).toContain('git ls-remote')
    expect((await submit(['--any-source'], { from: 'https://other.example/a' })).code).toBe(2)
    expect((await submit(['--api', 'https://127.0.0.1:1'])).code).toBe(3)
    expect((await submit([], { key: 'ca_aaaaaaaa_aaaaaaaaaaaaaaaaaa' })).code).toBe(1)
    expect((await submit()).code).toBe(0)
    const again = await submit()
    expect([again.code, again.stderr]).toEqual([5, expect.stringContaining('This nonce was used')])
  })

  test('goal: a certificate of nobody we trust: the key is not sent', async () => {
    const asked: string[] = []
    self.intercept = async request => {
      asked.push(request.headers.get('authorization') ?? '')
      return null
    }
    writeFileSync(join(site.dir, 'other.pem'), readFileSync(site.rootFile))
    const { code } = await submit(['--ca', join(site.dir, 'other.pem')])
    expect([code, asked]).toEqual([3, []])
  })
})

test('goal: a result that is no archive is refused, and nothing of it is kept', async () => {
  for (const bytes of [
    Buffer.from('hello'),
    site.archive.subarray(0, site.archive.length - 100),
    Bun.gzipSync(new Uint8Array(1024)),
  ]) {
    self.rig.world.script = scriptOf(bytes)
    const { code } = await submit(['--nonce', toHex(systemRandom(8))])
    expect(code).toBe(2)
    expect(readdirSync(self.output).filter(text => !text.endsWith('.tar.gz'))).toEqual([])
  }
})

test('goal: a result that would be written elsewhere is refused, and nothing of it is kept', async () => {
  const names = ['demo/../../evil', '/evil', 'demo//x', 'evil']
  for (const name of names) {
    const evil = join(site.dir, 'evil-source')
    mkdirSync(evil, { recursive: true })
    writeFileSync(join(evil, 'x'), 'x')
    const { bytes } = await packNamed(evil, name)
    self.rig.world.script = scriptOf(bytes)
    const { code } = await submit(['--nonce', toHex(systemRandom(8))])
    expect([name, code]).toEqual([name, 2])
    expect(readdirSync(self.output).filter(text => !text.endsWith('.tar.gz'))).toEqual([])
    expect(existsSync(join(site.dir, 'evil'))).toBe(false)
  }
})

/** An archive of one file under any name. */
async function packNamed(root: string, name: string): Promise<{ bytes: Uint8Array }> {
  const { bytes } = await packSource(root, ['x'], 1_000_000)
  const tar = Bun.gunzipSync(Uint8Array.from(bytes))
  const block = Buffer.from(tar.subarray(0, 512))
  block.fill(0, 0, 100)
  block.write(name, 0)
  block.write(' '.repeat(8), 148)
  const sum = block.reduce((total, byte) => total + byte, 0)
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return { bytes: Bun.gzipSync(Uint8Array.from(Buffer.concat([block, tar.subarray(512)]))) }
}
