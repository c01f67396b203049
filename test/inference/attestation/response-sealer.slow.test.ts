// Sealed answers: what the sealer signs verifies, and nothing that differs by one bit does.

import { describe, expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { receiptKeys } from '../../../scripts/rigs/gateway/attestation.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { keysDigest } from '../../../src/attest/receipt/public-keys.ts'
import { carriedReceipt, receiptComment } from '../../../src/attest/receipt/response.ts'
import { decodeResponseReceipt, readCarriedReceipt, splitResponse } from '../../../src/attest/receipt/response-read.ts'
import { verifyResponse } from '../../../src/attest/receipt/response-verify.ts'
import { nativeVerifiers } from '../../../src/attest/receipt/verifiers.ts'
import { fromBase64Url, toBase64Url, utf8 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { makeReceiptKeys } from '../../../src/inference/attestation/receipt-keys.ts'
import { createResponseSealer, unsignedMax } from '../../../src/inference/attestation/response-sealer.ts'
import { decodeCarried } from '../../rigs/receipt-upstream.ts'

const clock = createManualClock()
const keys = receiptKeys()
const { publicKeys } = keys
/** The same for each receipt, so that they can be compared. */
const salt = new Uint8Array(32).fill(7)
const sealer = createResponseSealer({ keys, clock, random: () => salt, inside: new Set(['built-in']) })
const request = utf8('{"model":"tiny","messages":[{"role":"user","content":"é"}],"stream":true}')
const asked = { id: 'req_1', model: 'tiny', body: request, keyMadeBy: 'client', owner: 'o1' } as const
const events = ['data: {"n":1}\n\n', 'data: {"n":2,"text":"ü"}\n\n', 'data: [DONE]\n\n']
const answer = utf8(events.join(''))

async function sealed(parts: readonly Uint8Array[], upstream = 'built-in'): Promise<string> {
  const { seal } = sealer.begin(asked)
  const item = seal(upstream)
  for (const part of parts) item.update(part)
  return carriedReceipt(await item.finish({ prompt: 7, completion: 11 }), salt)
}

const receipt = await sealed(events.map(utf8))
const natively = { verifiers: nativeVerifiers }

async function failed(text: string, changes: Partial<Parameters<typeof verifyResponse>[1]> = {}): Promise<string[]> {
  const question = { keys: publicKeys, request, response: answer, outside: [] as const, ...natively, ...changes }
  const verdict = await verifyResponse(text, question)
  const bad = verdict.checks.filter(check => check.outcome === 'fail').map(check => check.name)
  expect(verdict.ok).toBe(bad.length === 0)
  return bad
}

function flipped(bytes: Uint8Array, at: number, bit = at % 8): Uint8Array {
  return bytes.map((byte, i) => (i === at ? byte ^ (1 << bit) : byte))
}

test('goal: the receipt names the maker of the key that asked, and a key of the host spoils no verdict', async () => {
  const judged = async (keyMadeBy: 'client' | 'host') => {
    const item = sealer.begin({ ...asked, keyMadeBy }).seal('built-in')
    item.update(answer)
    const text = carriedReceipt(await item.finish({ prompt: 7, completion: 11 }), salt)
    const question = { keys: publicKeys, request, response: answer, outside: [] }
    const { ok, claim, checks } = await verifyResponse(text, question)
    const { outcome, reason, required } = checks.find(check => check.name === 'response-key-maker') ?? {}
    return [ok, claim?.keyMadeBy, outcome, required, reason]
  }
  expect(await judged('client')).toEqual([
    ...[true, 'client', 'pass', true],
    'the gateway has only a digest of your key, which its host registered; if you made that key yourself, the host cannot act as you',
  ])
  expect(await judged('host')).toEqual([
    ...[true, 'host', 'not-checked', false],
    'the host minted the key that asked, so it can act as you; `strongroom gateway key new` makes a key that it never sees',
  ])
})

describe('a good receipt', () => {
  test('verifies, natively and in JavaScript, and says what was answered', async () => {
    // Goal: both implementations of both halves agree, and the claim carries id, model, usage, time and keys.
    expect(await failed(receipt)).toEqual([])
    const { checks, claim, ok } = await verifyResponse(receipt, {
      keys: publicKeys,
      request,
      response: answer,
      outside: [],
    })
    expect([ok, checks.length, checks.every(check => check.outcome === 'pass')]).toEqual([true, 10, true])
    expect(claim).toMatchObject({
      requestId: 'req_1',
      model: 'tiny',
      upstream: 'built-in',
      coverage: 'inside',
      promptTokens: 7,
      completionTokens: 11,
      eventCount: 3,
      sizeBytes: answer.length,
      issuedAt: clock.nowMs(),
      keysDigest: keysDigest(publicKeys),
    })
  })

  test('is the same however the answer was cut', async () => {
    // Goal: a verifier who has the bytes alone comes to the same chain, wherever chunks ended.
    for (let at = 0; at <= answer.length; at += 1) {
      const { claim } = decodeCarried(await sealed([answer.subarray(0, at), new Uint8Array(0), answer.subarray(at)]))
      expect([at, claim.eventCount, claim.answerDigest]).toEqual([at, 3, decodeCarried(receipt).claim.answerDigest])
    }
  })

  test('stands in a stream right before its end', async () => {
    // Goal: what a client has saved of a stream verifies as it is.
    const [first = '', second = '', end = ''] = events
    const saved = utf8(`${first}${second}${receiptComment(receipt)}${end}`)
    const split = splitResponse(saved)
    expect(split.receipt).toBe(receipt)
    expect(await failed(split.receipt ?? '', { response: split.body })).toEqual([])
  })

  test('an empty answer has one too', async () => {
    // Goal: zero bytes are zero events.
    expect(await failed(await sealed([]), { response: new Uint8Array(0) })).toEqual([])
    expect(await failed(await sealed([]), { response: utf8('\n') })).toEqual(['response-size', 'response-answer'])
  })
})

describe('who answered', () => {
  test('goal: an answer from outside fails by its own check alone, and passes only where its name is allowed, in words', async () => {
    const outside = await sealed(events.map(utf8), 'other')
    expect(await failed(outside)).toEqual(['response-upstream'])
    for (const said of ['any', 'other', undefined, true, ['another']] as unknown as string[][]) {
      expect(await failed(outside, { outside: said })).toEqual(['response-upstream'])
    }
    expect(await failed(outside, { outside: ['other'] })).toEqual([])
    const said = async (text: string, allowed: string[]) => {
      const { checks } = await verifyResponse(text, { keys: publicKeys, request, response: answer, outside: allowed })
      const { outcome, reason, required } = checks.find(check => check.name === 'response-upstream') ?? {}
      return [outcome, reason, required]
    }
    expect(await said(outside, [])).toEqual([
      'fail',
      'upstream "other" answered, OUTSIDE what the attestation covers: nothing attests it; allow it by outside: ["other"]',
      true,
    ])
    expect(await said(outside, ['other'])).toEqual([
      'not-checked',
      'accepted upstream "other", OUTSIDE what the attestation covers: the caller allowed its name',
      false,
    ])
    const inside = ['pass', 'upstream "built-in" answered, inside what the attestation covers', true]
    expect(await said(receipt, [])).toEqual(inside)
    expect(await said(receipt, ['other'])).toEqual(inside)
  })

  test('goal: without the salt of its response a receipt is no test for a guess, and with another salt it fails', async () => {
    const bare = readCarriedReceipt(receipt).receipt
    expect(await failed(bare)).toEqual(['response-salt'])
    expect(await failed(bare, { salt })).toEqual([])
    expect(await failed(bare, { salt: new Uint8Array(32) })).toEqual(['response-request', 'response-answer'])
    for (const wrong of [new Uint8Array(32), new Uint8Array(31), new Uint8Array(0)]) {
      expect(await failed(receipt, { salt: wrong })).toEqual(['response-salt'])
    }
    for (const text of [`${bare}.`, `${bare}.AAAA`, `${receipt}.AAAA`, `${bare}.${'A'.repeat(4096)}`]) {
      expect(await failed(text)).toEqual(['response-format'])
    }
  })

  test('goal: two receipts of one exchange have no digest in common, so that none tells what another one was about', async () => {
    const salted = createResponseSealer({ keys, clock, random: systemRandom, inside: new Set() })
    const claimOf = async () => {
      const sealing = salted.begin(asked).seal('built-in')
      sealing.update(answer)
      return decodeResponseReceipt(await sealing.finish({ prompt: 7, completion: 11 })).claim
    }
    const [item, two] = [await claimOf(), await claimOf()]
    expect(item?.requestDigest).not.toEqual(two?.requestDigest)
    expect(item?.answerDigest).not.toEqual(two?.answerDigest)
  })

  test('goal: one request that two upstreams were asked has a receipt about the one that answered, from its own bytes', async () => {
    const { seal: begun } = sealer.begin(asked)
    begun('built-in').update(utf8('half of an ans'))
    const second = begun('other')
    second.update(answer)
    const { claim } = decodeResponseReceipt(await second.finish({ prompt: 7, completion: 11 }))
    expect([claim.upstream, claim.coverage, claim.sizeBytes]).toEqual(['other', 'outside', answer.length])
  })

  test('goal: signatures are made beside the thread that serves, organizations in turn, and one with too many is refused before an upstream is asked', async () => {
    const order: string[] = []
    const held: (() => void)[] = []
    const slow = {
      ...keys,
      sign: async (message: Uint8Array) => {
        await new Promise<void>(resolve => held.push(resolve))
        return keys.sign(message)
      },
    }
    const queued = createResponseSealer({ keys: slow, clock, random: systemRandom, inside: new Set() })
    const finish = (owner: string) =>
      queued
        .begin({ ...asked, owner })
        .seal('built-in')
        .finish({ prompt: 7, completion: 11 })
        .then(() => order.push(owner))
    const many = Array.from({ length: unsignedMax }, () => finish('many'))
    const few = finish('few')
    const refusal = () => {
      try {
        queued.begin({ ...asked, owner: 'many' })
        return ''
      } catch (error) {
        return String(error)
      }
    }
    await until('as many wait as may', 60_000, () => refusal() !== '')
    expect(refusal()).toContain('wait for their receipts to be signed')
    for (let at = 0; at < 3; at += 1) {
      await until('a signature is being made', 60_000, () => held.length === 1)
      held.pop()?.()
      await until('it is made', 60_000, () => order.length === at + 1)
    }
    await few
    expect(order.indexOf('few')).toBeLessThan(2)
    const rest = setInterval(() => held.pop()?.(), 0)
    await Promise.all(many)
    clearInterval(rest)
    expect(queued.begin({ ...asked, owner: 'many' })).toBeDefined()
  }, 60_000)
})

describe('tampering', () => {
  test('any byte of the request', async () => {
    // Goal: the receipt is about exactly this request.
    for (let at = 0; at < request.length; at += 1) {
      expect([at, await failed(receipt, { request: flipped(request, at) })]).toEqual([at, ['response-request']])
    }
    expect(await failed(receipt, { request: request.subarray(1) })).toEqual(['response-request'])
  })

  test('any byte of the answer, and events left out, repeated or moved', async () => {
    // Goal: the receipt is about exactly these bytes in this order.
    for (let at = 0; at < answer.length; at += 1) {
      expect([at, await failed(receipt, { response: flipped(answer, at) })]).toEqual([
        at,
        expect.arrayContaining(['response-answer']),
      ])
    }
    const [first = '', second = '', end = ''] = events
    for (const other of [first + end, first + first + second + end, second + first + end, first + second]) {
      expect(await failed(receipt, { response: utf8(other) })).toContain('response-answer')
    }
  })

  test('any byte of the receipt', async () => {
    // Goal: neither claim nor either signature can be changed, at any byte.
    const bytes = fromBase64Url(readCarriedReceipt(receipt).receipt) ?? new Uint8Array(0)
    expect(bytes.length).toBeGreaterThan(3500)
    for (let at = 0; at < bytes.length; at += 1) {
      const bad = await failed(toBase64Url(flipped(bytes, at)), { salt })
      expect([at, bad.length > 0]).toEqual([at, true])
    }
  }, 60_000)

  test('one half of the signatures is not enough', async () => {
    // Goal: a half that is missing, zero or from other keys fails, each by itself.
    const other = createResponseSealer({
      keys: makeReceiptKeys(systemRandom),
      clock,
      random: systemRandom,
      inside: new Set(),
    })
    const foreign = other.begin(asked).seal('built-in')
    foreign.update(answer)
    const { signatures } = decodeResponseReceipt(await foreign.finish({ prompt: 7, completion: 11 }))
    const own = decodeCarried(receipt)
    const bytes = fromBase64Url(readCarriedReceipt(receipt).receipt) ?? new Uint8Array(0)
    const swapped = (name: 'ed25519' | 'mldsa65', replacement: Uint8Array) => {
      const at = Buffer.from(bytes).indexOf(Buffer.from(own.signatures[name]))
      const copy = Uint8Array.from(bytes)
      copy.set(replacement, at)
      return toBase64Url(copy)
    }
    for (const name of ['ed25519', 'mldsa65'] as const) {
      const zero = new Uint8Array(own.signatures[name].length)
      expect(await failed(swapped(name, zero), { salt })).toEqual([`response-signature-${name}`])
      expect(await failed(swapped(name, signatures[name]), { salt })).toEqual([`response-signature-${name}`])
    }
    expect(await failed(swapped('ed25519', own.signatures.ed25519), { salt })).toEqual([])
  })

  test('other keys', async () => {
    // Goal: a receipt of another process of the gateway is none of this one's.
    const others = makeReceiptKeys(systemRandom).publicKeys
    const signatures = ['response-signature-ed25519', 'response-signature-mldsa65']
    expect(await failed(receipt, { keys: others })).toEqual(['response-keys', ...signatures])
    expect(await failed(receipt, { keys: { ...publicKeys, x25519: others.x25519 } })).toEqual(['response-keys'])
  })
})
