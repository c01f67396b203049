// One nonce at the gateways of two hosts: the same image, operator, configuration and TLS certificate, a ledger of used
// nonces each. Each answers by the keys of its own process, and nothing of one answer stands for the other.

import { afterAll, expect, test } from 'bun:test'
import {
  clearRig,
  gatewayQuestion,
  newNonce,
  openRig,
  simulatedOrigin,
} from '../../../scripts/rigs/gateway/attestation.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import type { AttestationResponse } from '../../../src/contract/http/attestation.ts'
import { drawReceiptKeys } from '../../../src/inference/attestation/receipt-keys.ts'
import { verifyGateway } from '../../../src/verifier/verify-gateway.ts'

afterAll(clearRig)

const bytesOf = (document: object) => new TextEncoder().encode(JSON.stringify(document))

// Goal: an identity answers a nonce once. It is the keys of one process, which the hardware vouches for, and no two
// hosts have the same: so a nonce that another host has answered lets nobody pass an answer off as this one's.
test('a nonce is used once by each identity, and each host is one of its own', async () => {
  const origin = await simulatedOrigin()
  using east = await openRig({ origin, keys: drawReceiptKeys(systemRandom) })
  using west = await openRig({ origin, keys: drawReceiptKeys(systemRandom) })
  const nonce = newNonce()
  const question = await gatewayQuestion(nonce)
  const answers: AttestationResponse[] = []
  for (const host of [east, west]) {
    const { status, body } = await host.get(`?nonce=${nonce}`)
    expect(status).toBe(200)
    answers.push(JSON.parse(body))
    expect((await host.get(`?nonce=${nonce}`)).status).toBe(409)
  }
  const [ofEast, ofWest] = answers
  if (ofEast === undefined || ofWest === undefined) throw new Error('both have answered')
  const verdicts = await Promise.all(answers.map(answer => verifyGateway(bytesOf(answer), question)))
  expect(verdicts.map(({ ok }) => ok)).toEqual([true, true])
  // Every key differs, so whoever keeps the keys of one verdict takes nothing that the other host signs or opens.
  for (const name of ['ed25519', 'mldsa65', 'x25519', 'mlkem768'] as const) {
    const keys = verdicts.map(verdict => toHex(verdict.keys?.[name] ?? new Uint8Array()))
    expect(keys[0]?.length).toBeGreaterThan(0)
    expect(keys[0]).not.toBe(keys[1])
  }
  // Nor do parts of both make one answer, whichever part it is.
  for (let at = 0; at < ofEast.receipts.length; at += 1) {
    const mixed = ofEast.receipts.map((receipt, index) => (index === at ? (ofWest.receipts[at] ?? receipt) : receipt))
    const { ok, checks } = await verifyGateway(bytesOf({ ...ofEast, receipts: mixed }), question)
    expect([ok, checks.some(({ outcome }) => outcome === 'fail')]).toEqual([false, true])
  }
})
