// The body of an upstream's response: when it is whole, and when it is not.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'
import { UpstreamFault } from '../../../src/inference/failure.ts'
import { readUpstreamBody } from '../../../src/inference/gateway/body.ts'
import type { UpstreamResponse } from '../../../src/inference/upstream/connection.ts'

const limits = { bytesMax: 16, timeoutMs: 1_000 }
const head = { status: 200, contentType: 'application/json', contentEncoding: '', retryAfterSeconds: null }

/** Its pieces one after the other, then what `last` says; counts the reads. */
function responseOf(contentLength: number | null, pieces: readonly string[], last: () => Promise<null>) {
  const seen = { reads: 0 }
  const response: UpstreamResponse = {
    head: { ...head, contentLength },
    read: () => {
      const piece = pieces[seen.reads]
      seen.reads += 1
      return piece === undefined ? last() : Promise.resolve(Buffer.from(piece))
    },
    takeWhole: () => null,
    pushTo: () => {
      throw new Error('nobody asks here')
    },
    abort: () => {},
  }
  return { seen, response }
}

const never = () => new Promise<null>(() => {})
const read = async (response: UpstreamResponse) =>
  await readUpstreamBody(response, limits, createDeadlines(createManualClock()))

// Goal: a body with a declared length is complete at its last byte; without one only its end completes it.
test('a body is whole with the last byte that was declared', async () => {
  const declared = responseOf(6, ['{"a"', ':1'], never)
  expect(await read(declared.response)).toBe('{"a":1')
  expect(declared.seen.reads).toBe(2)
  expect(await read(responseOf(0, [], never).response)).toBe('')
  const open = responseOf(null, ['{}'], () => Promise.resolve(null))
  expect(await read(open.response)).toBe('{}')
  expect(open.seen.reads).toBe(2)
})

// Goal: fewer bytes than were declared are no body, and no more than are allowed are read.
test('a body that is cut, too large, or no UTF-8', async () => {
  const cut = responseOf(6, ['{"a"'], () => Promise.reject(new UpstreamFault('cut')))
  const reasonOf = (response: UpstreamResponse) => read(response).catch(error => Reflect.get(Object(error), 'reason'))
  expect(await reasonOf(cut.response)).toBe('cut')
  expect(await reasonOf(responseOf(17, [], never).response)).toBe('too_large')
  expect(await reasonOf(responseOf(null, ['0123456789', '0123456789'], never).response)).toBe('too_large')
  const bad = responseOf(1, [], never).response
  expect(await reasonOf({ ...bad, read: () => Promise.resolve(Uint8Array.of(0xff)) })).toBe('malformed')
})

// Goal: a body that came with its head is read at once, by the same rules as one that comes in pieces.
test('a body that is there already', async () => {
  const whole = (...bytes: number[]) => {
    const around = Buffer.from([0x7b, ...bytes, 0x7d])
    const { response } = responseOf(null, [], never)
    return { ...response, takeWhole: () => ({ bytes: around, start: 1, end: around.length - 1 }) }
  }
  const readNow = (response: UpstreamResponse) =>
    readUpstreamBody(response, limits, createDeadlines(createManualClock()))
  expect(readNow(whole(...Buffer.from('"é"')))).toBe('"é"')
  expect(readNow(whole(0xef, 0xbf, 0xbd))).toBe('\uFFFD')
  expect(readNow(whole(0xef, 0xbb, 0xbf, 0x31))).toBe('1')
  const reasonOf = (response: UpstreamResponse) => read(response).catch(error => Reflect.get(Object(error), 'reason'))
  expect(await reasonOf(whole(0x22, 0xff, 0x22))).toBe('malformed')
  expect(await reasonOf(whole(...Buffer.alloc(17, 0x31)))).toBe('too_large')
})
