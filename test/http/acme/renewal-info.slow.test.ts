// Goal: a server's suggestion when to renew is read as RFC 9773 has it, over real HTTPS; whatever else it answers is as
// no suggestion, within bounds and nowhere else; and a renewal names what it replaces.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../../src/base/clock.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import { Challenges } from '../../../src/http/acme/challenges.ts'
import { acmeServer, openAccount } from '../../../src/http/acme/order.ts'
import { certificateId, openRenewalInfo } from '../../../src/http/acme/renewal-info.ts'
import { fetchDirectly } from '../../../src/linux/net/outgoing.ts'
import { type Answers, type HostileServer, startHostileServer } from '../../rigs/acme/hostile-server.ts'

/** The certificate of RFC 9773 appendix A, and its identifier (4.1). */
const EXAMPLE = `-----BEGIN CERTIFICATE-----
MIIBQzCB66ADAgECAgUAh2VDITAKBggqhkjOPQQDAjAVMRMwEQYDVQQDEwpFeGFt
cGxlIENBMCIYDzAwMDEwMTAxMDAwMDAwWhgPMDAwMTAxMDEwMDAwMDBaMBYxFDAS
BgNVBAMTC2V4YW1wbGUuY29tMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEeBZu
7cbpAYNXZLbbh8rNIzuOoqOOtmxA1v7cRm//AwyMwWxyHz4zfwmBhcSrf47NUAFf
qzLQ2PPQxdTXREYEnKMjMCEwHwYDVR0jBBgwFoAUaYhba4dGQEHhs3uEe6CuLN4B
yNQwCgYIKoZIzj0EAwIDRwAwRAIge09+S5TZAlw5tgtiVvuERV6cT4mfutXIlwTb
+FYN/8oCIClDsqBklhB9KAelFiYt9+6FDj3z4KGVelYM5MdsO3pK
-----END CERTIFICATE-----
`
const id = 'aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE'
const name = 'instances.agents.example'
let dir: string
let server: HostileServer

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-renewal-'))
  server = await startHostileServer(dir, { name, chain: EXAMPLE })
})
afterAll(async () => {
  await server[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true, force: true })
})

const config = () => ({
  ...defaultConfig().tls.acme,
  directory: server.url,
  ca_file: server.caFile,
  terms_agreed: true,
})
const ask = async (answers: Answers) => {
  server.answers = answers
  server.asked.length = 0
  const found = await openRenewalInfo(acmeServer(config(), fetchDirectly, systemClock), server.url)(
    id,
    new AbortController().signal,
  )
  server.answers = {}
  return found
}
const origin = () => new URL(server.url).origin
const directory = (renewalInfo: unknown): Answers => ({
  '/dir': async honest => Response.json({ ...((await honest().json()) as object), renewalInfo }),
})
const suggested = { suggestedWindow: { start: '2026-01-02T04:00:00Z', end: '2026-01-03T04:00:00Z' } }
const answer = (body: unknown, init: ResponseInit = {}): Answers => ({
  ...directory(`${origin()}/renewal`),
  [`/renewal/${id}`]: () => Response.json(body, init),
})

test('goal: a certificate has the identifier of the RFC, and one without an issuer’s key has none', () => {
  expect(certificateId(EXAMPLE)).toBe(id)
  expect(certificateId('no certificate')).toBeNull()
})

test('goal: the window and the wish of the server are read', async () => {
  const window = { startMs: Date.UTC(2026, 0, 2, 4), endMs: Date.UTC(2026, 0, 3, 4) }
  expect(await ask(answer(suggested))).toEqual({ window, retryAfterMs: null })
  expect(await ask(answer(suggested, { headers: { 'Retry-After': '21600' } }))).toEqual({
    window,
    retryAfterMs: 21_600_000,
  })
  expect(server.asked.map(({ method, path }) => `${method} ${path}`)).toEqual(['GET /dir', `GET /renewal/${id}`])
})

test('goal: no renewal information, and what is none, is no suggestion', async () => {
  const CASES: [what: string, answers: Answers][] = [
    ['none', {}],
    ['a number', directory(7)],
    ['another place', directory('https://192.0.2.1/renewal')],
    ['a file', directory('file:///etc')],
    ['not found', answer(suggested, { status: 404 })],
    ['no window', answer({})],
    ['no dates', answer({ suggestedWindow: { start: 'soon', end: 'later' } })],
    [
      'an end before its start',
      answer({ suggestedWindow: { ...suggested.suggestedWindow, end: '2026-01-01T00:00:00Z' } }),
    ],
    ['a redirect', answer(suggested, { status: 302, headers: { Location: server.url } })],
    ['no JSON', { ...answer({}), [`/renewal/${id}`]: () => new Response('<html>') }],
    ['too much', { ...answer({}), [`/renewal/${id}`]: () => new Response('x'.repeat(300_000)) }],
  ]
  for (const [what, answers] of CASES) expect([what, await ask(answers)]).toEqual([what, null])
})

test('goal: an order names what it replaces, if it replaces anything', async () => {
  const listen = { hostname: '127.0.0.1', port: 0 }
  const challenges = new Challenges({ domain: 'agents.example', httpListen: listen, showTexts: null })
  const place = openAccount({ dir, config: config(), outgoing: fetchDirectly, clock: systemClock, pollMs: 5 })
  const order = { name, challenge: 'http-01', csr: new Uint8Array(70) } as const
  const identifiers = [{ type: 'dns', value: name }]
  for (const replaces of [undefined, id]) {
    server.asked.length = 0
    const named = replaces === undefined ? {} : { replaces }
    await place({ ...order, ...named }, challenges, new AbortController().signal)
    const [asked] = server.asked.filter(({ path }) => path === '/order')
    expect(JSON.parse(asked?.payload ?? '')).toEqual({ identifiers, ...named })
  }
})
