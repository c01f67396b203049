// Goal: of two upstreams for one model, only what the attested one answered verifies; a client sees the other's hand in every receipt.

import { afterAll, expect, test } from 'bun:test'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { fromBase64Url, utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createResponseSealer } from '../../../src/inference/attestation/response-sealer.ts'
import { readAllowlist } from '../../../src/verifier/allowlist.ts'
import { freshAgeMsMax, verifyGateway } from '../../../src/verifier/gateway.ts'
import { allPins } from '../../../src/verifier/pins.ts'
import { verifyGatewayResponse } from '../../../src/verifier/response.ts'
import { readSimulatedRoot } from '../../../src/verifier/simulated-root.ts'
import * as attestation from '../../rigs/gateway-attestation.ts'
import { chatBody, startGateway, target } from '../../rigs/gateway-server.ts'
import { sendJson, startUpstream } from '../../rigs/upstream-server.ts'

afterAll(attestation.clearRig)

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

test('goal: the same question, answered by the built-in worker, verifies; answered by another upstream, whole or streamed, it does not', async () => {
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
  await using gateway = startGateway(upstreams, { sealer, limits: { ejectFailures: 1000 } })
  const exchange = async (stream: boolean) => {
    const answer = await gateway.chat({ stream }, { headers: { 'x-strongroom-receipt': '1' } })
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
})
