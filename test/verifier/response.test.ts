// Goal: a response is trusted only with a receipt for exactly its bytes, by the keys of an attestation that is trusted
// itself.

import { afterAll, expect, test } from 'bun:test'
import {
  clearRig,
  newNonce,
  openRig,
  receiptKeys,
  simulatedHost,
  tlsSpkiDigest,
} from '../../scripts/rigs/gateway/attestation.ts'
import { AMD_ROOTS } from '../../src/attest/amd/roots.ts'
import { strictPolicy } from '../../src/attest/policy/policy.ts'
import { carriedReceipt, receiptComment } from '../../src/attest/receipt/response.ts'
import { fromBase64Url, utf8 } from '../../src/base/bytes.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { makeReceiptKeys } from '../../src/inference/attestation/receipt-keys.ts'
import { createResponseSealer } from '../../src/inference/attestation/response-sealer.ts'
import { freshAgeMsMax, type GatewayQuestion } from '../../src/verifier/gateway.ts'
import { allPins } from '../../src/verifier/pins.ts'
import { verifyGatewayResponse } from '../../src/verifier/response.ts'
import { readSimulatedRoot } from '../../src/verifier/simulated-root.ts'
import { verifyGateway } from '../../src/verifier/verify-gateway.ts'

afterAll(clearRig)

const rig = await openRig()
afterAll(() => rig[Symbol.dispose]())
const nonce = newNonce()
const document = utf8((await rig.get(`?nonce=${nonce}`)).body)
const root = readSimulatedRoot(await Bun.file((await simulatedHost()).rootFile).bytes())
const question: GatewayQuestion = {
  nonce: fromBase64Url(nonce) ?? 'any',
  asOf: systemClock.nowMs(),
  ageMsMax: freshAgeMsMax,
  roots: [root],
  policy: strictPolicy(),
  pins: { ...allPins, measurement: 'any', allowlist: 'any' },
  crl: undefined,
  allowlist: 'any',
  tlsSpkiDigest,
  configurationDigest: 'any',
}
const trusted = await verifyGateway(document, question)
const request = utf8('{"model":"tiny"}')
const response = utf8('{"id":"req_1"}')
const [first, end] = ['data: {"n":1}\n\n', 'data: [DONE]\n\n']

async function seal(
  body: Uint8Array,
  { keys = receiptKeys(), upstream = 'built-in', attested = new Set<string>() } = {},
): Promise<string> {
  const by = { clock: systemClock, random: systemRandom, inside: new Set(['built-in']), attested }
  const sealer = createResponseSealer({ keys, ...by })
  const { salt, seal } = sealer.begin({ id: 'req_1', model: 'tiny', body: request, keyMadeBy: 'client', owner: 'o1' })
  const sealing = seal(upstream)
  sealing.update(body)
  return carriedReceipt(await sealing.finish({ prompt: 3, completion: 4 }), salt)
}

const failuresOf = (found: Awaited<ReturnType<typeof verifyGatewayResponse>>) => [
  found.ok,
  found.checks.filter(check => check.outcome === 'fail').map(check => check.name),
]

test('goal: a receipt beside the response and one inside a stream are both good', async () => {
  const stream = await seal(utf8(first + end))
  const inStream = utf8(first + receiptComment(stream) + end)
  for (const exchange of [
    { request, response, receipt: await seal(response) },
    { request, response: inStream, receipt: null },
    { request, response: inStream, receipt: stream },
  ]) {
    const found = await verifyGatewayResponse(exchange, trusted)
    expect(failuresOf(found)).toEqual([true, []])
    const where = exchange.response === inStream ? 'in the stream, right before its end' : 'beside the response'
    expect(found.checks.find(({ name }) => name === 'response-receipt')?.reason).toBe(where)
    expect(found).toMatchObject({
      simulated: true,
      claim: { requestId: 'req_1', promptTokens: 3, completionTokens: 4 },
    })
    // The attestation's checks come first, so that one list tells all.
    expect(found.checks.slice(0, trusted.checks.length)).toEqual([...trusted.checks])
  }
})

test('goal: no receipt, two that differ, one of other keys or of other bytes is not good', async () => {
  const receipt = await seal(response)
  const inStream = utf8(first + receiptComment(await seal(utf8(first + end))) + end)
  const cases = [
    [{ request, response, receipt: null }, ['response-receipt']],
    [{ request, response: inStream, receipt }, ['response-receipt']],
    [{ request, response: utf8('{"id":"req_2"}'), receipt }, ['response-answer']],
    [{ request: response, response, receipt }, ['response-request']],
    [
      { request, response, receipt: await seal(response, { keys: makeReceiptKeys(systemRandom) }) },
      ['response-keys', 'response-signature-ed25519', 'response-signature-mldsa65'],
    ],
  ] as const
  for (const [exchange, failed] of cases) {
    expect(failuresOf(await verifyGatewayResponse(exchange, trusted))).toEqual([false, [...failed]])
  }
  const reasonOf = async (exchange: Parameters<typeof verifyGatewayResponse>[0], attestation = trusted) =>
    (await verifyGatewayResponse(exchange, attestation)).checks.find(({ name }) => name === 'response-receipt')?.reason
  expect(await reasonOf({ request, response, receipt: null })).toBe(
    'there is no receipt: none in the response, and none was given beside it',
  )
  expect(await reasonOf({ request, response: inStream, receipt })).toBe(
    'the receipt in the response differs from the one that was given beside it',
  )
  expect(await reasonOf({ request, response, receipt }, { ...trusted, keys: null })).toBe(
    'the attestation has no keys to verify the receipt with',
  )
})

test('goal: an answer from outside is not good, however well it is signed, and the caller has to allow the upstream by its name', async () => {
  const outside = { request, response, receipt: await seal(response, { upstream: 'other' }) }
  expect(failuresOf(await verifyGatewayResponse(outside, trusted))).toEqual([false, ['response-upstream']])
  const accepted = await verifyGatewayResponse(outside, trusted, { outside: ['other'] })
  expect(failuresOf(accepted)).toEqual([true, []])
  expect(accepted.claim).toMatchObject({ upstream: 'other', coverage: 'outside' })
  // Other values, possible in JavaScript, waive nothing.
  for (const said of ['any', 'other', true, undefined, [], ['another']] as unknown as string[][]) {
    expect((await verifyGatewayResponse(outside, trusted, { outside: said })).ok).toBe(false)
  }
})

test('goal: a receipt that claims evidence of an upstream holds only where workload.json asks that upstream for it', async () => {
  const receipt = await seal(response, { upstream: 'far', attested: new Set(['far']) })
  const attestation = { kind: 'snp', policy: '{}', path: '/a', intervalMs: 1 } as const
  const workloadOf = (upstreams: readonly object[]) => ({ upstreams }) as unknown as typeof trusted.workload
  const judge = async (workload: typeof trusted.workload) => {
    const found = await verifyGatewayResponse(
      { request, response, receipt },
      { ...trusted, workload },
      { outside: ['far'] },
    )
    const { outcome, reason } = found.checks.find(({ name }) => name === 'response-upstream') ?? {}
    return [found.ok, outcome, reason]
  }
  const policyDigest = new Bun.CryptoHasher('sha256').update('{}').digest('hex')
  expect(await judge(workloadOf([{ name: 'a' }, { name: 'far', attestation }]))).toEqual([
    ...[true, 'not-checked', expect.stringContaining(`attested by snp under policy ${policyDigest}`)],
  ])
  expect((await judge(workloadOf([{ name: 'a', attestation }, { name: 'far' }]))).slice(0, 2)).toEqual([false, 'fail'])
})

test('goal: a good receipt makes no untrusted or unreadable attestation good', async () => {
  const exchange = { request, response, receipt: await seal(response) }
  const untrusted = await verifyGateway(document, { ...question, roots: AMD_ROOTS })
  const [ok, failed] = failuresOf(await verifyGatewayResponse(exchange, untrusted))
  expect([ok, failed]).toEqual([false, expect.arrayContaining(['gateway/evidence'])])
  const unreadable = await verifyGateway(utf8('{}'), question)
  expect(failuresOf(await verifyGatewayResponse(exchange, unreadable))).toEqual([
    false,
    ['attestation-format', 'response-receipt'],
  ])
})
