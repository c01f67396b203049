// Goal: a worker that answers garbage, nothing, or too much is detected in bounded time and memory, and only
// unambiguous answers are recorded.

import { afterAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Fault } from '../../../src/base/fault.ts'
import type { GoldenAnswer } from '../../../src/contract/vm/workload.ts'
import { checkGolden } from '../../../src/inference/worker/golden.ts'
import { certainAnswer, GOLDEN_PROMPTS, recordGolden } from '../../../src/inference/worker/golden-record.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-golden-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

let sockets = 0
/** A worker that answers what the script says, and what it was asked. */
function serve(answer: (question: Record<string, unknown>) => Response | Promise<Response>) {
  sockets += 1
  const socket = join(dir, `${sockets}.sock`)
  const asked: Record<string, unknown>[] = []
  const server = Bun.serve({
    unix: socket,
    fetch: async request => {
      expect(new URL(request.url).pathname).toBe('/completion')
      const question = JSON.parse(await request.text())
      asked.push(question)
      return await answer(question)
    },
  })
  return { socket, asked, [Symbol.asyncDispose]: () => server.stop(true) }
}

const golden: GoldenAnswer = { prompt: '1, 2, 3,', maxTokens: 4, expected: ' 4, 5' }
const signal = new AbortController().signal
const asking = (socket: string, timeoutMs = 5_000) => ({ socket, timeoutMs, signal })
const sha256 = (text: string) => new Bun.CryptoHasher('sha256').update(text).digest('hex')

async function faultOf(work: Promise<unknown>): Promise<Fault> {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  )
  if (error instanceof Fault) return error
  throw new Error(`no fault: ${error}`)
}

describe('check', () => {
  test('goal: the question is greedy, takes no part in any cache, and the beginning decides', async () => {
    await using worker = serve(() => Response.json({ content: ' 4, 5, 6', more: 1 }))
    await checkGolden(golden, asking(worker.socket))
    expect(worker.asked).toEqual([
      { prompt: '1, 2, 3,', n_predict: 4, n_probs: 0, temperature: 0, seed: 0, cache_prompt: false, stream: false },
    ])
  })

  // Goal: the log tells which answer it was, and holds no text.
  test('another answer is refused with both digests and neither text', async () => {
    await using worker = serve(() => Response.json({ content: 'GGGGGG' }))
    const fault = await faultOf(checkGolden(golden, asking(worker.socket)))
    expect(fault.code).toBe('host.command_failed')
    expect(fault.message).toContain(sha256(' 4, 5'))
    expect(fault.message).toContain(sha256('GGGGGG'))
    expect(fault.message).not.toMatch(/GGG|4, 5/)
  })

  const bad: readonly [string, () => Response, string][] = [
    ['an answer that is cut short', () => Response.json({ content: ' 4,' }), 'is expected'],
    ['no content', () => Response.json({ choices: [] }), '/content'],
    ['content that is no text', () => Response.json({ content: [' 4, 5'] }), '/content'],
    ['no JSON', () => new Response('<html>'), "the worker's JSON"],
    ['content twice', () => new Response('{"content":" 4, 5","content":"x"}'), "the worker's JSON"],
    ['an error status', () => Response.json({ content: ' 4, 5' }, { status: 500 }), 'status 500'],
    [
      'a redirect to itself',
      () => new Response('', { status: 302, headers: { location: '/completion' } }),
      'status 302',
    ],
    ['more than a megabyte', () => new Response(new Blob([new Uint8Array(1_100_000)])), 'more than 1048576 bytes'],
  ]
  for (const [what, answer, problem] of bad) {
    test(`goal: ${what} is refused`, async () => {
      await using worker = serve(answer)
      const fault = await faultOf(checkGolden(golden, asking(worker.socket)))
      expect([fault.code, fault.message]).toEqual(['host.command_failed', expect.stringContaining(problem)])
    })
  }

  test('goal: a stream without end is cut off at the bound', async () => {
    const endless = () =>
      new Response(
        new ReadableStream({
          pull: async controller => {
            await Bun.sleep(0)
            controller.enqueue(new Uint8Array(65_536).fill(0x20))
          },
        }),
      )
    await using worker = serve(endless)
    expect((await faultOf(checkGolden(golden, asking(worker.socket)))).message).toContain('more than 1048576 bytes')
  })

  for (const [what, answer] of [
    ['says nothing', () => new Promise<Response>(() => {})],
    [
      'begins and does not go on',
      () => new Response(new ReadableStream({ start: controller => controller.enqueue('{"content":"') })),
    ],
  ] as const) {
    test(`goal: a worker that ${what} is given up at the deadline`, async () => {
      await using worker = serve(answer)
      const fault = await faultOf(checkGolden(golden, asking(worker.socket, 100)))
      expect([fault.code, fault.message]).toEqual(['host.command_timeout', 'golden answer: none within 100 ms'])
    })
  }

  test('goal: no worker is said', async () => {
    expect((await faultOf(checkGolden(golden, asking(join(dir, 'none.sock'))))).code).toBe('host.command_failed')
  })
})

/** Tokens with the difference between the best and the second of each. */
const completionOf = (tokens: readonly (readonly [text: string, gap: number])[]) => ({
  content: tokens.map(([text]) => text).join(''),
  completion_probabilities: tokens.map(([text, gap]) => ({
    bytes: [...Buffer.from(text, 'latin1')],
    top_logprobs: [{ logprob: -0.1 }, { logprob: -0.1 - gap }],
  })),
})

describe('what is sure', () => {
  test('goal: the answer ends before the first doubtful token', () => {
    const completion = completionOf([
      ...([' 4', ',', ' 5', ','].map(text => [text, 3]) as [string, number][]),
      [' 6', 0.9],
      [',', 9],
    ])
    expect(certainAnswer('p', completion)).toEqual({ prompt: 'p', maxTokens: 4, expected: ' 4, 5,' })
  })

  test('goal: less than three sure tokens are no answer', () => {
    const sure: readonly (readonly [string, number])[] = [
      ['a', 5],
      ['b', 5],
    ]
    expect(certainAnswer('p', completionOf([...sure, ['c', 0.5]]))).toBeNull()
    expect(certainAnswer('p', completionOf(sure))).toBeNull()
    expect(certainAnswer('p', { content: 'abc' })).toBeNull()
  })

  // Goal: the text of the log of one engine is what another says too, though tokens may end within a character.
  test('a character that is cut in two is left out, and so is what follows a token without text', () => {
    const cut = completionOf([...'abc'].map(text => [text, 5] as const).concat([['\xc3', 5]]))
    expect(certainAnswer('p', { ...cut, content: 'abc\ufffd' })).toMatchObject({ maxTokens: 3, expected: 'abc' })
    const ended = completionOf([...'abc'].map(text => [text, 5] as const).concat([['', 5]]))
    expect(certainAnswer('p', ended)).toMatchObject({ maxTokens: 3, expected: 'abc' })
  })

  test('goal: bytes that are not the content are no answer', () => {
    expect(
      certainAnswer('p', { ...completionOf([...'abc'].map(text => [text, 5] as const)), content: 'xyz' }),
    ).toBeNull()
  })
})

describe('record', () => {
  test('goal: of all prompts the longest answer is kept, and asking ends when none can be longer', async () => {
    const lengths: readonly number[] = [3, 0, 5, 16, 4]
    await using worker = serve(({ prompt }) => {
      const count = lengths[(GOLDEN_PROMPTS as readonly unknown[]).indexOf(prompt)] ?? 0
      return Response.json(completionOf(Array.from({ length: 16 }, (_, at) => ['x', at < count ? 5 : 0] as const)))
    })
    expect(await recordGolden(asking(worker.socket))).toEqual({
      prompt: GOLDEN_PROMPTS[3],
      maxTokens: 16,
      expected: 'x'.repeat(16),
    })
    expect(worker.asked.length).toBe(4)
    expect(worker.asked[0]).toMatchObject({ n_probs: 2, temperature: 0 })
  })

  test('goal: the prompts, in their order, written out: the one that repeats is the last resort', () => {
    expect<readonly string[]>(GOLDEN_PROMPTS).toEqual([
      ...['1, 2, 3, 4, 5, 6,', 'one, two, three, four, five,', 'A B C D E F G', 'Monday, Tuesday, Wednesday,'],
      ...['The capital of France is', 'Once upon a time', 'def fibonacci(n):', 'a a a a a a a a'],
    ])
  })

  test('goal: a model that is sure of nothing has none', async () => {
    await using worker = serve(() => Response.json(completionOf([['x', 0.1]])))
    expect(await recordGolden(asking(worker.socket))).toBeNull()
    expect(worker.asked.length).toBe(GOLDEN_PROMPTS.length)
  })
})
