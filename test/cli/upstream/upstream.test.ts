// Goal: `strongroom upstream` against a scripted server: it tries before it writes, names the mistake, requires a
// price, and keeps the file as it was whenever it refuses.

import { afterAll, beforeEach, expect, test } from 'bun:test'
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runHere } from '../../rigs/program.ts'

const directory = mkdtempSync(join(tmpdir(), 'strongroom-upstream-'))
const file = join(directory, 'strongroom.toml')
const text = '# mine\n[inference]\nplacement = "host" # for tests\n'
const key = 'k'.repeat(32)

type Seen = { readonly path: string; readonly key: string | null; readonly body: Record<string, unknown> | null }
let seen: Seen[] = []
let answer: (request: Seen) => Response | Promise<Response>

const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  fetch: async request => {
    const body = request.method === 'POST' ? ((await request.json()) as Record<string, unknown>) : null
    const found = { path: new URL(request.url).pathname, key: request.headers.get('authorization'), body }
    seen.push(found)
    return await answer(found)
  },
})
const url = `http://127.0.0.1:${server.port}/v1`
const models = { data: [{ id: 'llama-70b', owned_by: 'vllm', max_model_len: 131_072 }] }
const good = ({ path }: Seen) =>
  path === '/v1/models' ? Response.json(models) : Response.json({ choices: [{ message: { content: 'OK' } }] })

beforeEach(() => {
  seen = []
  answer = good
  writeFileSync(file, text)
})
afterAll(async () => {
  await server.stop(true)
  rmSync(directory, { recursive: true })
})

const upstream = (words: readonly string[], options: Parameters<typeof runHere>[1] = {}) =>
  runHere(['--config', file, '--state-dir', join(directory, 'state'), 'upstream', ...words], options)
const add = (...words: string[]) => upstream(['add', url, '--no-restart', ...words])
const unchanged = () => expect(readFileSync(file, 'utf8')).toBe(text)

test('goal: a proxy that the environment names has no effect', async () => {
  try {
    Object.assign(process.env, { HTTPS_PROXY: 'http://proxy.example:1', no_proxy: '*' })
    expect((await add('--free', '--dry-run')).code).toBe(0)
    expect([process.env.HTTPS_PROXY, process.env.no_proxy]).toEqual([undefined, undefined])
  } finally {
    for (const name of ['HTTPS_PROXY', 'no_proxy']) delete process.env[name]
  }
})

test('goal: it is tried as named, its context is read, and the file gets it with its comments kept', async () => {
  const { code, stdout, stderr } = await add('--price-in', '0.50', '--price-out', '1.5')
  expect([code, stderr]).toEqual([0, expect.stringContaining('context: 131072')])
  expect(seen.map(({ path, body }) => [path, body?.model, body?.max_tokens])).toEqual([
    ['/v1/models', undefined, undefined],
    ['/v1/chat/completions', 'llama-70b', 16],
  ])
  const written = readFileSync(file, 'utf8')
  expect(written.startsWith(text)).toBe(true)
  for (const line of ['engine = "vllm"', 'context_tokens = 131072', 'completion_usd_per_million = "1.5"']) {
    expect(written).toContain(line)
  }
  expect(stdout).toContain('new instances use llama-70b')
  expect(stdout).toContain('its URL is http')
  const listed = await upstream(['ls'])
  expect(listed.stdout).toContain(`127-0-0-1  ${url}  vllm`)
  expect(listed.stdout).toContain('0.50/1.5')
  const removed = await upstream(['rm', '127-0-0-1', '--no-restart', '--json'])
  expect(JSON.parse(removed.stdout)).toMatchObject({ ok: true, name: '127-0-0-1' })
  expect((await upstream(['ls'])).stdout).toContain('has no upstream')
})

test('goal: without a price it asks a person, and refuses a program', async () => {
  const refused = await add()
  expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('--free')])
  unchanged()
  const asked = await upstream(['add', url, '--no-restart'], { answer: '' })
  expect([asked.code, asked.stdout]).toEqual([0, expect.stringContaining('costs 0')])
  const twice = await add('--free')
  expect([twice.code, twice.stderr]).toEqual([2, expect.stringContaining('has this URL already')])
})

test('goal: the key of a file is sent, and a server that wants one says how to give it', async () => {
  answer = request => (request.key === `Bearer ${key}` ? good(request) : new Response('no', { status: 401 }))
  const without = await add('--free')
  expect([without.code, without.stderr]).toEqual([1, expect.stringContaining('--key-file')])
  unchanged()
  const keyFile = join(directory, 'key')
  writeFileSync(keyFile, `${key}\n`)
  expect((await add('--free', '--key-file', keyFile)).code).toBe(0)
  expect(readFileSync(file, 'utf8')).toContain(`key_file = "${keyFile}"`)
  expect(readFileSync(file, 'utf8')).not.toContain(key)
  const relative = await upstream(['add', `${url}/x`, '--key-file', 'key', '--free'])
  expect([relative.code, relative.stderr]).toEqual([2, expect.stringContaining('absolute')])
})

test('goal: each wrong server is refused with the cause and a remedy, and nothing is written', async () => {
  const rows: [what: string, answer: typeof answer, message: string][] = [
    ['an error page', () => new Response('<html>\u001b[2J', { status: 500 }), 'answers 500: <html>\\x1b[2J'],
    ['another path', () => new Response('', { status: 404 }), '/v1'],
    ['a redirect', () => new Response(null, { status: 302, headers: { location: '/' } }), 'answers 302'],
    ['no JSON', () => new Response('hello'), 'not JSON'],
    ['no list', () => Response.json({ data: 1 }), 'no list of models'],
    ['no model', () => Response.json({ data: [] }), 'lists no model'],
    ['several models', () => Response.json({ data: [{ id: 'a' }, { id: 'b' }] }), 'several models: a, b'],
    [
      'no answer of the model',
      ({ path }) => (path === '/v1/models' ? Response.json(models) : Response.json({ choices: [] })),
      'without choices',
    ],
    [
      'an endless body',
      () => new Response(new ReadableStream({ pull: c => c.enqueue(new Uint8Array(65_536)) })),
      'bytes',
    ],
  ]
  for (const [what, wrong, message] of rows) {
    answer = wrong
    const { code, stderr } = await add('--free')
    expect([what, code === 0, stderr]).toEqual([what, false, expect.stringContaining(message)])
    expect(stderr).toMatch(/\nremedy: .+\n$/)
    unchanged()
  }
})

test('goal: a model that only knows the newer limit is asked by that', async () => {
  answer = request => {
    if (request.path === '/v1/models' || request.body?.max_completion_tokens === 16) return good(request)
    return new Response('use max_completion_tokens', { status: 400 })
  }
  expect((await add('--free')).code).toBe(0)
})

test('goal: llama-server has its context in /props; a server that reports none gets none', async () => {
  answer = request => {
    if (request.path === '/props') return Response.json({ default_generation_settings: { n_ctx: 4096 } })
    return request.path === '/v1/models' ? Response.json({ data: [{ id: 'm' }] }) : good(request)
  }
  expect((await add('--free', '--engine', 'llama-server')).code).toBe(0)
  expect(readFileSync(file, 'utf8')).toContain('context_tokens = 4096')
  writeFileSync(file, text)
  const { stdout } = await add('--free')
  expect(stdout).toContain('set context_tokens')
  expect(readFileSync(file, 'utf8')).not.toContain('context_tokens')
})

test('goal: a dry run writes nothing, a closed port and a wrong URL are named', async () => {
  const dry = await add('--free', '--dry-run')
  expect([dry.code, dry.stdout]).toEqual([0, expect.stringContaining('nothing was changed')])
  unchanged()
  const closed = await upstream(['add', 'http://127.0.0.1:1/v1', '--free'])
  expect([closed.code, closed.stderr]).toEqual([3, expect.stringContaining('curl http://127.0.0.1:1/v1/models')])
  for (const wrong of ['ftp://h/v1', 'https://user:secret@h/v1', 'h:8000', 'https://h/v1?x=1']) {
    expect([wrong, (await upstream(['add', wrong, '--free'])).code]).toEqual([wrong, 2])
  }
  const unknown = await upstream(['rm', 'rack'])
  expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('the configuration has none')])
})

test('goal: a link stays a link, and the file keeps its mode', async () => {
  const target = join(directory, 'target.toml')
  writeFileSync(target, text)
  chmodSync(target, 0o600)
  rmSync(file)
  symlinkSync(target, file)
  expect((await add('--free')).code).toBe(0)
  expect(readFileSync(target, 'utf8')).toContain('llama-70b')
  expect(statSync(target).mode & 0o777).toBe(0o600)
  rmSync(file)
})
