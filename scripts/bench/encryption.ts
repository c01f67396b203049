// Cost of encryption to the attested keys (EHBP) in the gateway, for a request and a chunk of a stream; and how long a
// long body holds the event loop. One process, no network: the same response read plain and encrypted, in turns. Keys
// and ciphers are the gateway's own, native ones.

import type { EhbpSuite } from '../../src/attest/ehbp/client.ts'
import { frameLength } from '../../src/attest/ehbp/frames.ts'
import { hpkeContext } from '../../src/attest/ehbp/hpke.ts'
import { sealRequest } from '../../src/attest/ehbp/seal-request.ts'
import { encapsulate } from '../../src/attest/receipt/encapsulate-portable.ts'
import { present } from '../../src/base/assert.ts'
import { concat, toHex } from '../../src/base/bytes.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { makeReceiptKeys } from '../../src/inference/attestation/receipt-keys.ts'
import { createEncryption } from '../../src/inference/encryption/encryption.ts'
import type { Encryption } from '../../src/inference/types.ts'
import { nativeAesGcm } from '../../src/linux/native-aes-gcm.ts'
import type { Figures } from './bench-report.ts'
import type { BenchContext } from './main.ts'

const requestBytes = 2_048
const responseBytes = 1_024
const chunkBytes = 256
const chunkCount = 2_000
const requestRounds = 400
const streamRounds = 10
/** The default of inference.body_bytes_max. */
const bodyBytesMax = 4_194_304
const turnRounds = 20
const decryption = { bytesMax: bodyBytesMax, sender: { keyDigest: 'k1', request: 'r1' } } as const

type Rig = { readonly encryption: Encryption; readonly keys: ReturnType<typeof makeReceiptKeys> }

/** For `bun run bench encryption`, and for whoever measures the gateway as a whole. */
export async function measureEncryption({ note, signal }: Pick<BenchContext, 'note' | 'signal'>): Promise<Figures> {
  const keys = makeReceiptKeys(systemRandom)
  // The longest body is opened again and again.
  const checkReplay = () => ({ outcome: 'new', epoch: '' }) as const
  const rig: Rig = { keys, encryption: createEncryption({ keys, random: systemRandom, checkReplay }) }
  const x25519 = await requestMs(rig, 'x25519')
  const xwing = await requestMs(rig, 'xwing')
  note(`a request: X25519 ${x25519} ms, X-Wing ${xwing} ms`)
  signal.throwIfAborted()
  const chunk = await chunkMs(rig)
  note(`a chunk: ${chunk} ms`)
  signal.throwIfAborted()
  const turns = { oneFrame: await turnMs(rig, bodyBytesMax), kilobytes: await turnMs(rig, 1_024) }
  return {
    ehbpOverheadMs: { value: x25519, unit: 'ms', aim: { atMost: 1 } },
    ehbpXwingOverheadMs: { value: xwing, unit: 'ms', aim: { atMost: 1 } },
    ehbpChunkOverheadMs: { value: chunk, unit: 'ms', aim: { atMost: 0.05 } },
    ehbpOneFrameTurnMs: { value: turns.oneFrame, unit: 'ms', aim: null },
    ehbpKilobyteFramesTurnMs: { value: turns.kilobytes, unit: 'ms', aim: null },
  }
}

async function sealedRequest({ keys }: Rig, suite: EhbpSuite, body: Uint8Array) {
  const sealed = await sealRequest({ keys: keys.publicKeys, suite, random: systemRandom }, body)
  const headers = { ...sealed.headers, 'content-length': String(sealed.body.length) }
  return { body: sealed.body, request: new Request('http://gateway/v1/chat/completions', { method: 'POST', headers }) }
}

/** Median of what opening a request and encrypting a response of ordinary sizes adds to reading that response. */
async function requestMs(rig: Rig, suite: EhbpSuite): Promise<number> {
  const plainBody = new Uint8Array(requestBytes)
  const response = () => new Response('x'.repeat(responseBytes), { headers: { 'content-type': 'application/json' } })
  const added: number[] = []
  for (let round = 0; round < 2 * requestRounds; round += 1) {
    const { body, request } = await sealedRequest(rig, suite, plainBody)
    const plain = await timed(async () => void (await response().arrayBuffer()))
    const encrypted = await timed(async () => {
      const exchange = present(rig.encryption.begin(request), 'the request is encrypted')
      await exchange.decrypt(body, decryption)
      await (await exchange.encrypt(response())).arrayBuffer()
    })
    // The first half warms up.
    if (round >= requestRounds) added.push(encrypted - plain)
  }
  return median(added)
}

/** Extra milliseconds per chunk of a stream that is read as fast as it comes. */
async function chunkMs(rig: Rig): Promise<number> {
  const chunk = new Uint8Array(chunkBytes).fill(0x20)
  const response = () => {
    let sent = 0
    const body = new ReadableStream<Uint8Array>(
      {
        pull: controller => {
          sent += 1
          controller.enqueue(chunk)
          if (sent === chunkCount) controller.close()
        },
      },
      { highWaterMark: 0 },
    )
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } })
  }
  const read = async (from: Response) => {
    for await (const _ of present(from.body, 'a stream'));
  }
  const added: number[] = []
  for (let round = 0; round < 2 * streamRounds; round += 1) {
    const { body, request } = await sealedRequest(rig, 'x25519', new Uint8Array(64))
    const exchange = present(rig.encryption.begin(request), 'the request is encrypted')
    await exchange.decrypt(body, decryption)
    const plain = await timed(() => read(response()))
    const encryptedResponse = await exchange.encrypt(response())
    const encrypted = await timed(() => read(encryptedResponse))
    if (round >= streamRounds) added.push((encrypted - plain) / chunkCount)
  }
  return median(added)
}

/** The longest wait of the event loop while the longest body is opened, in frames of this size. Median of several. */
async function turnMs(rig: Rig, frameBytes: number): Promise<number> {
  const { body, request } = await sealedFrames(rig, frameBytes)
  const longest: number[] = []
  for (let round = 0; round < turnRounds; round += 1) {
    const exchange = present(rig.encryption.begin(request), 'the request is encrypted')
    const watch = watchTurns()
    await exchange.decrypt(body, decryption)
    longest.push(await watch.stop())
  }
  return median(longest)
}

async function sealedFrames({ keys }: Rig, frameBytes: number) {
  const { sharedSecret, encapsulated } = encapsulate('x25519', keys.publicKeys, systemRandom)
  const { cipher } = hpkeContext('x25519', sharedSecret, nativeAesGcm)
  const frames: Uint8Array[] = []
  for (let at = 0; at < bodyBytesMax; at += frameBytes) {
    const ciphertext = await cipher.seal(new Uint8Array(frameBytes))
    frames.push(frameLength(ciphertext), ciphertext)
  }
  const body = concat(...frames)
  const headers = { 'ehbp-encapsulated-key': toHex(encapsulated), 'content-length': '1' }
  return { body, request: new Request('http://gateway/v1/chat/completions', { method: 'POST', headers }) }
}

/** How long the event loop lets others wait, at most, until it is stopped. */
function watchTurns(): { readonly stop: () => Promise<number> } {
  let longest = 0
  let isOn = true
  let last = performance.now()
  const ended = Promise.withResolvers<number>()
  const turn = () => {
    const now = performance.now()
    longest = Math.max(longest, now - last)
    last = now
    if (isOn) setImmediate(turn)
    else ended.resolve(round3(longest))
  }
  setImmediate(turn)
  return {
    stop: () => {
      isOn = false
      return ended.promise
    },
  }
}

async function timed(work: () => Promise<void>): Promise<number> {
  const startedMs = performance.now()
  await work()
  return performance.now() - startedMs
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return round3(sorted[Math.floor((sorted.length - 1) / 2)] ?? Number.NaN)
}

function round3(value: number): number {
  return Math.round(value * 1000) / 1000
}
