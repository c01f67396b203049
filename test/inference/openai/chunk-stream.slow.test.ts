// Chunks that are taken by the form of those before them, against the same chunks read and converted in full.
//
// STRONGROOM_FUZZ_CHUNKS=<count> sets the number of chunks to compare (default: some ten thousands);
// STRONGROOM_FUZZ_SEED repeats a run.

import { describe, expect, spyOn, test } from 'bun:test'
import { utf8 } from '../../../src/base/bytes.ts'
import { UpstreamFault } from '../../../src/inference/failure.ts'
import { ChunkConverter } from '../../../src/inference/openai/chunk.ts'
import { ChunkStream } from '../../../src/inference/openai/chunk-stream.ts'
import type { CompletionPlan } from '../../../src/inference/openai/completion-plan.ts'
import { createObfuscate } from '../../../src/inference/openai/obfuscation.ts'
import { parseRequest } from '../../../src/inference/openai/request.ts'
import { createSseParser, sseEvent } from '../../../src/inference/openai/sse.ts'
import type { CompletionOperation } from '../../../src/inference/types.ts'
import { type Below, fuzzSeed, generator } from '../../rigs/hostile/fuzz.ts'

const limits = { eventBytesMax: 2_000, responseBytesMax: 500 }
const chunkCount = Number(process.env.STRONGROOM_FUZZ_CHUNKS ?? 40_000)

function planOf(operation: CompletionOperation, more: Record<string, unknown> = {}, isPadded = false): CompletionPlan {
  const body = { model: 'mödel "1"', messages: [{ role: 'user', content: 'x' }], prompt: 'x', stream: true, ...more }
  const { request } = parseRequest(operation, utf8(JSON.stringify(body)))
  // Not random, so that the two ways can be compared.
  const obfuscate = isPadded ? createObfuscate(length => new Uint8Array(length)) : null
  return { request, id: 'chatcmpl-1', createdS: 7, schema: null, obfuscate, dialect: null }
}

type Step = { readonly text: string; readonly isEnd: boolean } | { readonly fault: string }
type Outcome = {
  readonly steps: readonly Step[]
  readonly usage: unknown
  readonly delivered: number
  readonly isClean: boolean
  readonly contents: readonly string[]
}

function stepsOf(pieces: readonly Uint8Array[], push: (bytes: Uint8Array) => Step): Step[] {
  const steps: Step[] = []
  for (const piece of pieces) {
    const step = attempt(() => push(piece))
    steps.push(step)
    if ('fault' in step || step.isEnd) break
  }
  return steps
}

function attempt(work: () => Step): Step {
  try {
    return work()
  } catch (error) {
    if (error instanceof UpstreamFault) return { fault: error.reason }
    throw error
  }
}

/** As the gateway does it. */
function streamed(plan: CompletionPlan, pieces: readonly Uint8Array[]): Outcome {
  const stream = new ChunkStream(plan, limits)
  const steps = stepsOf(pieces, bytes => {
    const { text, isEnd } = stream.push(bytes)
    return { text, isEnd }
  })
  const { usage, deliveredCount } = stream
  return { steps, usage, delivered: deliveredCount, isClean: stream.isClean(), contents: stream.takeContents() }
}

/** Every event parsed, checked and converted. */
function inFull(plan: CompletionPlan, pieces: readonly Uint8Array[]): Outcome {
  const parser = createSseParser(limits.eventBytesMax)
  const converter = new ChunkConverter(plan, limits.responseBytesMax)
  const steps = stepsOf(pieces, bytes => {
    let text = ''
    for (const data of parser.push(bytes)) {
      const chunk = converter.convert(data)
      if (chunk === 'end') return { text, isEnd: true }
      if (chunk !== null) text += sseEvent(chunk)
    }
    return { text, isEnd: false }
  })
  const { usage, deliveredCount } = converter
  return { steps, usage, delivered: deliveredCount, isClean: parser.isClean(), contents: converter.takeContents() }
}

/** Chunks that were taken by their form while `work` ran. */
function countTemplated(work: () => void): number {
  const converted = spyOn(ChunkConverter.prototype, 'convertTemplated')
  try {
    work()
    return converted.mock.calls.length
  } finally {
    converted.mockRestore()
  }
}

function pick<T>(below: Below, list: readonly T[]): T {
  const item = list[below(list.length)]
  if (item === undefined) throw new Error('an empty list')
  return item
}

// Texts that engines send, valid and invalid.

const TEXTS = [
  'a',
  ' the',
  'é',
  '日本',
  '👋',
  '\\n',
  '\\"',
  '\\\\',
  '\\t',
  '\\b\\f\\r',
  '\u2028',
  '\u007f',
  '\uFEFF',
] as const
const ODD_TEXTS = [
  ...[
    '',
    '\\/',
    '\\u0041',
    '\\u001b',
    '\\ud83d\\ude00',
    '\\ud800',
    '\\x',
    '\\',
    '"',
    '","x":"',
    '\u0001',
    '\t',
    '\n',
    '\r\n',
  ],
  ...[
    'strongroom text',
    '\\u0073trongroom text',
    '"}}],"choices":[{"delta":{"content":"',
    '\0',
    'x'.repeat(1_900),
    '"content":"',
  ],
]
const HEADS = [
  '{"id":"c-1","choices":[{"index":0,',
  '{ "choices": [ {',
  '{"x":{"content":"no"},"created":1,"choices":[{"index":0,',
]
const TAILS = [
  '}]}',
  ',"logprobs":null,"finish_reason":null}],"created":2}',
  ',"finish_reason":""} ] }',
  '}],"usage":null,"content":"no"}',
]
const ODD_TAILS = [
  ...[
    ',"finish_reason":"stop"}]}',
    ',"finish_reason":"leaky"}]}',
    '}],"usage":{"prompt_tokens":1,"completion_tokens":2}}',
  ],
  ...[
    '}],"usage":7}',
    '}],"error":{}}',
    '}],"choices":[]}',
    '}],"choices":[{"delta":{"content":"z"}}]}',
    '},{}]}',
    '}]',
    '}]}}',
  ],
  ...[
    ',"delta":{"content":"y"}}]}',
    ',"logprobs":{"content":[{"token":"strongroom text","logprob":-1}]}}]}',
    ',"index":1}]}',
  ],
]
const DELTAS = [
  '"delta":{"content":"@"}',
  '"delta" : { "content" : "@" }',
  '"delta":{"role":"assistant","content":"@","refusal":null}',
]
const ODD_DELTAS = [
  ...[
    '"delta":{"reasoning_content":"@"}',
    '"delta":{"content":null,"reasoning":"@"}',
    '"delta":{"reasoning":"r","content":"@"}',
  ],
  ...[
    '"delta":{"content":"first","content":"@"}',
    '"delta":{"content":"@","content":"last"}',
    '"delta":{"content":"@","__proto__":{}}',
  ],
  ...[
    '"delta":{"refusal":"@"}',
    '"delta":{"content":7,"x":"@"}',
    '"delta":{"c\\u006fntent":"@"}',
    '"delta":{"content":"@","tool_calls":[]}',
  ],
  ...[
    '"delta":{"@":"x"}',
    '"delta":{}',
    '"text":"@"',
    '"text":"@","delta":{"content":"@"}',
    '"delta":{"content":{"content":"@"}}',
  ],
]
const LEADS = [
  'data: ',
  'data:',
  'data:  ',
  ': c\ndata: ',
  'id: 1\ndata: ',
  'data: \ndata: ',
  '\ndata: ',
  'event: x\r\ndata: ',
]
const ENDS = ['\n\n', '\r\n\r\n', '\r\r', '\n', '\n\n\n', '\r\n\n', '\ndata: \n\n', '\ndata\n\n']

type Form = { head: string; delta: string; tail: string; lead: string; end: string }

function formOf(below: Below, isOdd: boolean): Form {
  return {
    head: pick(below, HEADS),
    delta: pick(below, isOdd ? ODD_DELTAS : DELTAS),
    tail: pick(below, isOdd && below(2) === 0 ? ODD_TAILS : TAILS),
    lead: pick(below, isOdd ? LEADS : LEADS.slice(0, 2)),
    end: pick(below, isOdd ? ENDS : ENDS.slice(0, 2)),
  }
}

/** A stream mostly of one form, with every other kind of chunk among them; cut and changed at some places. */
function streamOf(below: Below, operation: CompletionOperation): Uint8Array[] {
  let form = formOf(below, below(8) === 0)
  if (operation === 'text_completion') form.delta = '"text":"@"'
  const events: Uint8Array[] = []
  for (let left = 4 + below(30); left > 0; left -= 1) {
    if (below(24) === 0) form = { ...form, ...(below(3) === 0 ? formOf(below, true) : { head: pick(below, HEADS) }) }
    const item =
      below(20) === 0
        ? {
            ...form,
            ...pick(below, [
              { tail: pick(below, ODD_TAILS) },
              { delta: pick(below, ODD_DELTAS) },
              { end: pick(below, ENDS) },
            ]),
          }
        : form
    const texts = Array.from({ length: 1 + below(4) }, () => pick(below, below(24) === 0 ? ODD_TEXTS : TEXTS))
    const data = item.head + item.delta.replaceAll('@', () => texts.join('')) + item.tail
    let bytes = utf8(item.lead + data + item.end)
    if (below(20) === 0) bytes = changed(below, bytes)
    events.push(bytes)
  }
  events.push(utf8(`data: {"choices":[{"delta":{},"text":"","finish_reason":"stop"}]}\n\ndata: [DONE]\n\n`))
  return cut(below, events)
}

/** One byte other, more or less; a byte that matters more often than any. */
function changed(below: Below, bytes: Uint8Array): Uint8Array {
  const at = below(bytes.length)
  const byte =
    below(2) === 0
      ? below(256)
      : pick(below, [0x22, 0x5c, 0x0a, 0x0d, 0x00, 0x7b, 0x7d, 0x2c, 0x80, 0xc3, 0xed, 0xf0, 0xff])
  const gone = below(3)
  return Uint8Array.from([
    ...bytes.subarray(0, at),
    ...(gone === 2 ? [] : [byte]),
    ...bytes.subarray(at + (gone === 0 ? 0 : 1)),
  ])
}

/** Mostly between events, as engines write them; some pieces hold several events or end anywhere. */
function cut(below: Below, events: readonly Uint8Array[]): Uint8Array[] {
  const pieces: Uint8Array[] = []
  let kept: Uint8Array = new Uint8Array()
  for (const event of events) {
    kept = Buffer.concat([kept, event])
    if (below(4) === 0) continue
    const at = below(8) === 0 ? below(kept.length + 1) : kept.length
    pieces.push(kept.subarray(0, at))
    kept = kept.subarray(at)
  }
  return [...pieces, kept]
}

const PLANS: readonly [CompletionOperation, CompletionPlan][] = [
  ['chat', planOf('chat')],
  ['chat', planOf('chat', { stream_options: { include_usage: true } })],
  ['chat', planOf('chat', {}, true)],
  ['chat', planOf('chat', { n: 2 })],
  ['chat', planOf('chat', { response_format: { type: 'json_object' } })],
  ['text_completion', planOf('text_completion')],
  ['text_completion', planOf('text_completion', {}, true)],
]

test(`goal: over ${chunkCount} chunks of every form, changed and cut anywhere, the two ways give the same, step for step`, () => {
  const seed = fuzzSeed()
  const below = generator(seed)
  let chunks = 0
  let streams = 0
  const templated = countTemplated(() => {
    for (; chunks < chunkCount; streams += 1) {
      const [operation, plan] = pick(below, PLANS)
      const pieces = streamOf(below, operation)
      const [ours, full] = [streamed(plan, pieces), inFull(plan, pieces)]
      if (!Bun.deepEquals(ours, full, true)) {
        const shown = pieces.map(piece => Buffer.from(piece).toString('latin1'))
        expect({ seed, streams, shown, ...ours }).toEqual({ seed, streams, shown, ...full })
      }
      chunks += full.delivered
    }
  })
  // Else this would say nothing about the short way.
  expect(templated).toBeGreaterThan(chunks / 5)
}, 3_600_000)

const chatEvent = (text: string, more = '') => utf8(`data: {"choices":[{"delta":{"content":"${text}"${more}}}]}\n\n`)

describe('what the short way takes', () => {
  const opening = [chatEvent('a'), chatEvent('b')]
  const countOf = (pieces: readonly Uint8Array[], plan = planOf('chat')) => countTemplated(() => streamed(plan, pieces))

  test('goal: from the third chunk on every one of the same form, several in one piece, escaped and not ASCII', () => {
    const texts = ['c', ' d\\n', '日本\\"', '👋'.repeat(300)]
    expect(countOf([...opening, ...texts.map(text => chatEvent(text))])).toBe(4)
    expect(countOf([...opening, Buffer.concat(texts.map(text => chatEvent(text)))])).toBe(4)
    expect(countOf([...opening, ...texts.map(text => chatEvent(text))], planOf('chat', {}, true))).toBe(4)
  })

  test('goal: reasoning and text completions, and line ends of both kinds', () => {
    const reasoning = (text: string) =>
      utf8(`data:{"choices":[{"delta":{"content":null,"reasoning_content":"${text}"}}]}\r\n\r\n`)
    expect(countOf(['a', 'b', 'c', 'd'].map(reasoning))).toBe(2)
    const plain = (text: string) => utf8(`data: {"choices":[{"text":"${text}"}]}\n\n`)
    expect(countOf(['a', 'b', 'c', 'd'].map(plain), planOf('text_completion'))).toBe(2)
  })

  const OTHERS: Record<string, Uint8Array> = {
    'an escape that is rewritten': chatEvent('\\u0041'),
    'a solidus that is escaped': chatEvent('\\/'),
    'no text': chatEvent(''),
    'a control character': chatEvent('\u001f'),
    'bytes that are no text': Buffer.concat([
      utf8('data: {"choices":[{"delta":{"content":"'),
      Uint8Array.of(0xed, 0xa0, 0x80),
      utf8('"}}]}\n\n'),
    ]),
    'another field': chatEvent('c', ',"refusal":null'),
    'an event over the limit': chatEvent('x'.repeat(2_000)),
    'half an event': chatEvent('c').subarray(0, 40),
  }
  for (const [name, piece] of Object.entries(OTHERS)) {
    test(`goal: ${name} goes the full way, with the full way's end`, () => {
      const pieces = [...opening, piece]
      expect(countOf(pieces)).toBe(0)
      expect(streamed(planOf('chat'), pieces)).toEqual(inFull(planOf('chat'), pieces))
    })
  }

  test('goal: an event is taken up to the limit exactly, and not with one byte more', () => {
    const overhead = chatEvent('').length - '\n\n'.length
    const largest = [...opening, chatEvent('x'.repeat(limits.eventBytesMax - overhead))]
    expect([countOf(largest), streamed(planOf('chat'), largest)]).toEqual([1, inFull(planOf('chat'), largest)])
    const larger = [...opening, chatEvent('x'.repeat(limits.eventBytesMax - overhead + 1))]
    expect([countOf(larger), streamed(planOf('chat'), larger).steps.at(-1)]).toEqual([0, { fault: 'too_large' }])
  })
})

describe('upstreams that want another text to be taken for the content', () => {
  const FORMS: Record<string, (text: string) => string> = {
    'the mark, escaped, with a decoy before it': text =>
      `{"x":{"content":"${text}"},"choices":[{"delta":{"content":"\\u0073trongroom text"}}]}`,
    'a decoy of the same name after it': text =>
      `{"choices":[{"delta":{"content":"a"}}],"delta":{"content":"${text}"}}`,
    'a content that is there twice': text => `{"choices":[{"delta":{"content":"${text}","content":"b"}}]}`,
    'choices that are there twice': text =>
      `{"choices":[{"delta":{"content":"${text}"}}],"choices":[{"delta":{"content":"b"}}]}`,
    'a name for the content': text => `{"choices":[{"delta":{"content":"b","${text}":"content"}}]}`,
    'a text in a text': text => `{"x":"{\\"content\\":\\"${text}\\"}","choices":[{"delta":{"content":"b"}}]}`,
  }
  for (const [name, write] of Object.entries(FORMS)) {
    test(`goal: ${name} changes nothing of what the client gets`, () => {
      const pieces = ['a', 'b', 'c', 'd', 'strongroom text', 'e'].map(text => utf8(`data: ${write(text)}\n\n`))
      expect(streamed(planOf('chat'), pieces)).toEqual(inFull(planOf('chat'), pieces))
    })
  }

  test('goal: data of several lines is not taken for one line of it', () => {
    const lines = (text: string) => utf8(`data: {"choices":\ndata: [{"delta":{"content":"${text}"}}]}\n\n`)
    const joined = (text: string) => utf8(`data: {"choices":\n[{"delta":{"content":"${text}"}}]}\n\n`)
    const pieces = [lines('a'), lines('b'), joined('c')]
    expect(streamed(planOf('chat'), pieces)).toEqual(inFull(planOf('chat'), pieces))
    expect(streamed(planOf('chat'), pieces).steps.at(-1)).toEqual({ fault: 'malformed' })
  })

  test('goal: a piece of a character before an event is not passed over', () => {
    const pieces = [chatEvent('a'), chatEvent('b'), chatEvent('c'), Uint8Array.of(0xc3), chatEvent('d')]
    expect(streamed(planOf('chat'), pieces)).toEqual(inFull(planOf('chat'), pieces))
    expect(streamed(planOf('chat'), pieces).steps.at(-1)).toEqual({ fault: 'malformed' })
  })

  test('goal: the usage is that of the last chunk that has one, whatever its form', () => {
    const counted = (text: string, tokens: number) =>
      utf8(
        `data: {"choices":[{"delta":{"content":"${text}"}}],"usage":{"prompt_tokens":1,"completion_tokens":${tokens}}}\n\n`,
      )
    const alone = utf8('data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":4}}\n\n')
    const pieces = [...['a', 'b', 'c'].map(text => counted(text, 3)), alone, counted('e', 3)]
    expect(streamed(planOf('chat'), pieces)).toEqual(inFull(planOf('chat'), pieces))
    expect(streamed(planOf('chat'), pieces).usage).toMatchObject({ completion_tokens: 3 })
  })

  test('goal: a tool is called once, whatever stands beside it', () => {
    const plan = planOf('chat', { tools: [{ type: 'function', function: { name: 'f' } }] })
    const call = ',"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]'
    const pieces = [chatEvent('a'), ...['b', 'c', 'd'].map(text => chatEvent(text, call))]
    expect(streamed(plan, pieces)).toEqual(inFull(plan, pieces))
  })

  test('goal: a choice that comes twice in a chunk is not left out', () => {
    const twice = (text: string) =>
      utf8(`data: {"choices":[{"delta":{"content":"${text}"}},{"delta":{"content":"b"}}]}\n\n`)
    const pieces = ['a', 'b', 'c', 'd'].map(twice)
    expect(streamed(planOf('chat'), pieces)).toEqual(inFull(planOf('chat'), pieces))
  })

  test('goal: text after the end, within one piece, is refused', () => {
    const end = utf8('data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n')
    const pieces = [chatEvent('a'), chatEvent('b'), Buffer.concat([chatEvent('c'), end]), chatEvent('d')]
    expect(streamed(planOf('chat'), pieces).steps.at(-1)).toEqual({ fault: 'malformed' })
    expect(streamed(planOf('chat'), pieces)).toEqual(inFull(planOf('chat'), pieces))
  })

  test('goal: a form that changes with every chunk is not made anew with every chunk', () => {
    const parse = spyOn(JSON, 'parse')
    try {
      const count = 1_000
      streamed(
        planOf('chat'),
        Array.from({ length: count }, (_, at) => chatEvent('a', `,"x":${at}`)),
      )
      // One for each chunk, and one for each form.
      expect(parse.mock.calls.length - count).toBeLessThan(30)
    } finally {
      parse.mockRestore()
    }
  })
})
