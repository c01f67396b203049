// Receipts of responses: what they cover, where they stand, and who answered.

import { afterAll, describe, expect, test } from 'bun:test'
import * as attestation from '../../../scripts/rigs/gateway/attestation.ts'
import {
  CALLER,
  chatBody,
  eachWithGateway,
  KEY,
  startGateway,
  startHostGateway,
  type TestGateway,
  target,
} from '../../../scripts/rigs/gateway/server.ts'
import { needsHost } from '../../../scripts/rigs/gateway/test-gateway.ts'
import {
  delta,
  openSse,
  sendJson,
  sse,
  startUpstream,
  type TestUpstream,
} from '../../../scripts/rigs/gateway/upstream-server.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { readCarriedReceipt, readSalt, splitResponse } from '../../../src/attest/receipt/response-read.ts'
import { verifyResponse } from '../../../src/attest/receipt/response-verify.ts'
import { fromBase64Url, utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { TextCache } from '../../../src/base/work/text-cache.ts'
import { keptReceiptsDefault } from '../../../src/contract/vm/kept-defaults.ts'
import { createResponseSealer } from '../../../src/inference/attestation/response-sealer.ts'
import { readAllowlist } from '../../../src/verifier/allowlist.ts'
import { freshAgeMsMax } from '../../../src/verifier/gateway.ts'
import { allPins } from '../../../src/verifier/pins.ts'
import { verifyGatewayResponse } from '../../../src/verifier/response.ts'
import { readSimulatedRoot } from '../../../src/verifier/simulated-root.ts'
import { verifyGateway } from '../../../src/verifier/verify-gateway.ts'
import { upstreamIn } from '../../rigs/receipt-upstream.ts'

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((freshUpstream, freshGateway) => {
  upstream = freshUpstream
  gateway = freshGateway
})
afterAll(attestation.clearRig)

const asked = { headers: { 'x-strongroom-receipt': '1' } }

/**
 * Checks the receipt of a chat: it stands in its place and is valid for exactly this request and response. Returns the
 * upstream's name.
 */
async function answeredBy(gateway: TestGateway, stream: boolean): Promise<string | undefined> {
  const answer = await gateway.chat({ stream }, asked)
  const bytes = new Uint8Array(await answer.arrayBuffer())
  const { body: response, receipt: inStream } = splitResponse(bytes)
  const beside = answer.headers.get('x-strongroom-receipt')
  expect([answer.status, inStream === null, beside === null]).toEqual([200, !stream, stream])
  const end = `: strongroom-receipt ${inStream}\n\ndata: [DONE]\n\n`
  if (stream) expect(new TextDecoder().decode(bytes).endsWith(end)).toBe(true)
  const receipt = inStream ?? beside ?? ''
  const question = { keys: await gateway.publicKeys(), response, outside: [upstreamIn(receipt)] } as const
  const verdictOn = (request: unknown) =>
    verifyResponse(receipt, { ...question, request: utf8(JSON.stringify(request)) })
  const { ok, claim } = await verdictOn(chatBody({ stream }))
  expect([ok, (await verdictOn(chatBody({ stream, user: 'x' }))).ok]).toEqual([true, false])
  return claim?.upstream
}

describe('a receipt', () => {
  test('goal: it covers exactly the bytes that the client got without it, and stands right before [DONE] or in the header', async () => {
    for (const stream of [false, true]) {
      const plain = await gateway.chat({ stream })
      expect(plain.headers.has('x-strongroom-receipt') || (await plain.text()).includes('receipt')).toBe(false)
      expect(await answeredBy(gateway, stream)).toBe(target(upstream.url).name)
    }
  })

  test('goal: of two upstreams for one model it names the one that answered, after a failure of the other too', async () => {
    const broken = await startUpstream(response => sendJson(response, 500, {}))
    await using stop = new AsyncDisposableStack()
    stop.defer(broken.stop)
    const upstreams = [target(broken.url, { name: 'broken', weight: 1000 }), target(upstream.url, { name: 'second' })]
    await using gateway = await startGateway(upstreams)
    for (const stream of [false, true]) {
      const before = broken.seen.length
      expect(await answeredBy(gateway, stream)).toBe('second')
      expect(broken.seen.length).toBe(before + 1)
    }
  })

  test('goal: a gateway that makes one of every response is not to be asked for it', async () => {
    await using always = await startGateway([target(upstream.url)], { limits: { responseReceipts: 'always' } })
    const answer = await always.chat()
    expect([answer.status, answer.headers.get('x-strongroom-receipt')]).toEqual([
      200,
      expect.stringMatching(/^[\w-]+\.[\w-]{43}$/),
    ])
    expect(await (await always.chat({ stream: true })).text()).toContain(': strongroom-receipt ')
  })

  const noReceiptKeys = needsHost('a gateway in a VM always has keys for receipts')
  test.skipIf(noReceiptKeys)(
    'goal: where none can be signed but one is due, the response is a 503, and no upstream is asked',
    async () => {
      const options = { host: { sealer: null } }
      await using gateway = startHostGateway([target(upstream.url)], options)
      await using always = startHostGateway([target(upstream.url)], {
        ...options,
        limits: { responseReceipts: 'always' },
      })
      for (const answer of [await gateway.chat({}, asked), await always.chat()]) {
        expect(answer.status).toBe(503)
        expect(await answer.json()).toMatchObject({ error: { code: 'attestation_unavailable' } })
      }
      expect(upstream.seen).toEqual([])
    },
  )
})

describe('a kept receipt', () => {
  const toKeep = { headers: { 'x-strongroom-receipt': 'keep' } }
  const fetchReceipt = (id: string | null, from = gateway) =>
    fetch(`${from.url}/v1/receipts/${id}`, { headers: { authorization: `Bearer ${KEY}` } })

  test('goal: asked for by `keep` it is where a short header says, good for exactly the bytes that came, streamed or not', async () => {
    for (const stream of [false, true]) {
      const answer = await gateway.chat({ stream }, toKeep)
      const response = new Uint8Array(await answer.arrayBuffer())
      expect([answer.headers.get('x-strongroom-receipt'), splitResponse(response).receipt]).toEqual([null, null])
      const id = answer.headers.get('x-request-id')
      expect(answer.headers.get('x-strongroom-receipt-path')).toBe(`/v1/receipts/${id}`)
      const kept = await fetchReceipt(id)
      expect([kept.status, kept.headers.get('content-type')]).toEqual([200, 'text/plain; charset=us-ascii'])
      const receipt = await kept.text()
      const question = { keys: await gateway.publicKeys(), response, outside: [upstreamIn(receipt)] } as const
      const request = utf8(JSON.stringify(chatBody({ stream })))
      // A fetched receipt does not help to guess the text: only the response carried the salt.
      expect(receipt).not.toContain('.')
      const salt = readSalt(answer.headers.get('x-strongroom-receipt-salt') ?? '')
      const { ok, claim } = await verifyResponse(receipt, { ...question, request, salt })
      expect([ok, claim?.requestId]).toEqual([true, id ?? ''])
      const unsalted = await verifyResponse(receipt, { ...question, request })
      const failed = unsalted.checks.filter(check => check.outcome === 'fail').map(check => check.name)
      expect([unsalted.ok, failed]).toEqual([false, ['response-salt']])
    }
  })

  test('goal: one that came with its response is kept too, the very same; of a response without one nothing is', async () => {
    for (const stream of [false, true]) {
      const answer = await gateway.chat({ stream }, asked)
      const { receipt } = splitResponse(new Uint8Array(await answer.arrayBuffer()))
      expect(answer.headers.has('x-strongroom-receipt-path')).toBe(false)
      const kept = await fetchReceipt(answer.headers.get('x-request-id'))
      const carried = receipt ?? answer.headers.get('x-strongroom-receipt') ?? 'none'
      expect(await kept.text()).toBe(readCarriedReceipt(carried).receipt)
    }
    const plain = await gateway.chat()
    await plain.text()
    for (const id of [plain.headers.get('x-request-id'), '', '%', 'constructor', 'x'.repeat(4_000)]) {
      const none = await fetchReceipt(id)
      expect(none.status).toBe(404)
      expect(await none.json()).toMatchObject({ error: { code: 'not_found' } })
    }
  })

  test('goal: where every response has one, `keep` leaves the header away, too', async () => {
    await using always = await startGateway([target(upstream.url)], { limits: { responseReceipts: 'always' } })
    const answer = await always.chat({}, toKeep)
    const path = answer.headers.get('x-strongroom-receipt-path')
    expect([answer.status, answer.headers.has('x-strongroom-receipt')]).toEqual([200, false])
    const auth = { headers: { authorization: `Bearer ${KEY}` } }
    expect((await fetch(always.url + path, auth)).status).toBe(200)
  })

  const noOthers = needsHost('another key, and a time that passes, are made up')
  test.skipIf(noOthers)(
    'goal: another key, of the same organization too, gets the same 404 as for a request that never was, and so does everybody once it is too old',
    async () => {
      let keyDigest = CALLER.keyDigest
      let lateMs = 0
      const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + lateMs }
      const host = { authenticate: () => ({ ...CALLER, keyDigest }), clock }
      await using gateway = startHostGateway([target(upstream.url)], { host })
      const answer = await gateway.chat({}, toKeep)
      await answer.text()
      const id = answer.headers.get('x-request-id')
      const told = async (which: string | null) => {
        const { status, body } = await fetchReceipt(which, gateway).then(async got => ({
          status: got.status,
          body: await got.text(),
        }))
        return status === 200 ? status : body
      }
      const unknown = await told(crypto.randomUUID())
      // A key that the host mints under the same prefix has another secret.
      keyDigest = 'cd'.repeat(32)
      expect(await told(id)).toBe(unknown)
      keyDigest = CALLER.keyDigest
      expect(await told(id)).toBe(200)
      lateMs = keptReceiptsDefault.retentionMs + 1
      expect(await told(id)).toBe(unknown)
    },
  )

  test('goal: a stream that fails has none', async () => {
    upstream.behave = response => {
      openSse(response)
      response.write(sse(delta({ role: 'assistant', content: 'Hi' })))
      response.end()
    }
    const answer = await gateway.chat({ stream: true }, toKeep)
    expect(await answer.text()).toContain('"error"')
    expect((await fetchReceipt(answer.headers.get('x-request-id'))).status).toBe(404)
  })

  test('goal: a stream whose signature fails says so to its client, and the log says why', async () => {
    const finish = () => Promise.reject(new Error('no thread signs'))
    const sealer = { begin: () => ({ salt: new Uint8Array(32), seal: () => ({ update: () => {}, finish }) }) }
    await using gateway = startHostGateway([target(upstream.url)], { host: { sealer } })
    const answer = await gateway.chat({ stream: true }, asked)
    expect(await answer.text()).toContain('"code":"internal"')
    const id = answer.headers.get('x-request-id') ?? ''
    const lines = (await gateway.log()).filter(line => line.includes(id))
    expect(lines.filter(line => line.includes('no thread signs'))).toHaveLength(1)
  })

  test('goal: a word that the header has not is a 400 that names the header, before any upstream is asked', async () => {
    for (const word of ['0', 'yes', 'Keep', '1, 1', '']) {
      const answer = await gateway.chat({}, { headers: { 'x-strongroom-receipt': word } })
      expect([word, answer.status]).toEqual([word, 400])
      expect(await answer.json()).toMatchObject({ error: { code: 'invalid_request', param: 'x-strongroom-receipt' } })
    }
    expect(upstream.seen).toEqual([])
  })

  const noSetting = needsHost('what it keeps is given in place of its own')
  test.skipIf(noSetting)(
    'goal: a gateway that keeps none says so where one is to be kept, and gives it with the response as ever',
    async () => {
      const limits = { ...keptReceiptsDefault, retentionMs: 0 }
      const keptReceipts = new TextCache({ clock: systemClock, limits })
      await using gateway = startHostGateway([target(upstream.url)], { host: { keptReceipts } })
      expect(await (await gateway.chat({}, toKeep)).json()).toMatchObject({
        error: { message: expect.stringContaining('does not store receipts'), param: 'x-strongroom-receipt' },
      })
      const answer = await gateway.chat({}, asked)
      expect([answer.status, (await fetchReceipt(answer.headers.get('x-request-id'), gateway)).status]).toEqual([
        200, 404,
      ])
    },
  )
})

/** The verdict of a relying party that pins everything. */
async function trustedGateway() {
  using rig = await attestation.openRig()
  const { rootFile, operatorKey, measurementOf } = await attestation.simulatedHost()
  const nonce = attestation.newNonce()
  const verdict = await verifyGateway(utf8((await rig.get(`?nonce=${nonce}`)).body), {
    nonce: fromBase64Url(nonce) ?? 'any',
    asOf: systemClock.nowMs(),
    ageMsMax: freshAgeMsMax,
    crl: undefined,
    roots: [readSimulatedRoot(await Bun.file(rootFile).bytes())],
    pins: allPins,
    policy: {
      ...strictPolicy(),
      measurements: [measurementOf(attestation.imageDigest)],
      idKeyDigest: operatorKey,
    },
    allowlist: readAllowlist(utf8(attestation.allowlistText)),
    tlsSpkiDigest: attestation.tlsSpkiDigest,
    configurationDigest: attestation.configurationDigest,
  })
  expect(verdict.checks.filter(check => check.outcome === 'fail')).toEqual([])
  return verdict
}

const noTwo = needsHost(
  'in a VM nothing but its own worker is inside; test/enclave/receipts.slow.test.ts tells the two apart',
)
test.skipIf(noTwo)(
  'goal: the same question, answered by the built-in worker, verifies; answered by another upstream, whole or streamed, it does not',
  async () => {
    const trusted = await trustedGateway()
    const [worker, other] = [await startUpstream(), await startUpstream()]
    await using stop = new AsyncDisposableStack()
    stop.defer(worker.stop)
    stop.defer(other.stop)
    const upstreams = [
      target(worker.url, { name: 'built-in' }),
      // It gets every request for as long as it can answer.
      target(other.url, { name: 'elsewhere', weight: 1000 }),
    ]
    const sealer = createResponseSealer({
      keys: attestation.receiptKeys(),
      clock: systemClock,
      random: systemRandom,
      inside: new Set(['built-in']),
    })
    await using both = startHostGateway(upstreams, { host: { sealer }, limits: { ejectFailures: 1000 } })
    const exchange = async (stream: boolean) => {
      const answer = await both.chat({ stream }, asked)
      expect(answer.status).toBe(200)
      const found = await verifyGatewayResponse(
        {
          request: utf8(JSON.stringify(chatBody({ stream }))),
          response: new Uint8Array(await answer.arrayBuffer()),
          receipt: answer.headers.get('x-strongroom-receipt'),
        },
        trusted,
      )
      return [
        found.ok,
        found.checks.filter(check => check.outcome === 'fail').map(check => check.name),
        found.claim?.upstream,
      ]
    }
    for (const stream of [false, true])
      expect(await exchange(stream)).toEqual([false, ['response-upstream'], 'elsewhere'])
    other.behave = response => sendJson(response, 500, {})
    for (const stream of [false, true]) expect(await exchange(stream)).toEqual([true, [], 'built-in'])
  },
)
