// Any change of a gateway's answer, or of an expectation, gives a bad verdict that names the fault.

import { afterAll, describe, expect, test } from 'bun:test'
import {
  allowlistText,
  clearRig,
  gatewayQuestion,
  newNonce,
  openRig,
  openSample,
} from '../../scripts/rigs/gateway/attestation.ts'
import { AMD_ROOTS } from '../../src/attest/amd/roots.ts'
import { strictPolicy } from '../../src/attest/policy/policy.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { ATTESTED_WORKLOADS } from '../../src/contract/http/attestation.ts'
import { makeReceiptKeys } from '../../src/inference/attestation/receipt-keys.ts'
import { readAllowlist } from '../../src/verifier/allowlist.ts'
import type { GatewayQuestion } from '../../src/verifier/gateway.ts'
import { verifyGateway } from '../../src/verifier/verify-gateway.ts'

afterAll(clearRig)

const sample = await openSample()
afterAll(() => sample[Symbol.dispose]())
const { nonce, origin, answer } = sample

async function failuresOf(body: string, changes: Partial<GatewayQuestion> = {}): Promise<string[]> {
  const verdict = await verifyGateway(new TextEncoder().encode(body), await gatewayQuestion(nonce, changes))
  const bad = verdict.checks.filter(check => check.outcome !== 'pass').map(check => check.name)
  expect(verdict.ok).toBe(bad.length === 0)
  return bad
}

describe('the answer', () => {
  test('is nothing without trust in the simulated root', async () => {
    // Goal: AMD's roots alone accept no receipt of a simulated platform.
    const bad = await failuresOf(answer, { roots: AMD_ROOTS })
    expect(bad).toEqual(ATTESTED_WORKLOADS.map(name => `${name}/evidence`))
  })

  const other = new Uint8Array(32).fill(1)
  const everywhere = (group: string) => ATTESTED_WORKLOADS.map(name => `${name}/${group}`)
  // Goal: each expectation is really compared: another value fails its own line.
  test.each([
    [{ nonce: other }, ['attestation-nonce']],
    [{ tlsSpkiDigest: other }, ['tls-binding']],
    [{ configurationDigest: other }, ['gateway-configuration']],
    [{ asOf: systemClock.nowMs() + 3_600_000 }, everywhere('nonce')],
    [{ policy: { ...strictPolicy(), measurements: [new Uint8Array(48)], idKeyDigest: 'any' as const } }, undefined],
    [{ policy: { ...strictPolicy(), idKeyDigest: new Uint8Array(48) } }, undefined],
  ])('%#', async (changes, expected) => {
    const bad = await failuresOf(answer, changes)
    if (expected !== undefined) expect(bad).toEqual(expected)
    else expect(bad).toEqual(expect.arrayContaining(everywhere('evidence')))
  })

  test('is of one gateway', async () => {
    // Goal: a good receipt of another process of the same image, over the same nonce, does not complete somebody else's
    // five.
    using other = await openRig({ origin, keys: makeReceiptKeys(systemRandom) })
    const foreign: Document = JSON.parse((await other.get(`?nonce=${nonce}`)).body)
    const document: Document = JSON.parse(answer)
    document.receipts.splice(4, 1, ...foreign.receipts.slice(4))
    expect(await failuresOf(JSON.stringify(foreign))).toEqual([])
    expect(await failuresOf(JSON.stringify(document))).toEqual(['attestation-together'])
  })

  test('fails its allowlist lines for another allowlist', async () => {
    // Goal: another file has another digest, and an image or command that is not in it is not admitted.
    const changed = allowlistText.replace('--part=2', '--part=7')
    const bad = await failuresOf(answer, { allowlist: readAllowlist(new TextEncoder().encode(changed)) })
    expect(bad).toEqual(expect.arrayContaining([...everywhere('allowlist'), 'inference-worker/admission']))
    expect(bad).toHaveLength(6)
  })

  // Goal: whatever is changed in the answer on its way, the verdict is bad.
  test.each([
    ['two entries swapped', (document: Document) => document.receipts.reverse()],
    ['one entry left out', (document: Document) => document.receipts.pop()],
    ['another nonce', (document: Document) => Object.assign(document, { nonce: newNonce() })],
    ['a field more', (document: Document) => Object.assign(document, { operationalstatus: 'verified' })],
    ['two receipts exchanged', exchange],
    ['a flipped statement', (document: Document) => flip(document, receipt => [receipt, 'statement'])],
    ['a flipped report', (document: Document) => flip(document, receipt => [receipt.evidence, 'report'])],
    ['a flipped signature', (document: Document) => flip(document, receipt => [receipt.signatures, 'mldsa65'])],
    ['a flipped Ed25519 signature', (document: Document) => flip(document, receipt => [receipt.signatures, 'ed25519'])],
    ['another KEM key', (document: Document) => flip(document, receipt => [receipt.keys, 'mlkem768'])],
    [
      'platform snp',
      (document: Document) => document.receipts.map(item => Object.assign(item.receipt, { platform: 'snp' })),
    ],
  ] as [string, (document: Document) => unknown][])('%s', async (_, change) => {
    const document = JSON.parse(answer)
    change(document)
    expect(await failuresOf(JSON.stringify(document))).not.toEqual([])
  })
})

type Texts = Record<string, string>
type Receipt = { platform: string; statement: string; keys: Texts; signatures: Texts; evidence: Texts }
type Document = { nonce: string; receipts: { target: string; workload: string; receipt: Receipt }[] }

function exchange(document: Document): void {
  const [first, second] = document.receipts
  if (first && second) [first.receipt, second.receipt] = [second.receipt, first.receipt]
}

/** Changes one character in the middle of the last receipt's field. */
function flip(document: Document, find: (receipt: Receipt) => [object, string]): void {
  const receipt = document.receipts.at(-1)?.receipt
  if (receipt === undefined) return
  const [holder, name] = find(receipt)
  const text = String(Reflect.get(holder, name))
  const at = Math.floor(text.length / 2)
  Reflect.set(holder, name, `${text.slice(0, at)}${text[at] === 'A' ? 'B' : 'A'}${text.slice(at + 1)}`)
}
