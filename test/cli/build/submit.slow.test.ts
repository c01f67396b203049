// Goal: `build submit` takes a directory to a verified result, or says what failed, with the exit code that says it too.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { measureIgvm } from '../../../src/attest/igvm/measure.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { packSource } from '../../../src/cli/build/pack.ts'
import { runCli } from '../../../src/cli/index.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { goodScript, line, type Step } from '../../rigs/build-engine.ts'
import { writeBuilderImage } from '../../rigs/build-image-directory.ts'
import { type SampleResult, sampleResult } from '../../rigs/build-result.ts'
import { type BuildsRig, startBuilds } from '../../rigs/builds-service.ts'
import { simulatedAsOf, simulatedPlatform } from '../../rigs/simulated-platform.ts'
import { until } from '../../rigs/until.ts'

const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-submit-`))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

let sample: SampleResult
/** What the result is verified against. */
let pins: string[]
const imageDirectory = join(dir, 'image')
let archive: Uint8Array
let tls: { cert: string; key: string }
const source = join(dir, 'hello')
const caFile = join(dir, 'ca.pem')
const rootFile = join(dir, 'root.pem')

beforeAll(async () => {
  const image = await writeBuilderImage(imageDirectory)
  const { digest } = await measureIgvm(new Uint8Array(readFileSync(image.igvm)), { profile: 'qemu-kvm' })
  sample = await sampleResult({ measurement: digest })
  pins = ['--igvm', image.igvm, '--image', imageDirectory]
  const packed = join(dir, 'packed')
  const paths = [...sample.files.keys()].map(path => `demo/${path}`)
  for (const [path, bytes] of sample.files) {
    mkdirSync(dirname(join(packed, 'demo', path)), { recursive: true })
    writeFileSync(join(packed, 'demo', path), bytes, { mode: path.startsWith('artifacts/') ? 0o755 : 0o644 })
  }
  archive = (await packSource(packed, paths.sort(), 50_000_000)).bytes
  mkdirSync(source)
  writeFileSync(join(source, 'Cargo.toml'), '[package]')
  mkdirSync(join(source, 'target'))
  writeFileSync(join(source, 'target', 'x'), 'built')
  const deps = { kind: 'clients' as const, stateDir: dir, nowMs: Date.now, random: systemRandom }
  const authority = await openAuthority({ ...deps, names: ['localhost'] })
  tls = await authority.issue(['localhost', '127.0.0.1'], 1)
  writeFileSync(caFile, authority.caPem)
  const { ark, ask } = (await simulatedPlatform('genoa')).authority.root
  writeFileSync(rootFile, [ark, ask].map(der => toPem(der, 'CERTIFICATE')).join(''))
})

let rig: BuildsRig
let front: Bun.Server<undefined>
let output: string
/** What a test does to requests before the service sees them. */
let intercept: ((request: Request) => Promise<Response | null>) | null

/** A good build with this result. */
const script = (bytes = archive): Step[] => [...goodScript.slice(0, -1), { kind: 'ok', bytes }]

beforeEach(async () => {
  rig = await startBuilds()
  rig.world.script = script()
  output = mkdtempSync(join(dir, 'out-'))
  intercept = null
  front = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls,
    idleTimeout: 60,
    fetch: async request =>
      (await intercept?.(request)) ?? rig.builds().fetch(request, { address: () => '', mayPause: () => {} }),
  })
})
afterEach(async () => {
  await front.stop(true)
  await rig[Symbol.asyncDispose]()
})

type Ran = { code: number; stdout: string; stderr: string }

/** The command with all that it needs; `more` goes before. */
async function submit(
  more: readonly string[] = [],
  { from = source, isTerminal = false, key = rig.keys.acme, onSignal = (_: () => void) => {} } = {},
): Promise<Ran> {
  const written = { stdout: '', stderr: '' }
  const argv = [
    ...['build', 'submit', from, '--api', `https://127.0.0.1:${front.port}`, '--ca', caFile, '--output', output],
    ...['--nonce', toHex(sample.nonce), '--trust-simulated-root', rootFile, '--as-of', simulatedAsOf.toISOString()],
    ...pins,
    ...more,
  ]
  const code = await runCli(argv, {
    stdout: async text => {
      written.stdout += text
    },
    stderr: async text => {
      written.stderr += text
    },
    stdoutIsTerminal: isTerminal,
    stderrIsTerminal: isTerminal,
    env: { PATH: process.env.PATH, STRONGROOM_API_KEY: key, XDG_CONFIG_HOME: '/nonexistent' },
    onSignal: (signal, listener) => {
      if (signal === 'SIGINT') onSignal(listener)
    },
  })
  return { code, ...written }
}

describe('a good build', () => {
  test('goal: plain lines while it goes, then the verdict, the archive and the files', async () => {
    const { code, stdout, stderr } = await submit()
    expect([code, stderr]).toEqual([0, expect.stringContaining('left out: target, what .gitignore names')])
    expect(stdout).toStartWith('VERDICT: PASS SIMULATED')
    const [id = ''] = rig
      .store()
      .directory.db.all<{ id: string }>('SELECT id FROM builds')
      .map(row => row.id)
    expect(stdout).toEndWith(`result: ${join(output, 'demo')}\narchive: ${join(output, `${id}.tar.gz`)}\n`)
    for (const text of ['init: unpacked', 'build: compiling', 'complete: ok', `job ${id}, nonce`])
      expect(stderr).toContain(`${text}`)
    expect(stderr).not.toContain('\u001b')
    expect(readFileSync(join(output, `${id}.tar.gz`)).equals(archive)).toBe(true)
    for (const [path, bytes] of sample.files) {
      expect([path, readFileSync(join(output, 'demo', path)).equals(bytes)]).toEqual([path, true])
    }
    expect(readdirSync(output).sort()).toEqual([`${id}.tar.gz`, 'demo'].sort())
  })

  test('goal: one document with --json, and nothing on stderr', async () => {
    const { code, stdout, stderr } = await submit(['--json'])
    expect([code, stderr]).toEqual([0, ''])
    expect(JSON.parse(stdout)).toMatchObject({
      state: 'ok',
      nonce: toHex(sample.nonce),
      directory: join(output, 'demo'),
      verification: { ok: true, simulated: true },
    })
  })

  test('goal: a spinner with phases on a terminal', async () => {
    const held = Promise.withResolvers<void>()
    rig.world.script = [line('init', 'begun'), { kind: 'wait', until: held.promise }, ...script()]
    const done = submit([], { isTerminal: true })
    await Bun.sleep(500)
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
    rig.world.script = [line('init', 'unpacked'), { kind: 'wait', until: held.promise }, ...script().slice(1)]
    intercept = async request => {
      const { pathname } = new URL(request.url)
      if (pathname.endsWith('/events')) {
        streams += 1
        seen.push(request.headers.get('last-event-id'))
        if (streams > 2) {
          held.resolve()
          return null
        }
        const whole = await rig.builds().fetch(request, { address: () => '', mayPause: () => {} })
        const reader = whole.body?.getReader()
        const wanted = streams === 1 ? 'data: ' : 'unpacked'
        let text = ''
        // Of the event with it the end, and nothing of the next one, which on a busy machine comes in the same piece.
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
        const whole = await rig.builds().fetch(request, { address: () => '', mayPause: () => {} })
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

describe('exit code 1', () => {
  test('goal: a build that fails, with its error type and what it said, harmless on a terminal', async () => {
    rig.world.script = [{ kind: 'failed', errorType: 'build_failed', error: 'error[E0425]\n\u001b[2Jgone' }]
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
    rig.world.script = [line('init', 'begun'), { kind: 'wait', until: held.promise }, ...script()]
    let interrupt = () => {}
    const done = submit([], {
      onSignal: listener => {
        interrupt = listener
      },
    })
    const states = () =>
      rig
        .store()
        .directory.db.all<{ state: string }>('SELECT state FROM builds')
        .map(row => row.state)
    await until('it runs', 5_000, () => states()[0] === 'running')
    interrupt()
    const { code, stderr } = await done
    expect([code, states()]).toEqual([1, ['cancelled']])
    expect(stderr).toMatch(/build \S+ was cancelled\n$/)
  })
})

describe('other exit codes', () => {
  test('goal: 2 for what this client or the service refuses, 3 for a service that is not there, 5 for a nonce that was used', async () => {
    expect((await submit(['--toolchain', 'make'])).code).toBe(2)
    expect((await submit(['--ref', 'v1'])).code).toBe(2)
    expect((await submit([], { from: join(dir, 'nothing') })).code).toBe(2)
    expect((await submit(['--project-dir', '../x'])).stderr).toContain('project_dir must be a relative path')
    expect((await submit([], { from: 'https://other.example/a' })).code).toBe(2)
    expect((await submit(['--api', 'https://127.0.0.1:1'])).code).toBe(3)
    expect((await submit([], { key: 'ca_aaaaaaaa_aaaaaaaaaaaaaaaaaa' })).code).toBe(1)
    expect((await submit()).code).toBe(0)
    const again = await submit()
    expect([again.code, again.stderr]).toEqual([5, expect.stringContaining('This nonce was used')])
  })

  test('goal: a certificate of nobody we trust: the key is not sent', async () => {
    const asked: string[] = []
    intercept = async request => {
      asked.push(request.headers.get('authorization') ?? '')
      return null
    }
    writeFileSync(join(dir, 'other.pem'), readFileSync(rootFile))
    const { code } = await submit(['--ca', join(dir, 'other.pem')])
    expect([code, asked]).toEqual([3, []])
  })
})

test('goal: a result that is no archive is refused, and nothing of it is kept', async () => {
  for (const bytes of [
    Buffer.from('hello'),
    archive.subarray(0, archive.length - 100),
    Bun.gzipSync(new Uint8Array(1024)),
  ]) {
    rig.world.script = script(bytes)
    const { code } = await submit(['--nonce', toHex(systemRandom(8))])
    expect(code).toBe(2)
    expect(readdirSync(output).filter(one => !one.endsWith('.tar.gz'))).toEqual([])
  }
})

test('goal: a result that would be written elsewhere is refused, and nothing of it is kept', async () => {
  const names = ['demo/../../evil', '/evil', 'demo//x', 'evil']
  for (const name of names) {
    const evil = join(dir, 'evil-source')
    mkdirSync(evil, { recursive: true })
    writeFileSync(join(evil, 'x'), 'x')
    const { bytes } = await packNamed(evil, name)
    rig.world.script = script(bytes)
    const { code } = await submit(['--nonce', toHex(systemRandom(8))])
    expect([name, code]).toEqual([name, 2])
    expect(readdirSync(output).filter(one => !one.endsWith('.tar.gz'))).toEqual([])
    expect(existsSync(join(dir, 'evil'))).toBe(false)
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
