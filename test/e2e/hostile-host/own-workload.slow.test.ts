// A host that has the operator key, as every host has, launches the measured gateway with its own workload.json:
// another model under a known name. ID blocks do not cover HOST_DATA, so measurement and operator key are those that
// clients pin.

import { afterAll, describe, expect, test } from 'bun:test'
import { EnclaveBench } from '../../../scripts/rigs/enclave/enclave.ts'
import { launchMeasurement } from '../../../scripts/rigs/enclave/workload.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { fromHex, toBase64Url, utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { plainVerdict } from '../../../src/client/verdict/plain.ts'
import { gatewayWords } from '../../../src/client/verify/gateway-facts.ts'
import { spkiDigestOf } from '../../../src/linux/keys/spki.ts'
import { getOverTls } from '../../../src/linux/net/tls-get.ts'
import { paintFor } from '../../../src/terminal/render.ts'
import { allPins } from '../../../src/verifier/pins.ts'
import { verifyGateway } from '../../../src/verifier/verify-gateway.ts'

/** All of its workload.json is the host's choice: the model, its bounds, the control key. */
const bench = await EnclaveBench.start({ gateway: { padStreams: 'off' } })
afterAll(() => bench[Symbol.asyncDispose]())
const { vmId } = await bench.serve()

// Goal: a PASS by measurement and operator key alone says which model answers, or is none.
describe('a PASS by measurement and operator key alone says which model answers, or is none', () => {
  test('the weights behind the name of the model', async () => {
    const nonce = systemRandom(32)
    const { body, certificate } = await getOverTls({
      url: new URL(`/attestation?nonce=${toBase64Url(nonce)}`, bench.url(vmId)),
      ca: bench.caPem,
      timeoutMs: 30_000,
      bodyBytesMax: 1_048_576,
    })
    const measurements = [fromHex(launchMeasurement) ?? new Uint8Array(0)]
    const found = await verifyGateway(body, {
      nonce,
      asOf: systemClock.nowMs(),
      ageMsMax: 60_000,
      roots: [bench.host.root],
      policy: { ...strictPolicy(), measurements, idKeyDigest: bench.host.operatorKey },
      pins: { ...allPins, tcb: 'any', crl: 'any' },
      crl: undefined,
      allowlist: 'any',
      configurationDigest: 'any',
      // As it was served.
      tlsSpkiDigest: spkiDigestOf(certificate),
      workload: utf8(bench.workloadText),
    })
    const words = { found, checks: found.checks, argv: [], sources: [], outside: [], allow: [] }
    const text = plainVerdict(found, gatewayWords(words, null), { verbose: false, paint: paintFor(false) })
    const model = bench.workload.worker?.disk.fileSha256 ?? ''
    expect([found.ok ? 'PASS' : 'FAIL', text.includes(model), text]).not.toEqual(['PASS', false, text])
  })
})
