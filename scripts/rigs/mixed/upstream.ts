// How the upstream of the mixed load answers, by kinds of behaviour, and its own record of what it said. Pure but for
// the record.

import {
  type Counts,
  chunked,
  completionAnswer,
  contentEvent,
  embeddingsAnswer,
  endEvents,
  jsonAnswer,
  type ReceivedRequest,
  type Script,
  streamEnd,
  streamHead,
} from '../gateway/scripted-upstream.ts'

export const BEHAVIOURS = [
  'good',
  'uncounted',
  'implausible',
  'status 500',
  'busy',
  'refused',
  'malformed',
  'cut',
  'silent',
  /** Goes on until the client leaves. */
  'left',
] as const
export type Behaviour = (typeof BEHAVIOURS)[number]

/** The upstream's record of one request. */
export type Told = {
  /** A kept connection that turns out to be closed is no answer: then the gateway asks once more. */
  times: number
  /** The counts that it reported. Null for none. */
  reported: Counts | null
  readonly asked: PromiseWithResolvers<void>
}

/** Stands in the text of each request, before its serial number. */
export const serialMark = 'serial='

/** Counts of this request alone, for one key: the ledger has to distinguish requests. */
export function countsOf(serial: number): Counts {
  return { prompt: 1 + (serial % 4_000), completion: 1 + (Math.floor(serial / 4_000) % 60) }
}

const words = ['one ', 'two ', 'three ', 'four ']
const tooMany = 1_000_000_000

export function createMixedUpstream(behaviourOf: (serial: number) => Behaviour): {
  readonly answer: (asked: ReceivedRequest) => Script
  readonly told: (serial: number) => Told
} {
  const record = new Map<number, Told>()
  const told = (serial: number): Told => {
    const known = record.get(serial) ?? { times: 0, reported: null, asked: Promise.withResolvers<void>() }
    record.set(serial, known)
    return known
  }
  const answer = ({ path, body }: ReceivedRequest): Script => {
    const serial = Number(new RegExp(`${serialMark}(\\d+);`).exec(JSON.stringify(body))?.[1] ?? Number.NaN)
    if (!Number.isInteger(serial)) throw new Error(`no request of ours: ${JSON.stringify(body)}`)
    const behaviour = behaviourOf(serial)
    const counts = behaviour === 'good' || behaviour === 'implausible' ? countsOf(serial) : null
    const before = told(serial)
    const isEmbedding = path.endsWith('/embeddings')
    const reported = counts !== null && isEmbedding ? { ...counts, completion: 0 } : counts
    before.times += 1
    before.reported = reported
    before.asked.resolve()
    if (isEmbedding) return embeddingsScript(behaviour, countsOf(serial))
    return body.stream === true ? streamScript(behaviour, countsOf(serial)) : wholeScript(behaviour, countsOf(serial))
  }
  return { answer, told }
}

const kept = (text: string): Script => ({ pieces: [text], gapMs: 0, ending: 'keep' })

/** Before a response has begun, whatever it would be. */
function early(behaviour: Behaviour): Script | null {
  if (behaviour === 'status 500') return kept(jsonAnswer(500, { error: 'x' }))
  if (behaviour === 'busy') return kept(jsonAnswer(429, { error: 'x' }, 'retry-after: 1\r\n'))
  return behaviour === 'refused' ? kept(jsonAnswer(400, { error: { message: 'x' } })) : null
}

function embeddingsScript(behaviour: Behaviour, counts: Counts): Script {
  if (behaviour === 'malformed') return kept(jsonAnswer(200, { object: 'list', data: 'x' }))
  return early(behaviour) ?? kept(embeddingsAnswer(1, counts.prompt))
}

function wholeScript(behaviour: Behaviour, counts: Counts): Script {
  const whole = completionAnswer(words.join(''), counts)
  switch (behaviour) {
    case 'good':
      return kept(whole)
    case 'uncounted':
      return kept(completionAnswer(words.join(''), null))
    case 'implausible':
      return kept(completionAnswer(words.join(''), { ...counts, prompt: tooMany }))
    case 'malformed':
      return kept(jsonAnswer(200, { choices: 'x' }))
    case 'cut':
      return { pieces: [whole.slice(0, -20)], gapMs: 0, ending: 'cut' }
    case 'silent':
    case 'left':
      return { pieces: [], gapMs: 0, ending: 'hold' }
    default:
      return early(behaviour) ?? kept(whole)
  }
}

function streamScript(behaviour: Behaviour, counts: Counts): Script {
  const events = words.map(word => chunked(contentEvent(word)))
  const begun = [`${streamHead}${events[0]}`, ...events.slice(1)]
  const ended = (last: Counts | null): Script => ({
    pieces: [...begun, chunked(endEvents(last)), streamEnd],
    gapMs: 2,
    ending: 'keep',
  })
  switch (behaviour) {
    case 'good':
      return ended(counts)
    case 'uncounted':
      return ended(null)
    case 'implausible':
      return ended({ ...counts, prompt: tooMany })
    case 'malformed':
      return { pieces: [...begun, chunked('data: {"choices":7}\n\n')], gapMs: 2, ending: 'hold' }
    case 'cut':
      return { pieces: begun, gapMs: 2, ending: 'cut' }
    case 'silent':
      return { pieces: begun, gapMs: 2, ending: 'hold' }
    case 'left':
      return { pieces: [...begun, ...Array(500).fill(events[0])], gapMs: 2, ending: 'hold' }
    default:
      return early(behaviour) ?? ended(counts)
  }
}
