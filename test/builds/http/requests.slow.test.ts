// Requests to service C: accepted and refused bodies, ownership of builds, messages. A refused request uses nothing up.

import { describe, expect, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import {
  type Answer,
  type BuildsRig,
  randomNonce,
  source,
  startBuilds,
} from '../../../scripts/rigs/build/builds-service.ts'
import { goodScript } from '../../../scripts/rigs/build/engine.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { BuildProblem } from '../../../src/contract/http/build-api.ts'

const source_data = source.toString('base64')
const body = (change: object) => ({ nonce: randomNonce(), source_data, ...change })

/** Status and field, of a problem in its form. */
function problem(answer: Answer): string {
  expect(Value.Check(BuildProblem, answer.json)).toBe(true)
  expect(answer.headers.get('x-request-id')).toMatch(/^req_[a-z0-9]{24}$/)
  const { param } = answer.json.error as { param?: string }
  return `${answer.status}${param === undefined ? '' : ` ${param}`}`
}

function nothingLeft(rig: BuildsRig): void {
  expect(rig.store().directory.db.all('SELECT id FROM builds')).toEqual([])
  expect(rig.store().directory.db.all('SELECT nonce FROM build_nonces')).toEqual([])
  expect(readdirSync(join(rig.directory, 'builds'))).toEqual(['incoming'])
  expect(readdirSync(join(rig.directory, 'builds', 'incoming'))).toEqual([])
}

const git = { source_data: undefined, repo_url: 'https://git.example/a/b.git' }
const REFUSED: [string, object, string][] = [
  ...['', '0', '000', 'zz', '0g', '00'.repeat(17), ' 00', '0x00', '00\n', 7, null, ['00'], undefined].map(
    (nonce): [string, object, string] => [`the nonce ${JSON.stringify(nonce)}`, { nonce }, '400 nonce'],
  ),
  ['neither source', { source_data: undefined }, '400'],
  ['both sources', { repo_url: 'https://git.example/a' }, '400'],
  ['null for both', { source_data: null }, '400'],
  ['an empty source', { source_data: '' }, '400 source_data'],
  ['a source that is a number', { source_data: 7 }, '400 source_data'],
  ['a source that is a list', { source_data: ['AAAA'] }, '400 source_data'],
  ['a source that is no base64', { source_data: 'a b' }, '400 source_data'],
  ['a reference without a repository', { repo_ref: 'v1' }, '400 repo_ref'],
  ['a name without an archive', { ...git, source_name: 'a.tar' }, '400 source_name'],
  ...['http://git.example/a', 'ssh://git.example/a', 'file:///etc', '-oProxyCommand=x', 'https://other.example/a'].map(
    (repo_url): [string, object, string] => [`the address ${repo_url}`, { ...git, repo_url }, '400 repo_url'],
  ),
  ...[
    'https://user:secret@git.example/a',
    'https://git.example:444/a',
    'https://git.example/a?x',
    'https://git.example/a#x',
  ].map((repo_url): [string, object, string] => [`the address ${repo_url}`, { ...git, repo_url }, '400 repo_url']),
  ...['--upload-pack=x', 'a..b', 'a b', '@{1}', 'a:b', '*', ''].map((repo_ref): [string, object, string] => [
    `the reference ${repo_ref}`,
    { ...git, repo_ref },
    '400 repo_ref',
  ]),
  ...['/etc', '../x', 'a/../b', 'a//b', 'a\\b', 'a\u0000b', '.git/hooks'].map(
    (project_dir): [string, object, string] => [
      `the directory ${JSON.stringify(project_dir)}`,
      { project_dir },
      '400 project_dir',
    ],
  ),
  ...['a/b', '..', 'a\nb', ''].map((source_name): [string, object, string] => [
    `the name ${JSON.stringify(source_name)}`,
    { source_name },
    '400 source_name',
  ]),
  ['another toolchain', { toolchain: 'bazel' }, '400 toolchain'],
  ['text for a flag', { reproduce: 'yes' }, '400 reproduce'],
  ['authorities where there are none', { fetch_ca_sha256: '00'.repeat(32) }, '400 fetch_ca_sha256'],
  ['authorities by no digest', { fetch_ca_sha256: '00' }, '400 fetch_ca_sha256'],
  ['a mirror where there is none', { crates_mirror: 'sparse+https://a.example/' }, '400 crates_mirror'],
  ['a field that is none', { shell: 'true' }, '400 shell'],
  ['the prototype', { ['__proto__']: 1, constructor: {} }, '400 __proto__'],
]

test('goal: each mistake of a request is refused by its field, and uses nothing up', async () => {
  await using rig = await startBuilds({ starts: false })
  for (const [what, change, expected] of REFUSED) {
    const found = problem(await rig.send('POST', '/build', { body: body(change) }))
    expect([what, found]).toEqual([what, expected])
  }
  nothingLeft(rig)
})

test('goal: bodies that are no JSON object, are too large, too deep or cut are refused, and nothing is kept', async () => {
  await using rig = await startBuilds({ starts: false, body: { sourceBytesMax: 10_000 } })
  const post = (bytes: string | Uint8Array, headers: Record<string, string> = {}) =>
    rig.send('POST', '/build', { bytes, headers: { 'content-type': 'application/json', ...headers } })
  const large = JSON.stringify(body({ source_data: Buffer.alloc(10_001).toString('base64') }))
  const table: [string, () => Promise<Answer>, string][] = [
    ['nothing', () => post(''), '400'],
    ['no JSON', () => post('hello'), '400'],
    ['a list', () => post('[1]'), '400'],
    ['null', () => post('null'), '400'],
    ['not UTF-8', () => post(Uint8Array.of(0x7b, 0xff, 0x7d)), '400'],
    ['deep', () => post(`{"nonce":${'['.repeat(1000)}${']'.repeat(1000)}}`), '400'],
    ['a field twice', () => post(`{"nonce":"00","nonce":"01","source_data":"AAAA"}`), '400 nonce'],
    ['the source twice', () => post(`{"nonce":"00","source_data":"AAAA","source_data":"AAAA"}`), '400 source_data'],
    ['a large source', () => post(large), '413 source_data'],
    ['a large field', () => post(JSON.stringify(body({ project_dir: 'x'.repeat(70_000) }))), '413'],
    ['a large body', () => post(' '.repeat(200_000)), '413'],
    ['text', () => post('{}', { 'content-type': 'text/plain' }), '400'],
    ['compressed', () => post('{}', { 'content-encoding': 'gzip' }), '400'],
  ]
  for (const [what, answer, expected] of table) expect([what, problem(await answer())]).toEqual([what, expected])
  nothingLeft(rig)
})

test('goal: a body that does not end in its time is refused, and nothing is kept', async () => {
  await using rig = await startBuilds({ starts: false, body: { timeoutMs: 300 } })
  const never = new ReadableStream({
    start: controller => controller.enqueue(new TextEncoder().encode('{"nonce":"00","source_data":"AAAA')),
  })
  expect(
    problem(await rig.send('POST', '/build', { bytes: never, headers: { 'content-type': 'application/json' } })),
  ).toBe('408')
  nothingLeft(rig)
})

test('goal: a client that goes away in the middle of its source leaves nothing behind', async () => {
  await using rig = await startBuilds({ starts: false })
  const text = `{"nonce":"00","source_data":"${'A'.repeat(300_000)}`
  const opened = Promise.withResolvers<void>()
  const socket = await Bun.connect({
    hostname: '127.0.0.1',
    port: Number(new URL(rig.url()).port),
    socket: { open: () => opened.resolve(), data: () => {}, close: () => {} },
  })
  await opened.promise
  const head = `POST /build HTTP/1.1\r\nHost: x.example\r\nAuthorization: Bearer ${rig.keys.acme}\r\nContent-Length: 900000\r\n\r\n`
  socket.write(head + text)
  const incoming = () => readdirSync(join(rig.directory, 'builds', 'incoming')).length
  await until('the source is on its way', 20_000, () => incoming() === 1)
  socket.terminate()
  await until('it is gone', 20_000, () => incoming() === 0)
  nothingLeft(rig)
})

test('goal: a nonce is used once by each organization, in whatever case; what was refused has used none', async () => {
  await using rig = await startBuilds()
  const nonce = 'AB'.repeat(16)
  const send = (change: object, key = rig.keys.acme) =>
    rig.send('POST', '/build', { key, body: body({ nonce, ...change }) })
  expect((await send({ toolchain: 'bazel' })).status).toBe(400)
  expect((await send({})).status).toBe(200)
  expect(problem(await send({}))).toBe('409 nonce')
  expect(problem(await send({ nonce: nonce.toLowerCase() }))).toBe('409 nonce')
  expect((await send({}, rig.keys.globex)).status).toBe(200)
  // Another length is another nonce.
  expect((await send({ nonce: 'ab' })).status).toBe(200)
  const both = await Promise.all([send({ nonce: 'cd' }), send({ nonce: 'cd' })])
  expect(both.map(({ status }) => status).sort()).toEqual([200, 409])
})

test('goal: fields that are null are as if they were left out', async () => {
  await using rig = await startBuilds()
  const empty = {
    repo_url: null,
    repo_ref: null,
    source_name: null,
    project_dir: null,
    toolchain: null,
    reproduce: null,
    fetch_ca_sha256: null,
    crates_mirror: null,
  }
  const id = await rig.submit(empty)
  expect((await rig.ended(id)).state).toBe('ok')
})

describe('whose it is', () => {
  test('goal: without a good key nothing is shown or taken, and a read-only key only shows', async () => {
    await using rig = await startBuilds()
    const id = await rig.submit()
    await rig.ended(id)
    const paths = [`/build/${id}`, `/build/${id}/events`, `/build/${id}/result`]
    for (const path of paths) {
      const answers = [
        await rig.send('GET', path, { key: null }),
        await rig.send('GET', path, { key: 'ca_aaaaaaaa_aaaaaaaaaaaaaaaaaa' }),
        await rig.send('GET', path, { key: rig.keys.globex }),
      ]
      expect(answers.map(problem)).toEqual(['401', '401', '404'])
      expect((await rig.send('GET', path, { key: rig.keys.acmeRead })).status).toBe(200)
    }
    const posts = [
      await rig.send('POST', '/build', { key: null, body: body({}) }),
      await rig.send('POST', '/build', { key: rig.keys.acmeRead, body: body({}) }),
      await rig.send('POST', '/vm', { key: null }),
      await rig.send('DELETE', `/build/${id}`, { key: rig.keys.globex }),
    ]
    expect(posts.map(problem)).toEqual(['401', '403', '401', '404'])
    expect((await rig.send('GET', '/health', { key: null })).text).toBe('ok')
  })

  test('goal: an open service takes builds of nobody; those of organizations stay theirs', async () => {
    await using rig = await startBuilds({ open: true })
    const own = await rig.submit()
    const answer = await rig.send('POST', '/build', { key: null, body: body({}) })
    const id = String(answer.json.job_id)
    await rig.ended(id)
    expect((await rig.send('GET', `/build/${id}/result`, { key: null })).status).toBe(200)
    expect(problem(await rig.send('GET', `/build/${own}`, { key: null }))).toBe('404')
    expect(problem(await rig.send('GET', `/build/${id}`))).toBe('404')
    expect(problem(await rig.send('GET', `/build/${own}`, { key: 'ca_aaaaaaaa_aaaaaaaaaaaaaaaaaa' }))).toBe('401')
  })
})

test('goal: a path or a method that is none is refused in our own form', async () => {
  await using rig = await startBuilds()
  expect(problem(await rig.send('GET', '/nothing'))).toBe('404')
  expect(problem(await rig.send('GET', '/build/x/y/z'))).toBe('404')
  expect(problem(await rig.send('GET', `/build/${'x'.repeat(500)}`))).toBe('404')
  expect(problem(await rig.send('GET', "/build/' OR 1=1"))).toBe('404')
  const wrong = await rig.send('GET', '/build')
  expect([problem(wrong), wrong.headers.get('allow')]).toEqual(['405', 'OPTIONS, POST'])
  expect((await rig.send('OPTIONS', '/build')).status).toBe(204)
})

describe('limits', () => {
  test('goal: builds of an organization, of a day, and requests of a key are limited, each with Retry-After', async () => {
    const held = Promise.withResolvers<void>()
    await using rig = await startBuilds({ settings: { perOrganizationMax: 2, perDayMax: 3 } })
    rig.world.script = [{ kind: 'wait', until: held.promise }, ...goodScript]
    const ids = [await rig.submit(), await rig.submit()]
    const full = await rig.send('POST', '/build', { body: body({}) })
    expect([problem(full), Number(full.headers.get('retry-after')) > 0]).toEqual(['429', true])
    expect((await rig.send('POST', '/build', { key: rig.keys.globex, body: body({}) })).status).toBe(200)
    held.resolve()
    for (const id of ids) await rig.ended(id)
    await rig.ended(await rig.submit())
    const day = await rig.send('POST', '/build', { body: body({}) })
    expect([problem(day), Number(day.headers.get('retry-after')) > 80_000]).toEqual(['429', true])
    await rig.restart({ requestsPerMinute: 1, settings: {} })
    await rig.send('GET', `/build/${ids[0]}`)
    expect(problem(await rig.send('GET', `/build/${ids[0]}`))).toBe('429')
  })

  test('goal: only so many sources are on their way at a time', async () => {
    await using rig = await startBuilds({ starts: false, settings: { uploadsMax: 1 } })
    const first = Promise.withResolvers<ReadableStreamDefaultController<Uint8Array>>()
    const slow = new ReadableStream<Uint8Array>({ start: controller => first.resolve(controller) })
    const headers = { 'content-type': 'application/json' }
    const answer = rig.send('POST', '/build', { bytes: slow, headers })
    const controller = await first.promise
    // So much that it is on the disk before its end: another request, which might come first, would have the place.
    const large = Buffer.concat([source, Buffer.alloc(600_000)]).toString('base64')
    const [head = '', tail = ''] = JSON.stringify(body({ source_data: large })).split(large)
    controller.enqueue(new TextEncoder().encode(head + large))
    const incoming = () => readdirSync(join(rig.directory, 'builds', 'incoming')).length
    await until('it is on its way', 20_000, () => incoming() === 1)
    expect(problem(await rig.send('POST', '/build', { body: body({}) }))).toBe('429')
    controller.enqueue(new TextEncoder().encode(tail))
    controller.close()
    expect((await answer).status).toBe(200)
    expect(incoming()).toBe(0)
  })

  test('goal: the oldest results make room for new ones, and say so; what runs is never removed', async () => {
    await using rig = await startBuilds({ settings: { resultBytesMax: 6_000 } })
    const big = Buffer.alloc(1_000, 'x').toString('base64')
    const first = await rig.submit({ source_data: big })
    await rig.ended(first)
    for (let count = 0; count < 4; count += 1) await rig.ended(await rig.submit({ source_data: big }))
    expect(rig.build(first).removedAtMs).not.toBeNull()
    expect(problem(await rig.send('GET', `/build/${first}/result`))).toBe('404')
    expect(problem(await rig.send('GET', `/build/${first}/events`))).toBe('404')
    expect((await rig.send('GET', `/build/${first}`)).json).toMatchObject({ state: 'ok', result: { url: null } })
    const tooBig = await rig.send('POST', '/build', {
      body: body({ source_data: Buffer.alloc(7_000).toString('base64') }),
    })
    expect(problem(tooBig)).toBe('429')
  })
})

test('goal: a VM gets the authorities and the mirror of its service only for a request that names them', async () => {
  const own = { proxy: 'http://10.0.0.1:8444', cratesMirror: 'sparse+https://crates.example/', ca: 'PEM' }
  const caSha256 = new Bun.CryptoHasher('sha256').update(own.ca).digest('hex')
  await using rig = await startBuilds({ settings: { fetch: own } })
  const orderFor = async (change: object) => {
    await rig.ended(await rig.submit(change))
    const { accepts, fetch } = rig.world.ordered ?? {}
    return { accepts, fetch }
  }
  expect(await orderFor({})).toEqual({
    accepts: { caSha256: null, cratesMirror: null },
    fetch: { ...own, cratesMirror: null, ca: null },
  })
  expect(await orderFor({ crates_mirror: own.cratesMirror })).toEqual({
    accepts: { caSha256: null, cratesMirror: own.cratesMirror },
    fetch: { ...own, ca: null },
  })
  const both = { crates_mirror: own.cratesMirror, fetch_ca_sha256: caSha256 }
  expect(await orderFor(both)).toEqual({ accepts: { caSha256, cratesMirror: own.cratesMirror }, fetch: own })
  for (const [change, message] of [
    [{ fetch_ca_sha256: '00'.repeat(32) }, caSha256],
    [{ crates_mirror: 'sparse+https://other.example/' }, own.cratesMirror],
  ] as const) {
    const { status, text } = await rig.send('POST', '/build', { body: body(change) })
    expect([status, text]).toEqual([400, expect.stringContaining(message)])
  }
})
