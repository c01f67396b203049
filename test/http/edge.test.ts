// The edge that services A and C share: paths, methods, failures, headers and the access log. Each service's own tests
// send real requests through it.

import { expect, test } from 'bun:test'
import { Fault } from '../../src/base/fault.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { createLogger } from '../../src/base/log.ts'
import { createEdge, type EdgeContext, type EdgeDeps } from '../../src/http/edge.ts'
import { STORAGE_FAILURES, UnavailableFault } from '../../src/http/limited.ts'

type Peer = { readonly address: string }

function edgeOf(changes: Partial<EdgeDeps<Peer>> = {}) {
  const lines: Record<string, unknown>[] = []
  const log = createLogger({ level: 'debug', sink: line => lines.push(JSON.parse(line)), nowMs: () => 0 })
  const seen: (Peer & EdgeContext)[] = []
  const note = (context: Peer & EdgeContext) => {
    seen.push(context)
    return new Response('fine')
  }
  const fetch = createEdge<Peer>({
    log,
    clock: { monotonicMs: () => 0 },
    random: systemRandom,
    admitChange: () => {},
    strangers: { level: level => level },
    routes: [
      { method: 'GET', path: '/a.json', isPublic: true, respond: note },
      { method: 'GET', path: '/things/{name}', respond: note },
      { method: 'DELETE', path: '/things/:name', respond: note },
      { method: 'POST', path: '/things/:name/parts/:part', respond: note },
    ],
    paramCharsMax: 8,
    failureDocument: ({ requestId }, error) => ({ id: requestId, error }),
    ...changes,
  })
  const send = async (method: string, path: string) => {
    const response = await fetch(new Request(`https://a.example${path}`, { method }), { address: '192.0.2.1' })
    const allow = response.headers.get('allow')
    return { status: response.status, headers: response.headers, text: await response.text(), allow }
  }
  return { send, seen, lines }
}

// Goal: what passes no gate changes nothing: only GET, HEAD and OPTIONS reach anybody while it is shut.
test('a shut gate', async () => {
  const { send, seen } = edgeOf({
    admitChange: () => {
      throw new UnavailableFault('not now', 5_000)
    },
  })
  for (const [method, path, status] of [
    ['DELETE', '/things/abc', 503],
    ['POST', '/things/abc/parts/d', 503],
    ['GET', '/things/abc', 200],
    ['HEAD', '/things/abc', 200],
    ['OPTIONS', '/things/abc', 204],
    ['PUT', '/things/abc', 405],
  ] as const) {
    const { status: found, headers } = await send(method, path)
    expect([method, found, headers.get('retry-after')]).toEqual([method, status, status === 503 ? '5' : null])
  }
  expect(seen.map(({ request }) => request.method)).toEqual(['GET', 'HEAD'])
})

// Goal: both spellings of a template are the same path; parts are handed over undecoded; HEAD goes to GET.
test('paths and methods', async () => {
  const { send, seen, lines } = edgeOf()
  const rows = [
    ['GET', '/things/ab%41', 200],
    ['HEAD', '/things/abc?x=1', 200],
    ['DELETE', '/things/abc', 200],
    ['POST', '/things/abc/parts/d', 200],
    ['GET', '/things/', 404],
    ['GET', '/things/abcdefghi', 404],
    ['GET', '/things/a/b', 404],
    ['GET', '/axjson', 404],
    ['HEAD', '/things/abc/parts/d', 405],
  ] as const
  for (const [method, path, status] of rows) {
    expect([method, path, (await send(method, path)).status]).toEqual([method, path, status])
  }
  expect(seen.map(({ template, params, address }) => ({ template, params, address }))).toEqual([
    { template: '/things/:name', params: { name: 'ab%41' }, address: '192.0.2.1' },
    { template: '/things/:name', params: { name: 'abc' }, address: '192.0.2.1' },
    { template: '/things/:name', params: { name: 'abc' }, address: '192.0.2.1' },
    { template: '/things/:name/parts/:part', params: { name: 'abc', part: 'd' }, address: '192.0.2.1' },
  ])
  expect(lines.map(({ level, path }) => `${level} ${path}`).slice(0, 5)).toEqual([
    'debug /things/:name',
    'debug /things/:name',
    'info /things/:name',
    'info /things/:name/parts/:part',
    'info (unknown)',
  ])
})

// Goal: OPTIONS and 405 name the methods of a path; a service may refuse to name those of paths that are not public.
test('methods of a path', async () => {
  const beforeMethods = () => {
    throw new Fault('unauthenticated', 'Who asks?')
  }
  for (const { send } of [edgeOf(), edgeOf({ beforeMethods })]) {
    expect(await send('OPTIONS', '/things/abc')).toMatchObject({ status: 204, allow: 'DELETE, GET, HEAD, OPTIONS' })
    expect(await send('POST', '/a.json')).toMatchObject({ status: 405, allow: 'GET, HEAD, OPTIONS' })
    expect(await send('OPTIONS', '/nothing')).toMatchObject({ status: 404, allow: null })
  }
  const refused = await edgeOf({ beforeMethods }).send('PUT', '/things/abc')
  expect([refused.status, refused.allow, refused.headers.get('www-authenticate')]).toEqual([401, null, 'Bearer'])
})

// Goal: every response has the common headers; our failures say nothing and are logged, those of clients are explained.
test('failures', async () => {
  const rows = [
    [new Fault('conflict', 'Taken.', { param: 'name' }), 409, { code: 'conflict', message: 'Taken.', param: 'name' }],
    [new Fault('store.newer', 'secret'), 500, { code: 'internal_error', message: 'An unexpected error occurred.' }],
    [
      Object.assign(new Error('secret'), { code: 'SQLITE_CORRUPT' }),
      503,
      { code: 'internal_error', message: STORAGE_FAILURES['store.corrupt'].message },
    ],
    [null, 500, { code: 'internal_error', message: 'An unexpected error occurred.' }],
    [new UnavailableFault('Later.', 5_000), 503, { code: 'internal_error', message: 'Later.' }],
  ] as const
  for (const [thrown, status, error] of rows) {
    const respond = () => {
      throw thrown
    }
    const { send, lines } = edgeOf({
      routes: [{ method: 'GET', path: '/', respond }],
      headers: () => ({ 'X-Own': '1' }),
    })
    const answer = await send('GET', '/')
    const id = answer.headers.get('x-request-id') ?? ''
    expect([answer.status, JSON.parse(answer.text)]).toEqual([status, { id, error }])
    expect(id).toMatch(/^req_[a-z0-9]{24}$/)
    for (const [name, value] of [
      ['cache-control', 'no-store'],
      ['x-content-type-options', 'nosniff'],
      ['x-own', '1'],
      ['retry-after', thrown instanceof UnavailableFault ? '5' : status === 503 ? '60' : null],
    ] as const) {
      expect([name, answer.headers.get(name)]).toEqual([name, value])
    }
    const logged = lines.filter(({ level }) => level === 'error').map(({ request_id }) => request_id)
    expect(logged).toEqual(status < 500 || thrown instanceof UnavailableFault ? [] : [id])
    expect(lines.at(-1)).toMatchObject({ level: status >= 500 ? 'warn' : 'info', request_id: id, path: '/' })
  }
})
