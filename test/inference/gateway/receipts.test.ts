// Receipts of responses: what they cover, where they stand, and who answered.

import { afterAll, describe, expect, test } from 'bun:test'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { splitResponse } from '../../../src/attest/receipt/response.ts'
import { verifyResponse } from '../../../src/attest/receipt/response-verify.ts'
import { fromBase64Url, utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createResponseSealer } from '../../../src/inference/attestation/response-sealer.ts'
import { readAllowlist } from '../../../src/verifier/allowlist.ts'
import { freshAgeMsMax, verifyGateway } from '../../../src/verifier/gateway.ts'
import { allPins } from '../../../src/verifier/pins.ts'
import { verifyGatewayResponse } from '../../../src/verifier/response.ts'
import { readSimulatedRoot } from '../../../src/verifier/simulated-root.ts'
import * as attestation from '../../rigs/gateway-attestation.ts'
import {
  chatBody,
  eachWithGateway,
  startGateway,
  startHostGateway,
  type TestGateway,
  target,
} from '../../rigs/gateway-server.ts'
import { needsHost } from '../../rigs/test-gateway.ts'
import { sendJson, startUpstream, type TestUpstream } from '../../rigs/upstream-server.ts'

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((freshUpstream, freshGateway) => {
  upstream = freshUpstream
  gateway = freshGateway
})
afterAll(attestation.clearRig)

const asked = { headers: { 'x-strongroom-receipt': '1' } }

/** Of a chat that asks for one: it stands where it should and is good for exactly what was asked and answered. Gives who is said to have answered. */
async function answeredBy(one: TestGateway, stream: boolean): Promise<string | undefined> {
  const answer = await one.chat({ stream }, asked)
  const bytes = new Uint8Array(await answer.arrayBuffer())
  const { body: response, receipt: inStream } = splitResponse(bytes)
  const beside = answer.headers.get('x-strongroom-receipt')
  expect([answer.status, inStream === null, beside === null]).toEqual([200, !stream, stream])
  const end = `: strongroom-receipt ${inStream}\n\ndata: [DONE]\n\n`
  if (stream) expect(new TextDecoder().decode(bytes).endsWith(end)).toBe(true)
  const question = { keys: await one.publicKeys(), response, upstream: 'any' } as const
  const verdictOn = (request: unknown) =>
    verifyResponse(inStream ?? beside ?? '', { ...question, request: utf8(JSON.stringify(request)) })
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
    await using one = await startGateway(upstreams)
    for (const stream of [false, true]) {
      const before = broken.seen.length
      expect(await answeredBy(one, stream)).toBe('second')
      expect(broken.seen.length).toBe(before + 1)
    }
  })

  test('goal: a gateway that makes one of every response is not to be asked for it', async () => {
    await using always = await startGateway([target(upstream.url)], { responseReceipts: 'always' })
    const answer = await always.chat()
    expect([answer.status, answer.headers.get('x-strongroom-receipt')]).toEqual([
      200,
      expect.stringMatching(/^[\w-]+$/),
    ])
    expect(await (await always.chat({ stream: true })).text()).toContain(': strongroom-receipt ')
  })

  const noReceiptKeys = needsHost('a gateway in a VM always has keys for receipts')
  test.skipIf(noReceiptKeys)(
    'goal: where none can be signed but one is due, the response is a 503, and no upstream is asked',
    async () => {
      const options = { host: { sealer: null } }
      await using one = startHostGateway([target(upstream.url)], options)
      await using always = startHostGateway([target(upstream.url)], { ...options, responseReceipts: 'always' })
      for (const answer of [await one.chat({}, asked), await always.chat()]) {
        expect(answer.status).toBe(503)
        expect(await answer.json()).toMatchObject({ error: { code: 'attestation_unavailable' } })
      }
      expect(upstream.seen).toEqual([])
    },
  )
})

/** The verdict of a relying party that pins everything. */
async function trustedGateway() {
  using rig = await attestation.openRig()
  const { rootFile, operatorKey, measurementOf } = await attestation.simulatedHost()
  const nonce = attestation.newNonce()
  const verdict = await verifyGateway(utf8((await rig.get(`?nonce=${nonce}`)).body), {
    ...{ nonce: fromBase64Url(nonce) ?? 'any', asOf: systemClock.nowMs(), ageMsMax: freshAgeMsMax, crl: undefined },
    ...{ roots: [readSimulatedRoot(await Bun.file(rootFile).bytes())], pins: allPins },
    policy: {
      ...strictPolicy(),
      measurements: [measurementOf(attestation.imageDigest)],
      idKeyDigest: operatorKey,
    },
    allowlist: readAllowlist(utf8(attestation.allowlistText)),
    tlsSpkiDigest: attestation.tlsSpkiDigest,
    configurationDigest: attestation.configurationDigest,
  })
  expect(verdict.checks.filter(one => one.outcome === 'fail')).toEqual([])
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
      ...{ keys: attestation.receiptKeys(), clock: systemClock },
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
      return [found.ok, found.checks.filter(one => one.outcome === 'fail').map(one => one.name), found.claim?.upstream]
    }
    for (const stream of [false, true])
      expect(await exchange(stream)).toEqual([false, ['response-upstream'], 'elsewhere'])
    other.behave = response => sendJson(response, 500, {})
    for (const stream of [false, true]) expect(await exchange(stream)).toEqual([true, [], 'built-in'])
  },
)
