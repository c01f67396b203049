// A client that encrypts: requests in both suites, and the gateway's responses to them, opened, cut and changed. Pure:
// the randomness is counted, so that every runtime seals the very bytes that the gateway has opened.

import type { EhbpSuite } from '../../../src/attest/ehbp/client.ts'
import { sealRequest } from '../../../src/attest/ehbp/seal-request.ts'
import { concat, toHex, utf8 } from '../../../src/base/bytes.ts'
import { type EncryptedVectors, fromBase64Text, type Vectors } from './input.ts'
import { orRefused } from './outcome.ts'

export const sealedPrompt = '{"model":"tiny","prompt":"Grüße"}'

/** The same bytes in every call of the same order. */
export function countedRandom(): (count: number) => Uint8Array {
  let next = 1
  return count => Uint8Array.from({ length: count }, () => next++ & 0xff)
}

export function sealSample(suite: EhbpSuite, keys: { x25519: Uint8Array; mlkem768: Uint8Array }) {
  return sealRequest({ keys, suite, random: countedRandom() }, utf8(sealedPrompt))
}

export async function encryptionSuite({ encrypted }: Vectors): Promise<unknown> {
  const results: Record<string, unknown> = {}
  for (const [suite, vectors] of Object.entries(encrypted.responses)) {
    results[suite] = await judge(suite as EhbpSuite, encrypted, vectors)
  }
  return results
}

async function judge(suite: EhbpSuite, { keys }: EncryptedVectors, response: EncryptedVectors['responses'][EhbpSuite]) {
  const pair = { x25519: fromBase64Text(keys.x25519), mlkem768: fromBase64Text(keys.mlkem768) }
  const request = await sealSample(suite, pair)
  const head = (type: string) => {
    const headers: Record<string, string> = { ...response.headers, 'content-type': type }
    return { headers: { get: (name: string) => headers[name.toLowerCase()] ?? null } }
  }
  const bytes = fromBase64Text(response.body)
  const open = async (body: Uint8Array, type = 'application/json') => {
    const opener = await request.openResponse(head(type))
    // In three pieces, within frames.
    const parts = [body.slice(0, 3), body.slice(3, 40), body.slice(40)]
    const plain: Uint8Array[] = []
    for (const part of parts) plain.push(await opener.push(part))
    opener.finish()
    return { text: new TextDecoder().decode(concat(...plain)), headers: opener.headers }
  }
  return {
    key: request.headers['ehbp-encapsulated-key'],
    body: toHex(request.body),
    opened: await open(bytes),
    cut: await orRefused(() => open(bytes.slice(0, response.firstFrameBytes))),
    cutWithin: await orRefused(() => open(bytes.slice(0, -1))),
    changed: await orRefused(() => open(bytes.map((byte, at) => (at === 10 ? byte ^ 1 : byte)))),
    asStream: await orRefused(() => open(bytes, 'text/event-stream')),
    plain: await orRefused(() => request.openResponse({ headers: { get: () => null } })),
    otherKey: await orRefused(() => sealSample(suite, { ...pair, x25519: new Uint8Array(32) })),
  }
}
