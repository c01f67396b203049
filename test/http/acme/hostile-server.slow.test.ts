// Goal: whatever an ACME server answers, an order ends in time, within bounds, with a reason; it leads the daemon
// nowhere else; and the next order starts afresh.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { failure } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import { Challenges } from '../../../src/http/acme/challenges.ts'
import { openAccount } from '../../../src/http/acme/order.ts'
import { AcmeFailure } from '../../../src/http/acme/transport.ts'
import { fetchDirectly } from '../../../src/linux/net/outgoing.ts'
import { type Answers, type HostileServer, startHostileServer } from '../../rigs/acme/hostile-server.ts'

const name = 'instances.agents.example'
const chain = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'
let dir: string
let server: HostileServer

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-hostile-'))
  server = await startHostileServer(dir, { name, chain })
})
afterAll(async () => {
  await server[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true, force: true })
})

const challenges = new Challenges({
  domain: 'agents.example',
  httpListen: { hostname: '127.0.0.1', port: 0 },
  showTexts: null,
})

function account(changes: Partial<ReturnType<typeof defaultConfig>['tls']['acme']> = {}, accountDir = dir) {
  const config = { ...defaultConfig().tls.acme, directory: server.url, ca_file: server.caFile, terms_agreed: true }
  const place = openAccount({
    dir: accountDir,
    config: { ...config, ...changes },
    outgoing: fetchDirectly,
    clock: systemClock,
    pollMs: 5,
  })
  const order = { name, challenge: 'http-01', csr: new Uint8Array(70) } as const
  return (signal = new AbortController().signal) => place(order, challenges, signal)
}

async function refused(answers: Answers, order = account()): Promise<AcmeFailure> {
  server.answers = answers
  server.asked.length = 0
  const error = await failure(order())
  server.answers = {}
  expect(error).toBeInstanceOf(AcmeFailure)
  // Not one proof is left.
  expect(challenges.port).toBe(null)
  return error as unknown as AcmeFailure
}

const always = (make: () => Response) => (): Response => make()
const problem = (type: string, detail: string, headers = {}, status = 403) =>
  always(() => Response.json({ type: `urn:ietf:params:acme:error:${type}`, detail }, { status, headers }))
const changed =
  (change: (body: Record<string, unknown>) => unknown) =>
  async (honest: () => Response): Promise<Response> => {
    const response = honest()
    return Response.json(change((await response.json()) as Record<string, unknown>), {
      status: response.status,
      headers: response.headers,
    })
  }

test('goal: the honest answers of this server get its chain', async () => {
  server.answers = {}
  expect(await account()()).toBe(chain)
})

test('goal: two first orders at the same time register one account, and the failure of one ends no other', async () => {
  const place = account({}, mkdtempSync(join(dir, 'two-')))
  const valid = changed(body => ({ ...body, status: 'valid' }))
  server.answers = { '/authorization': valid }
  server.asked.length = 0
  expect(await Promise.all([place(), place()])).toEqual([chain, chain])
  expect(server.asked.filter(({ path }) => path === '/account')).toHaveLength(1)
  // The first one fails while the second one registers.
  const other = account({}, mkdtempSync(join(dir, 'two-')))
  const [registering, failed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const stopped = new AbortController()
  server.answers = {
    '/authorization': valid,
    '/account': async honest => {
      registering.resolve()
      await failed.promise
      return honest()
    },
  }
  const first = failure(other(stopped.signal))
  const second = other()
  await registering.promise
  stopped.abort(new Error('the first one has ended'))
  await first
  failed.resolve()
  expect(await second).toBe(chain)
  server.answers = {}
})

test('goal: answers of other forms, other names, other places end the order with the reason', async () => {
  using elsewhere = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response('here') })
  const other = `http://127.0.0.1:${elsewhere.port}/x`
  const CASES: [what: string, answers: Answers, why: string][] = [
    ['a directory elsewhere', { '/dir': changed(body => ({ ...body, newNonce: other })) }, 'is used'],
    ['an order elsewhere', { '/dir': changed(body => ({ ...body, newOrder: 'https://192.0.2.1/' })) }, 'is used'],
    ['a file', { '/dir': changed(body => ({ ...body, newNonce: 'file:///etc/shadow' })) }, 'is used'],
    ['no URL', { '/dir': changed(body => ({ ...body, newNonce: 7 })) }, 'no URL'],
    ['a redirect', { '/dir': always(() => Response.redirect(other, 302)) }, 'redirects (302)'],
    ['itself, for ever', { '/order': always(() => Response.redirect(server.url, 307)) }, 'redirects (307)'],
    ['no JSON', { '/dir': always(() => new Response('<html>')) }, ''],
    ['nothing', { '/dir': always(() => Response.json(null)) }, ''],
    ['too much', { '/dir': always(() => new Response('x'.repeat(300_000))) }, 'more than 262144 bytes'],
    ['an error page', { '/order': always(() => new Response('oops', { status: 503 })) }, 'status 503'],
    [
      'another name',
      { '/authorization': changed(body => ({ ...body, identifier: { value: 'evil.example' } })) },
      'another name',
    ],
    [
      'many names',
      { '/order': changed(body => ({ ...body, authorizations: Array(500).fill(server.url) })) },
      'one authorization',
    ],
    ['no proof that fits', { '/authorization': changed(body => ({ ...body, challenges: [] })) }, 'no http-01'],
    [
      'a token that is a path',
      {
        '/authorization': changed(body => ({
          ...body,
          challenges: [{ type: 'http-01', url: `${server.url}/../challenge`, token: '../../x' }],
        })),
      },
      'base64url',
    ],
    ['a proof that stays pending', { '/challenge': changed(body => ({ ...body, status: 'pending' })) }, 'pending'],
    ['a number for a chain', { '/certificate': always(() => Response.json(7)) }, 'no PEM'],
    ['bad nonces, always', { '/order': problem('badNonce', 'no', {}, 400) }, 'no'],
  ]
  for (const [what, answers, why] of CASES) {
    const error = await refused(answers)
    expect([what, error.message]).toEqual([what, expect.stringContaining(why)])
    expect(server.asked.length).toBeLessThanOrEqual(121)
  }
  server.answers = {}
  expect(await account()()).toBe(chain)
}, 60_000)

test('goal: a problem keeps its type, its words without control characters, and the time that the server names', async () => {
  const limited = await refused({
    '/order': problem('rateLimited', 'too\u001b[2J many', { 'Retry-After': '3600' }, 429),
  })
  expect([limited.type, limited.message, limited.retryAfterMs]).toEqual([
    'urn:ietf:params:acme:error:rateLimited',
    'too\\x1b[2J many',
    3_600_000,
  ])
  // One attempt: what limits us is not asked again.
  expect(server.asked.filter(({ path }) => path === '/order')).toHaveLength(1)
  const invalid = await refused({
    '/challenge': changed(body => ({
      ...body,
      status: 'invalid',
      error: { type: 'urn:ietf:params:acme:error:dns', detail: 'NXDOMAIN' },
    })),
  })
  expect([invalid.type, invalid.message]).toEqual(['urn:ietf:params:acme:error:dns', 'NXDOMAIN'])
  const long = await refused({ '/order': problem('malformed', 'x'.repeat(100_000)) })
  expect(long.message).toHaveLength(512)
})

test('goal: an account that the server has forgotten is registered again at the next order', async () => {
  const order = account()
  await order()
  await refused({ '/order': problem('accountDoesNotExist', 'who?', {}, 400) }, order)
  server.asked.length = 0
  await order()
  expect(server.asked.filter(({ path }) => path === '/account')).toHaveLength(1)
})

test('goal: a server that never answers holds nobody up once the daemon stops', async () => {
  const stopping = new AbortController()
  server.answers = { '/dir': () => new Promise<Response>(() => {}) }
  const ended = failure(account()(stopping.signal))
  stopping.abort(new Error('the daemon stops'))
  expect((await ended).message).toBe('the daemon stops')
  server.answers = {}
})

test('goal: another authority than the configured one is not spoken to', async () => {
  const error = await failure(account({ ca_file: '' })())
  expect(error).toBeInstanceOf(AcmeFailure)
  expect(error.message).toMatch(/certificate|issuer/i)
})

test('goal: files that cannot be read are faults of their field, and a broken account file is not overwritten', () => {
  expect(() => account({ ca_file: '/nowhere' })).toThrow('tls.acme.ca_file /nowhere')
  expect(() => account({ eab_kid: 'k', eab_key_file: '/nowhere' })).toThrow('tls.acme.eab_key_file /nowhere')
  const [file = ''] = [...new Bun.Glob('account-*.json').scanSync({ cwd: dir, absolute: true })]
  const before = readFileSync(file, 'utf8')
  writeFileSync(file, before.slice(0, -20))
  expect(() => account()).toThrow('remove it to register a new account')
  expect(readFileSync(file, 'utf8')).toBe(before.slice(0, -20))
})
