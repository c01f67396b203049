// Encrypted bodies in a gateway VM: sealed to the keys of its attestation, metered like plain ones, streams padded.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { EnclaveBench } from '../../scripts/rigs/enclave/enclave.ts'
import { newNonce } from '../../scripts/rigs/gateway/attestation.ts'
import { openEncrypted } from '../../scripts/rigs/gateway/encrypted-client.ts'
import { startUpstream, type TestUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../scripts/rigs/until.ts'
import { sealRequest } from '../../src/attest/ehbp/seal-request.ts'
import { kemNames } from '../../src/attest/receipt/kem.ts'
import { fromBase64Url, toHex, utf8 } from '../../src/base/bytes.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { sumUsage } from '../../src/store/directory/usage/usage.query.ts'

const testMs = 120_000
let upstream: TestUpstream
beforeAll(async () => {
  upstream = await startUpstream()
})
afterAll(() => upstream.stop())

/** As a relying party finds them in the document that it verifies. */
async function attestedKeys(url: string, ca: string) {
  const response = await fetch(`${url}/attestation?nonce=${newNonce()}`, { tls: { ca } })
  const document = (await response.json()) as { receipts: { receipt: { keys: Record<string, string> } }[] }
  const keys = document.receipts.map(item => item.receipt.keys)
  const bytes = (name: string) => fromBase64Url(keys[0]?.[name] ?? '') ?? new Uint8Array(0)
  return { x25519: bytes('x25519'), mlkem768: bytes('mlkem768') }
}

test(
  'goal: what is encrypted to the attested keys is answered, encrypted, padded and booked',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const key = bench.addKey()
    const { vmId } = await bench.serve()
    const [url, tls] = [bench.url(vmId), { ca: bench.caPem }]
    const keys = await attestedKeys(url, bench.caPem)
    const config = await fetch(`${url}/.well-known/hpke-keys`, { tls })
    expect(toHex(new Uint8Array(await config.arrayBuffer()))).toContain(toHex(keys.x25519))
    for (const suite of kemNames) {
      for (const stream of [false, true]) {
        const text = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }], stream })
        const sealed = await sealRequest({ keys, suite, random: systemRandom }, utf8(text))
        const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...sealed.headers }
        const response = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body: sealed.body, tls })
        const plain = await (await openEncrypted(sealed, response)).text()
        expect([response.status, plain.includes('Grüße ')]).toEqual([200, true])
        expect(plain.includes('"obfuscation":"')).toBe(stream)
      }
    }
    const period = { organizationId: 'o1', startMs: 0, endMs: Number.MAX_SAFE_INTEGER }
    await until('all are booked', 60_000, () => sumUsage(bench.store.directory.db, period).requests === 4)
    expect(sumUsage(bench.store.directory.db, period)).toMatchObject({ promptTokens: 44n, completionTokens: 12n })
  },
  testMs,
)
