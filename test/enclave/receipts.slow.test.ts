// Receipts of responses in a gateway VM: its own worker's responses are inside the measurement, an upstream's are not.
// And its metrics.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { EnclaveBench } from '../../scripts/rigs/enclave/enclave.ts'
import { newNonce } from '../../scripts/rigs/gateway/attestation.ts'
import { startUpstream, type TestUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../scripts/rigs/until.ts'
import { splitResponse } from '../../src/attest/receipt/response-read.ts'
import { verifyResponse } from '../../src/attest/receipt/response-verify.ts'
import { fromBase64Url, utf8 } from '../../src/base/bytes.ts'
import { metricsPieceCharsMax } from '../../src/contract/vm/enclave.ts'

const testMs = 120_000
let upstream: TestUpstream
beforeAll(async () => {
  upstream = await startUpstream()
})
afterAll(() => upstream.stop())

test(
  'goal: an answer of the built-in worker verifies as from inside, one of an upstream does not, whole and streamed, and both are signed',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const key = bench.addKey()
    const { vmId } = await bench.serve()
    const [url, tls] = [bench.url(vmId), { ca: bench.caPem }]
    const attestation = await fetch(`${url}/attestation?nonce=${newNonce()}`, { tls })
    const { receipts } = (await attestation.json()) as { receipts: { receipt: { keys: Record<string, string> } }[] }
    const bytes = (name: string) => fromBase64Url(receipts[0]?.receipt.keys[name] ?? '') ?? new Uint8Array(0)
    const keys = {
      ed25519: bytes('ed25519'),
      mldsa65: bytes('mldsa65'),
      x25519: bytes('x25519'),
      mlkem768: bytes('mlkem768'),
    }
    // The worker of these tests has no streams.
    for (const [model, stream, failed, name] of [
      ['w', false, ['response-key-maker'], 'built-in'],
      ['m', false, ['response-key-maker', 'response-upstream'], 'far'],
      ['m', true, ['response-key-maker', 'response-upstream'], 'far'],
    ] as const) {
      const request = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }], stream })
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-strongroom-receipt': '1' },
        body: request,
        tls,
      })
      const { body, receipt } = splitResponse(new Uint8Array(await response.arrayBuffer()))
      const text = receipt ?? response.headers.get('x-strongroom-receipt') ?? ''
      const question = { keys, request: utf8(request), response: body, outside: [] } as const
      const { claim, checks } = await verifyResponse(text, question)
      const bad = checks.filter(check => check.outcome !== 'pass').map(check => check.name)
      expect([model, stream, bad]).toEqual([model, stream, [...failed]])
      expect(claim?.upstream).toBe(name)
    }
  },
  testMs,
)

test(
  'goal: metrics of many models reach the host whole, longer than any message may be',
  async () => {
    const models = Array.from({ length: 40 }, (_, at) => `model-${at}`)
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url, models }] })
    const key = bench.addKey()
    const { vmId, session } = await bench.serve()
    for (const model of models) {
      const response = await fetch(`${bench.url(vmId)}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }] }),
        tls: { ca: bench.caPem },
      })
      expect(response.status).toBe(200)
    }
    const counted = () => session.metrics.match(/^strongroom_gateway_requests_total\{.*"model-\d+".*\} 1$/gm)?.length
    await until('all are counted', 60_000, () => counted() === models.length)
    expect(session.metrics.length).toBeGreaterThan(2 * metricsPieceCharsMax)
    expect(session.metrics).toMatch(/^strongroom_gateway_requests_running 0$/m)
    expect(session.metrics.split('\n').every(line => /^(?:#.*|\w+(?:\{.*\})? \S+)?$/.test(line))).toBe(true)
  },
  testMs,
)
