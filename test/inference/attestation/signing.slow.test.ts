// The thread that signs receipts: a real one, and one that has ended.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { saltBytes } from '../../../src/attest/receipt/response.ts'
import { verifyResponse } from '../../../src/attest/receipt/response-verify.ts'
import { nativeVerifiers } from '../../../src/attest/receipt/verifiers.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import { drawReceiptKeys } from '../../../src/inference/attestation/receipt-keys.ts'
import { createResponseSealer } from '../../../src/inference/attestation/response-sealer.ts'
import { beginSigning, restartPauseMs, startSigning } from '../../../src/inference/attestation/signing.ts'

const keys = drawReceiptKeys(systemRandom)
const request = utf8('{}')

type Thread = ReturnType<typeof beginSigning>

/** `begin`: the threads, one after the other; a real one where it has none. */
function rig(clock: Clock = systemClock, begin: Thread[] = []) {
  const lines: string[] = []
  const log = createLogger({ level: 'debug', sink: line => lines.push(line), nowMs: clock.nowMs })
  let here = 0
  const sign: typeof keys.sign = message => {
    here += 1
    return keys.sign(message)
  }
  const signing = startSigning({
    keys: { ...keys, sign },
    clock,
    log,
    begin: () => begin.shift() ?? beginSigning(clock),
  })
  const salt = new Uint8Array(saltBytes)
  const sealer = createResponseSealer({ keys, signing, clock, random: () => salt, inside: new Set(['built-in']) })
  const receiptOf = (owner: string, text: string) => {
    const seal = sealer.begin({ id: 'r', model: 'tiny', body: request, keyMadeBy: 'host', owner }).seal('built-in')
    seal.update(utf8(text))
    return seal.finish({ prompt: 1, completion: 1 })
  }
  const isGood = async (receipt: string, text: string) => {
    const verifiers = nativeVerifiers
    const question = { keys: keys.publicKeys, request, response: utf8(text), outside: [], salt, verifiers }
    return (await verifyResponse(receipt, question)).ok
  }
  return { signing, receiptOf, isGood, lines, signedHere: () => here }
}

test('goal: receipts of many owners at once come from the thread, each about its own response', async () => {
  const { signing, receiptOf, isGood, lines, signedHere } = rig()
  const texts = Array.from({ length: 100 }, (_, at) => `response ${at}`)
  const receipts = await Promise.all(texts.map((text, at) => receiptOf(`o${at % 7}`, text)))
  for (const [at, receipt] of receipts.entries()) {
    expect([at, await isGood(receipt, texts[at] ?? '')]).toEqual([at, true])
  }
  expect(await isGood(receipts[0] ?? '', 'response 1')).toBe(false)
  expect([lines, signedHere()]).toEqual([[], 0])
  signing.close()
}, 60_000)

test('goal: a thread that ends or is late loses no receipt: they are signed here until another one lives', async () => {
  const clock = createManualClock()
  const broken = beginSigning(clock)
  broken.end('it broke')
  const { signing, receiptOf, isGood, lines, signedHere } = rig(clock, [broken])
  expect(await isGood(await receiptOf('o', 'one'), 'one')).toBe(true)
  expect([lines.length, signedHere()]).toEqual([1, 1])
  expect(lines[0]).toContain('the thread that signs receipts has ended')
  expect(lines[0]).toContain('it broke')
  expect(await isGood(await receiptOf('o', 'two'), 'two')).toBe(true)
  expect(signedHere()).toBe(2)
  clock.advance(restartPauseMs)
  expect(await isGood(await receiptOf('o', 'three'), 'three')).toBe(true)
  expect([lines.length, signedHere()]).toEqual([1, 2])
  signing.close()
  expect(await isGood(await receiptOf('o', 'four'), 'four')).toBe(true)
  expect([lines.length, signedHere()]).toEqual([1, 3])
}, 60_000)
