// Goal: the delivery's outcome is right for an absent, slow, hostile or faulty receiver, within time and memory; its
// key goes to it alone.

import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { failure } from '../../../scripts/rigs/until.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { type Deliver, type Delivery, openCollector } from '../../../src/inference/traces/collector.ts'
import { type OtlpReceiver, startOtlpReceiver } from '../../rigs/gateway/otlp-receiver.ts'

let dir: string
let receiver: OtlpReceiver
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'srt-otlp-'))
  receiver = await startOtlpReceiver()
})
afterEach(async () => {
  await receiver.stop()
  rmSync(dir, { recursive: true, force: true })
})

const never = new AbortController().signal
const open = (files: { headers_file?: string; ca_file?: string } = {}, endpoint = receiver.url): Deliver =>
  openCollector({ endpoint, headers_file: '', ca_file: '', ...files }, systemClock)
const deliver = (timeoutMs = 5_000, signal = never): Promise<Delivery> => open()(utf8('{}'), timeoutMs, signal)

function headersFile(text: string): { headers_file: string } {
  const headers_file = join(dir, 'headers')
  writeFileSync(headers_file, text)
  return { headers_file }
}

describe('answers', () => {
  const answer = (status: number, body = '', headers: Record<string, string> = {}) => {
    return (response: ServerResponse) => void response.writeHead(status, headers).end(body)
  }

  test('goal: of each status, what becomes of the batch', async () => {
    const cases: [behave: (response: ServerResponse) => void, expected: Delivery][] = [
      [answer(200, '{}'), { kind: 'taken', rejected: 0 }],
      [answer(200), { kind: 'taken', rejected: 0 }],
      [answer(204), { kind: 'taken', rejected: 0 }],
      [answer(200, '{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}'), { kind: 'taken', rejected: 3 }],
      [answer(200, '{"partialSuccess":{"rejectedSpans":4}}'), { kind: 'taken', rejected: 4 }],
      [answer(200, '{"partialSuccess":{"rejectedSpans":-4}}'), { kind: 'taken', rejected: 0 }],
      [answer(200, '{"partialSuccess":{"rejectedSpans":[1]}}'), { kind: 'taken', rejected: 0 }],
      [answer(200, 'null'), { kind: 'taken', rejected: 0 }],
      [answer(200, '<html>'), { kind: 'taken', rejected: 0 }],
      [answer(429, '', { 'retry-after': '7' }), { kind: 'again', reason: 'status 429', retryAfterMs: 7_000 }],
      [answer(503, '', { 'retry-after': '99999' }), { kind: 'again', reason: 'status 503', retryAfterMs: 300_000 }],
      [answer(502), { kind: 'again', reason: 'status 502', retryAfterMs: 0 }],
      [answer(504), { kind: 'again', reason: 'status 504', retryAfterMs: 0 }],
      [answer(400, '{"message":"x"}'), { kind: 'refused', reason: 'status 400' }],
      [answer(401), { kind: 'refused', reason: 'status 401' }],
      [answer(500), { kind: 'refused', reason: 'status 500' }],
    ]
    for (const [behave, expected] of cases) {
      receiver.behave = behave
      expect(await deliver()).toEqual(expected)
    }
  })

  test('goal: a redirect is not followed', async () => {
    receiver.behave = answer(307, '', { location: `${receiver.url}/elsewhere` })
    expect(await deliver()).toEqual({ kind: 'refused', reason: 'status 307' })
    expect(receiver.seen.length).toBe(1)
  })

  test('goal: a receiver that never stops talking is heard for 64 KiB, and its connection is closed', async () => {
    let sentBytes = 0
    const closed = Promise.withResolvers<void>()
    receiver.behave = response => {
      response.on('close', closed.resolve).on('error', () => {})
      response.writeHead(200, { 'content-type': 'application/json' })
      const piece = Buffer.alloc(65_536, 0x20)
      const more = () => {
        while (!response.destroyed) {
          sentBytes += piece.length
          if (!response.write(piece)) return void response.once('drain', more)
        }
      }
      more()
    }
    expect(await deliver()).toEqual({ kind: 'taken', rejected: 0 })
    await closed.promise
    // The kernel's buffers of both sides add to the bytes read.
    expect(sentBytes).toBeLessThan(16 * 1_048_576)
  })

  test('goal: one that says nothing, before or within its answer, is waited for as long as is configured', async () => {
    receiver.behave = () => {}
    const startedMs = performance.now()
    expect(await deliver(150)).toEqual({ kind: 'again', reason: 'timeout', retryAfterMs: 0 })
    receiver.behave = response => void response.writeHead(200, { 'content-length': '10' }).write('{')
    // It has said that it took them. Its head alone must come within that time.
    expect(await deliver(4_000)).toEqual({ kind: 'taken', rejected: 0 })
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(4_145)
  })

  test('goal: one that is not there, or speaks something else, is asked again', async () => {
    const { url } = receiver
    receiver.behave = response => void response.socket?.end('SSH-2.0-x\r\n\r\n')
    expect(await deliver()).toMatchObject({ kind: 'again', reason: 'malformed' })
    await receiver.stop()
    expect(await open({}, url)(utf8('{}'), 5_000, never)).toMatchObject({ kind: 'again', reason: 'unreachable' })
  })

  test('goal: an authority that is none fails each batch, and nothing else', async () => {
    const ca_file = join(dir, 'ca.pem')
    writeFileSync(ca_file, 'garbage')
    const overTls = open({ ca_file }, receiver.url.replace('http:', 'https:'))
    expect(await overTls(utf8('{}'), 5_000, never)).toMatchObject({ kind: 'again' })
    expect(receiver.seen).toEqual([])
  })

  test('goal: an end in between is an end at once', async () => {
    receiver.behave = () => {}
    const stopping = new AbortController()
    const under = deliver(60_000, stopping.signal)
    stopping.abort()
    expect(await under).toMatchObject({ kind: 'again' })
    expect(await deliver(60_000, stopping.signal)).toMatchObject({ kind: 'again' })
  })
})

describe('headers', () => {
  test('goal: those of the file are sent, beside what OTLP demands', async () => {
    const files = headersFile('Authorization: Bearer sk canary\r\n\nx-scope-orgid:  tenant-1 \n')
    await open(files)(utf8('{"a":1}'), 5_000, never)
    const [seen] = receiver.seen
    expect(seen?.path).toBe('/v1/traces')
    expect(seen?.headers).toMatchObject({
      authorization: 'Bearer sk canary',
      'x-scope-orgid': 'tenant-1',
      'content-type': 'application/json',
      'content-length': '7',
    })
    expect(receiver.bodies).toEqual(['{"a":1}'])
  })

  test('goal: a file that cannot be sent as it is is refused by its line, and nothing repeats what it holds', async () => {
    const bad: [text: string, problem: string][] = [
      ['Authorization Bearer sk-canary', 'line 1 is not of the form'],
      ['a: b\nx: sk-canary\u0001', 'line 2 is not of the form'],
      ['x: sk-canary-ä', 'line 1 is not of the form'],
      ['x:', 'line 1 is not of the form'],
      ['x y: sk-canary', 'line 1 is not of the form'],
      ['Content-Length: 5', 'Content-Length cannot be set'],
      ['transfer-encoding: chunked', 'transfer-encoding cannot be set'],
      ['HOST: sk-canary', 'HOST cannot be set'],
      [`${'x: sk-canary\n'.repeat(33)}`, 'more than 32 lines'],
      [`x: ${'sk-canary'.repeat(1_000)}`, '8192 bytes'],
    ]
    for (const [text, problem] of bad) {
      const fault = await failure((async () => open(headersFile(text)))())
      expect(fault).toMatchObject({ code: 'config.file', param: 'inference.traces.headers_file' })
      expect(fault.message).toContain(problem)
      expect(fault.message).not.toContain('sk-canary')
    }
    const missing = await failure((async () => open({ ca_file: join(dir, 'none') }))())
    expect(missing).toMatchObject({ code: 'config.file', param: 'inference.traces.ca_file' })
  })
})
