// Goal: the host, which carries every packet of an instance and names its gateway in the claim, gets no byte of a
// prompt meant for another. The instance's endpoint is real, the gateways are real enclaves as processes, the host is
// a man in the middle.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EnclaveBench } from '../../../scripts/rigs/enclave/enclave.ts'
import { launchMeasurement } from '../../../scripts/rigs/enclave/workload.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { canary, startEndpoint } from '../../../scripts/rigs/instances/instance-endpoint.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { guestGatewayName } from '../../../src/contract/vm/agent.ts'
import type { AttestedGateway } from '../../../src/contract/vm/inference-gateway.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { httpResponse, newCertificate, startProxy, startRecorder, startRelay } from '../../rigs/tls-peers.ts'

const testMs = 120_000
type ModelList = { readonly data: readonly { readonly id: string }[] }
const portOf = (url: string) => Number(new URL(url).port)

let upstream: TestUpstream
let bench: EnclaveBench
let key: string
let first: string
beforeAll(async () => {
  upstream = await startUpstream()
  bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
  key = bench.addKey()
  first = (await bench.serve()).vmId
}, testMs)
afterAll(async () => {
  await bench[Symbol.asyncDispose]()
  await upstream.stop()
})

/** Gateway in the claim of an honest host. */
function honest(changes: Partial<AttestedGateway> = {}): AttestedGateway {
  return {
    kind: 'attested',
    measurements: [launchMeasurement],
    operatorKey: toHex(bench.host.operatorKey),
    outside: bench.workload.upstreams.map(({ name }) => name).sort(),
    simulatedRoot: bench.host.rootPem,
    ...changes,
  }
}

const endpointAt = (url: string, gateway: AttestedGateway = honest()) =>
  startEndpoint({ baseUrl: `${url}/v1`, gateway, key })

const messageIn = (text: string): string => JSON.parse(text).error.message

/** Prompts seen where TLS ends at the upstream. */
const promptCount = () => upstream.seen.filter(({ body }) => JSON.stringify(body).includes(canary)).length

describe('the gateway that the claim names', () => {
  // Goal: prompts and streams pass, with the caller's own key; the next VM, with new keys, is taken without a gap.
  test(
    'gets prompts once it has proved itself',
    async () => {
      await using relay = await startRelay(portOf(bench.url(first)))
      await using endpoint = await endpointAt(relay.url)
      const before = promptCount()
      const said = await endpoint.prompt()
      expect([said.status, JSON.parse(said.text).choices[0].message.content]).toEqual([200, 'Grüße 👋 you'])
      expect(promptCount()).toBe(before + 1)
      const body = JSON.stringify({ model: 'm', stream: true, messages: [{ role: 'user', content: canary }] })
      const streamed = await endpoint.prompt(undefined, { body })
      expect(streamed.headers.get('content-type')).toStartWith('text/event-stream')
      expect(streamed.text).toEndWith('data: [DONE]\n\n')
      const messages = await endpoint.prompt('/v1/messages', { headers: { 'x-api-key': key } })
      expect([messages.status, JSON.parse(messages.text).type]).toEqual([200, 'message'])
      const models = await fetch(`${endpoint.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })
      expect([models.status, ((await models.json()) as ModelList).data.map(({ id }) => id)]).toEqual([
        200,
        expect.arrayContaining(['m']),
      ])
      expect((await fetch(`${endpoint.url}/health`)).status).toBe(200)
      // Another key is the gateway's to refuse.
      expect((await endpoint.prompt(undefined, { headers: { authorization: 'Bearer gw_no' } })).status).toBe(401)
      const second = await bench.serve()
      relay.lead(portOf(bench.url(second.vmId)))
      expect((await endpoint.prompt()).status).toBe(200)
    },
    testMs,
  )

  // Goal: each mismatch with the claim is named, in either API's form, with a remedy, and no client retries.
  test(
    'is refused for whatever it does not prove',
    async () => {
      const url = bench.url(first)
      const before = promptCount()
      for (const [gateway, words] of [
        [honest({ measurements: ['11'.repeat(48)] }), 'gateway/measurement: measurement: '],
        [honest({ operatorKey: '22'.repeat(48) }), 'gateway/operator-key: id-key-digest: '],
        [honest({ outside: [] }), 'outside'],
        [honest({ simulatedRoot: null }), 'evidence'],
      ] as const) {
        await using endpoint = await endpointAt(url, gateway)
        for (const path of ['/v1/chat/completions', '/v1/messages']) {
          const { status, headers, text } = await endpoint.prompt(path)
          expect([status, headers.get('x-should-retry')]).toEqual([424, 'false'])
          expect(messageIn(text)).toMatch(
            /^Your prompt was not sent: the gateway at 127.0.0.1:\d+ did not prove what it has to: .*What to do: run strongroom-verify/,
          )
          expect(messageIn(text)).toContain(words)
          expect(JSON.parse(text).type ?? null).toBe(path === '/v1/messages' ? 'error' : null)
        }
      }
      expect(promptCount()).toBe(before)
    },
    testMs,
  )
})

describe('a host between', () => {
  // Goal: with its own authority's certificate and the real gateway's evidence, the host gets only the request for
  // evidence.
  test(
    'that ends TLS',
    async () => {
      await using proxy = await startProxy(
        () => bench.url(first),
        forwardTo(bench.caPem, () => bench.url(first)),
      )
      await using endpoint = await endpointAt(`https://127.0.0.1:${proxy.port}`)
      const { status, text } = await endpoint.prompt()
      expect([status, JSON.parse(text).error.code]).toEqual([424, 'gateway_not_verified'])
      expect(messageIn(text)).toContain('tls-binding')
      expect([...new Set(proxy.seen.map(({ path }) => path))]).toEqual(['/attestation', '/workload.json'])
      expect(JSON.stringify(proxy.seen)).not.toContain(canary)
      expect(proxy.seen.some(({ headers }) => headers.has('authorization'))).toBe(false)
    },
    testMs,
  )

  // Goal: stepping in on new connections after the gateway proved itself yields nothing, and the refusal names the
  // changed key.
  test(
    'that steps in later',
    async () => {
      await using relay = await startRelay(portOf(bench.url(first)))
      await using thief = await startRecorder(await newCertificate(), () => httpResponse('{}', [], '404 Not Found'))
      await using endpoint = await endpointAt(relay.url)
      expect((await endpoint.prompt()).status).toBe(200)
      relay.lead(thief.port)
      const { status, text } = await endpoint.prompt()
      expect([status, JSON.parse(text).error.code]).toEqual([424, 'gateway_key_changed'])
      expect(messageIn(text)).toStartWith('Your prompt was not sent: ')
      await until('the thief was met', 60_000, () => thief.handshakeCount() > 0)
      expect(thief.text()).not.toContain(canary)
      expect(thief.text()).not.toContain(key)
    },
    testMs,
  )

  // Goal: silence is no refusal for good: nothing is sent, and clients may try again.
  test(
    'that is silent',
    async () => {
      await using endpoint = await endpointAt('https://127.0.0.1:1')
      const { status, headers, text } = await endpoint.prompt()
      expect([status, headers.get('x-should-retry')]).toEqual([503, 'true'])
      expect(messageIn(text)).toStartWith('Your prompt was not sent: no evidence from 127.0.0.1:1')
    },
    testMs,
  )
})

/** Evidence from the real gateway, by its own authority. */
function forwardTo(ca: string, url: () => string) {
  return async (request: Request) => {
    const { pathname, search } = new URL(request.url)
    return await fetch(`${url()}${pathname}${search}`, { tls: { ca } })
  }
}

describe('an authority of the host', () => {
  // Goal: runtimes accept a certificate without a DNS name for any host, whatever names its issuer is held to. So no
  // authority of the host is in an instance's trust store, and the endpoint, where one counts because nothing vouches
  // for the gateway, refuses such a certificate.
  test(
    'vouches for no other name',
    async () => {
      const dir = mkdtempSync(join(tmpdir(), 'srt-name-'))
      try {
        const authority = await guestAuthority(dir)
        for (const san of ['email:a@b.test', 'URI:https://a.test/', null]) {
          await using server = await startRecorder(forge(dir, 'localhost', san), () => httpResponse('{}'))
          const url = `https://localhost:${server.port}`
          // The hole: with that authority, the runtime of the packaged agent, or Node, takes the server for localhost.
          if (san !== null) expect((await fetch(url, { tls: { ca: authority } })).status).toBe(200)
          expect(await nodeStatus(url, `${dir}/guest-ca/ca.pem`)).toBe('200')
          const unattested = { kind: 'unattested', why: 'host', ca: authority } as const
          for (const gateway of [unattested, honest()]) {
            await using endpoint = await startEndpoint({ baseUrl: `${url}/v1`, gateway, key })
            const { status, text } = await endpoint.prompt()
            expect(status).toBeGreaterThanOrEqual(424)
            expect(messageIn(text)).toStartWith('Your prompt was not sent: ')
          }
          expect(server.text()).not.toContain(canary)
          expect(server.text()).not.toContain(key)
        }
      } finally {
        rmSync(dir, { recursive: true })
      }
    },
    testMs,
  )

  // Goal: without evidence of the gateway its certificate still counts: the right name passes, by name or address;
  // another authority's fails.
  test(
    'vouches for the name of the gateway',
    async () => {
      await using server = await startRecorder(await newCertificate(), head =>
        httpResponse('{"ok":true}', ['content-type: application/json'], head.startsWith('POST') ? '200 OK' : '404 No'),
      )
      const { serverAuthority } = await import('../../../scripts/rigs/gateway/attested-gateway.ts')
      const gateway = { kind: 'unattested', why: 'host', ca: (await serverAuthority()).caPem } as const
      await using endpoint = await startEndpoint({ baseUrl: `${server.url}/api/v1`, gateway, key })
      expect(await endpoint.prompt()).toMatchObject({ status: 200, text: '{"ok":true}' })
      expect(server.text()).toContain('POST /api/v1/chat/completions HTTP/1.1')
      await using stranger = await startEndpoint({
        baseUrl: `${server.url}/v1`,
        gateway: { ...gateway, ca: bench.caPem },
      })
      const { status, text } = await stranger.prompt()
      expect([status, JSON.parse(text).error.code]).toEqual([424, 'gateway_certificate'])
    },
    testMs,
  )
})

async function guestAuthority(stateDir: string): Promise<string> {
  const names = [guestGatewayName]
  return (await openAuthority({ kind: 'guests', stateDir, names, nowMs: Date.now, random: systemRandom })).caPem
}

/**
 * A host's use of that authority's key: a leaf for a common name, with another kind of name in its subjectAltName.
 */
function forge(dir: string, name: string, san: string | null): { cert: string; key: string } {
  const at = (file: string) => join(dir, file)
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256']
  openssl('req', '-new', ...curve, '-nodes', '-keyout', at('k'), '-out', at('r'), '-subj', `/CN=${name}`)
  const usage = 'keyUsage=digitalSignature\nextendedKeyUsage=serverAuth\n'
  writeFileSync(at('e'), san === null ? usage : `subjectAltName=${san}\n${usage}`)
  const ca = ['-CA', at('guest-ca/ca.pem'), '-CAkey', at('guest-ca/ca.key')]
  openssl('x509', '-req', '-in', at('r'), ...ca, '-days', '2', '-out', at('c'), '-extfile', at('e'))
  return { cert: readFileSync(at('c'), 'utf8'), key: readFileSync(at('k'), 'utf8') }
}

function openssl(...argv: string[]): void {
  const { exitCode, stderr } = Bun.spawnSync(['openssl', ...argv], { stdin: 'ignore', timeout: 20_000 })
  if (exitCode !== 0) throw new Error(`openssl ${argv[0]}: ${stderr}`)
}

/** Node, configured with the authority as sessions of an instance were. */
async function nodeStatus(url: string, ca: string): Promise<string> {
  const program = `fetch(${JSON.stringify(url)}).then(r => console.log(r.status), e => console.log(String(e.cause)))`
  const child = Bun.spawn(['node', '-e', program], {
    env: { PATH: process.env.PATH ?? '', NODE_EXTRA_CA_CERTS: ca },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'inherit',
    timeout: 20_000,
  })
  return (await child.stdout.text()).trim()
}

describe('the owner', () => {
  // Goal: the owner's setting replaces the claim's from the next request on, parsed strictly; reset restores the
  // claim's.
  test(
    'says what the gateway has to prove',
    async () => {
      await using endpoint = await endpointAt(bench.url(first), honest({ measurements: ['11'.repeat(48)] }))
      const status = async () => (await endpoint.prompt()).status
      expect(await status()).toBe(424)
      const shown = await endpoint.command(['show'])
      expect(shown.text).toStartWith('from the claim:\n')
      const own = JSON.stringify(honest())
      expect(await endpoint.command(['set'], own)).toMatchObject({ exitCode: 0 })
      expect(await status()).toBe(200)
      expect((await endpoint.command(['show'])).text).toStartWith('from you, instead of the claim:\n')
      for (const [bad, words] of [
        ['', 'not valid JSON'],
        ['{}', 'your policy: '],
        [JSON.stringify({ ...honest(), more: 1 }), '/more'],
        [JSON.stringify({ kind: 'unattested', why: 'host', ca: null }), 'your policy: '],
        [JSON.stringify(honest({ operatorKey: '00'.repeat(48) })), 'operatorKey: zeros'],
        [JSON.stringify(honest({ simulatedRoot: 'x' })), 'simulatedRoot: not PEM'],
        [own.replace('{', '{"kind":"attested",'), 'twice'],
      ] as const) {
        const answer = await endpoint.command(['set'], bad)
        expect([answer.exitCode, answer.text]).toEqual([1, expect.stringContaining(words)])
      }
      expect(await status()).toBe(200)
      expect(await endpoint.command(['reset'])).toMatchObject({ exitCode: 0 })
      expect(await status()).toBe(424)
      expect((await endpoint.command(['more'])).exitCode).toBe(2)
    },
    testMs,
  )

  // Goal: where the claim says that nothing vouches for the gateway, the owner may want evidence nevertheless.
  test(
    'may want more than the claim',
    async () => {
      const gateway = { kind: 'unattested', why: 'host', ca: bench.caPem } as const
      await using endpoint = await startEndpoint({ baseUrl: `${bench.url(first)}/v1`, gateway, key })
      expect((await endpoint.prompt()).status).toBe(200)
      await endpoint.command(['set'], JSON.stringify(honest({ measurements: ['11'.repeat(48)] })))
      expect((await endpoint.prompt()).status).toBe(424)
    },
    testMs,
  )
})
