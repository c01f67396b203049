// strongroom connect, attacked: by web pages, by strangers on the machine, and by what stands before the gateway.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { clearRig } from '../../../scripts/rigs/gateway/attestation.ts'
import {
  type AttestedGateway,
  attestedOptions,
  serverAuthority,
  startAttestedGateway,
} from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { KEY, MODEL } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { endpointLimits } from '../../../src/verifier/fetch/endpoint/endpoint.ts'
import { type Connected, type PolicyFiles, policyFiles, startConnect } from '../../rigs/connect/process.ts'
import { openSocket } from '../../rigs/gateway/socket.ts'
import { startProxy, startRelay } from '../../rigs/tls-peers.ts'

const testMs = 120_000
const canary = 'canary-of-the-prompt'

let upstream: TestUpstream
let gateway: AttestedGateway
let files: PolicyFiles
let options: string[]
let connected: Connected

beforeAll(async () => {
  upstream = await startUpstream()
  gateway = await startAttestedGateway(upstream)
  files = policyFiles()
  const { policy, allowlist, configuration, simulatedRoot } = await attestedOptions()
  const { caPem } = await serverAuthority()
  const { file } = files
  options = [
    ...['--policy', file('policy.json', JSON.stringify(policy)), '--allowlist', file('allowlist.json', allowlist)],
    ...['--configuration', file('configuration.json', configuration), '--ca', file('ca.pem', caPem)],
    ...['--trust-simulated-root', file('root.pem', simulatedRoot)],
  ]
  connected = await startConnect(gateway.url, options)
}, testMs)
afterAll(async () => {
  await connected[Symbol.asyncDispose]()
  files[Symbol.dispose]()
  await gateway[Symbol.asyncDispose]()
  await upstream.stop()
  clearRig()
})

const body = JSON.stringify({ model: MODEL, max_tokens: 16, messages: [{ role: 'user', content: canary }] })
const post = (of: Connected, changes: RequestInit = {}) =>
  fetch(`${of.origin}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
    body,
    ...changes,
  })

/** The response to these lines of a request; the server may close the connection first. */
function raw(lines: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = ''
    const socket = openSocket(connected.origin, () => {
      socket.write(`${lines.join('\r\n')}\r\nConnection: close\r\n\r\n`)
    })
    socket.on('data', bytes => {
      text += bytes
    })
    socket.on('close', () => resolve(text))
    socket.on('error', reject)
  })
}

// Goal: no page can use the endpoint, even with a key that it has: neither by its Origin, nor a plain read, nor after
// DNS rebinding; no preflight is granted. Nothing of it reaches the gateway.
test(
  'web pages',
  async () => {
    expect((await post(connected)).status).toBe(200)
    const before = gateway.seen.length
    const own = connected.origin
    const host = new URL(own).host
    const key = `Authorization: Bearer ${KEY}`
    const models = 'GET /v1/models HTTP/1.1'
    for (const lines of [
      [models, `Host: ${host}`, key, 'Origin: https://evil.example'],
      [models, `Host: ${host}`, key, 'Origin: null'],
      [models, `Host: ${host}`, key, `Origin: ${own}`],
      [models, `Host: ${host}`, key, 'Sec-Fetch-Site: cross-site', 'Sec-Fetch-Mode: no-cors'],
      [models, 'Host: evil.example', key],
      [models, 'Host: 127.0.0.1.evil.example', key],
      [models, 'Host: localhost.evil.example:80', key],
      [models, 'Host: 127.0.0.1@evil.example', key],
      ['GET http://127.0.0.1/v1/models HTTP/1.1', 'Host: evil.example', key],
      [
        'OPTIONS /v1/models HTTP/1.1',
        `Host: ${host}`,
        'Origin: https://evil.example',
        'Access-Control-Request-Method: POST',
      ],
      ['GET /v1/responses HTTP/1.1', `Host: ${host}`, 'Origin: https://evil.example', 'Upgrade: websocket'],
    ]) {
      const text = await raw(lines)
      expect([lines, text]).toEqual([lines, expect.stringMatching(/^HTTP\/1\.1 4(03|00) /)])
      expect(text.toLowerCase()).not.toContain('access-control-')
    }
    for (const name of [host, `localhost:${new URL(own).port}`, 'LOCALHOST', '127.0.0.1', '[::1]:80']) {
      expect(await raw([models, `Host: ${name}`, key])).toStartWith('HTTP/1.1 200 ')
    }
    const page = await post(connected, { headers: { origin: 'https://evil.example', authorization: `Bearer ${KEY}` } })
    const { error } = (await page.json()) as { error: { code: string; message: string } }
    expect([page.status, error.code, error.message]).toEqual([
      403,
      'web_page',
      'Your request was not sent: it has an Origin header, so a web page sent it. ' +
        'What to do: call from a program, not from a web page',
    ])
    expect(gateway.seen.slice(before)).toEqual(Array.from({ length: 5 }, () => 'GET /v1/models'))
  },
  testMs,
)

// Goal: a program of this machine without a key gets nothing from the gateway, and a body that is too large is not
// read to its end; others are served meanwhile.
test(
  'strangers of this machine',
  async () => {
    expect((await post(connected, { headers: {} })).status).toBe(401)
    const seen = gateway.seen.length
    const text = await raw([
      'POST /v1/chat/completions HTTP/1.1',
      'Host: localhost',
      `Content-Length: ${endpointLimits.bodyBytesMax + 1}`,
    ])
    expect(text).toStartWith('HTTP/1.1 413 ')
    expect(await raw(['GET /v1/models HTTP/1.1', 'Host: localhost', `X-Large: ${'x'.repeat(200_000)}`])).toMatch(
      /^(HTTP\/1\.1 4|$)/,
    )
    for (const path of ['/', '/attestation', '/metrics', '/v1/../metrics', '/v2/models']) {
      expect([path, (await fetch(`${connected.origin}${path}`)).status]).toEqual([path, 404])
    }
    expect(gateway.seen.length).toBe(seen)
    // Bodies that never end, from as many as may hold one at a time.
    const slow = [1, 2, 3].map(() => {
      const socket = openSocket(connected.origin, () => {
        socket.write('POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n')
      })
      socket.on('error', () => {})
      return socket
    })
    try {
      expect((await post(connected)).status).toBe(200)
      expect((await fetch(`${connected.origin}/health`)).status).toBe(200)
    } finally {
      for (const socket of slow) socket.destroy()
    }
  },
  testMs,
)

// Goal: a party that ends TLS with the attested key, as one on the gateway's own host can, reads no prompt and no
// response, and a byte that it changes reaches no client as an answer.
test(
  'an upstream that tampers',
  async () => {
    let tamper = (bytes: Uint8Array) => bytes
    await using proxy = await startProxy(
      () => gateway.url,
      async (request, forward) => {
        const response = await forward()
        if (!request.url.endsWith('/chat/completions')) return response
        return new Response(tamper(new Uint8Array(await response.arrayBuffer())), response)
      },
      { pair: gateway.pair },
    )
    await using relay = await startRelay(proxy.port)
    await using through = await startConnect(relay.url, options)
    const whole = await post(through)
    expect([whole.status, await whole.text()]).toEqual([200, expect.stringContaining('Grüße')])
    expect(proxy.seen.some(({ path }) => path === '/v1/chat/completions')).toBe(true)
    expect(proxy.seen.some(({ body: sent }) => sent.includes(canary))).toBe(false)
    for (const change of [
      (bytes: Uint8Array) => bytes.with(bytes.length - 1, (bytes.at(-1) ?? 0) ^ 1),
      (bytes: Uint8Array) => bytes.subarray(0, bytes.length - 8),
      () => new TextEncoder().encode('{"choices":[{"message":{"content":"forged"}}]}'),
    ]) {
      tamper = change
      const response = await post(through)
      const text = await response.text()
      expect([response.status, text]).toEqual([502, expect.stringMatching(/"code":"gateway_(encryption|connection)"/)])
      expect(text).not.toContain('forged')
    }
    tamper = bytes => bytes
    expect((await post(through)).status).toBe(200)
    expect(through.stderr()).not.toContain(canary)
  },
  testMs,
)
