// Parses large bodies in a separate thread: one body at a time, organizations in turn, so that an organization with
// many large bodies delays only itself. Effects: a thread, which starts with the first large body.

import { toHex, utf8 } from '../../../base/bytes.ts'
import type { Clock } from '../../../base/clock.ts'
import { Fault } from '../../../base/fault.ts'
import type { RandomBytes } from '../../../base/ids.ts'
import type { Logger } from '../../../base/log.ts'
import { FairSerial } from '../../../base/work/fair-serial.ts'
import { beginThread, type RequestThread, reasonOf } from '../../../base/work/request-thread.ts'
import { createCooperativeQueue, type Turns } from '../../../base/work/turns.ts'
import type { EarlierIds } from '../../dialects/responses/earlier.ts'
import { BusyFault } from '../../failure.ts'
import { CutValues } from '../../openai/cut-source.ts'
import type { Earlier } from '../../openai/dialect.ts'
import type { CountOperation, PooledOperation } from '../../types.ts'
import type { AskedCompletion, CountedPrompt, ReadCompletion, ReadPooled } from './read-body.ts'
import type { EarlierTexts, FromThread, ToThread } from './thread.ts'

/**
 * Shorter bodies are parsed by the serving thread, in 5 ms at most, because a message to the thread usually costs more.
 */
export const smallBytesMax = 131_072

export type LargeBody = {
  readonly body: Uint8Array
  /** The organization. */
  readonly owner: string
  readonly signal: AbortSignal
  readonly hasLabels: boolean
}

/** `operation`: an operation that may build on earlier requests. */
type LargePrompt<Asked> = LargeBody & {
  readonly operation: Asked
  /** Loads the earlier responses that the request builds on. */
  readonly earlierOf: (ids: EarlierIds) => Promise<Earlier>
  /** Null if it is not loaded yet. */
  readonly earlier: EarlierTexts | null
}

export type LargeCompletion = LargePrompt<AskedCompletion> & { readonly keepsItems: boolean }

/** `body`: the client's body, moved back. The buffer that was passed in is empty afterwards. */
export type FromLargeBody<Read> = { readonly read: Read; readonly body: Uint8Array }

/** Reads large bodies. Faults: invalid_request, body_too_large; BusyFault. Rejects with the signal's reason. */
export type LargeBodies = {
  readonly readCompletion: (large: LargeCompletion) => Promise<FromLargeBody<ReadCompletion>>
  readonly readPooled: (
    large: LargeBody & { readonly operation: PooledOperation },
  ) => Promise<FromLargeBody<ReadPooled>>
  readonly countPrompt: (large: LargePrompt<CountOperation>) => Promise<CountedPrompt>
  readonly close: () => void
}

export type LargeBodiesDeps = {
  readonly clock: Pick<Clock, 'sleep'>
  readonly random: RandomBytes
  readonly log: Logger
  /** Default: the thread. */
  readonly begin?: () => BodyThread
}

type BodyThread = RequestThread<ToThread, FromThread>

/** A hundred times as long as the worst body takes. */
const replyTimeoutMs = 30_000
const markBytes = 16

export function createLargeBodies({
  clock,
  random,
  log,
  begin = () => beginBodies(clock),
}: LargeBodiesDeps): LargeBodies {
  const turns = new FairSerial()
  let thread: BodyThread | null = null
  const ask = ({ owner, signal }: LargeBody, message: ToThread) =>
    turns.run(owner, async (): Promise<FromThread> => {
      signal.throwIfAborted()
      thread ??= begin()
      const asked = thread
      const { items = [], named = [] } = message.earlier ?? {}
      const given = [message.body, ...items, ...named].map(({ buffer }) => buffer)
      const reply = await asked.askInTime(message, replyTimeoutMs, given)
      if (reply.kind === 'fault') throw faultOf(reply)
      if (reply.kind !== 'refused') return reply
      const reason = reasonOf(reply)
      asked.end(reason)
      if (thread === asked) thread = null
      log.error('the thread that parses large bodies has ended; the next large body restarts it', { reason })
      throw new BusyFault('This large body could not be read.', 1)
    })
  const messageOf = ({ body, hasLabels }: LargeBody, operation: ToThread['operation']): ToThread => ({
    ...{ operation, hasLabels, keepsItems: false, earlier: null },
    body: ownBuffer(body),
    mark: toHex(random(markBytes)),
  })
  const askWithEarlier = async (large: LargePrompt<ToThread['operation']>, keepsItems: boolean) => {
    const message = { ...messageOf(large, large.operation), keepsItems, earlier: large.earlier }
    const reply = await ask(large, message)
    if (reply.kind !== 'needs') return reply
    const earlier = await inTurns(earlierTexts(await large.earlierOf(reply.ids)))
    return await ask(large, { ...message, body: reply.body, earlier })
  }
  return {
    readCompletion: async large => {
      const reply = await askWithEarlier(large, large.keepsItems)
      if (reply.kind !== 'completion') throw unexpected(reply)
      const { cut, ...rest } = reply.read
      return { read: { ...rest, source: cut.source, values: new CutValues(cut) }, body: reply.body }
    },
    readPooled: async large => {
      const reply = await ask(large, messageOf(large, large.operation))
      if (reply.kind !== 'pooled') throw unexpected(reply)
      const { cut, ...rest } = reply.read
      return { read: { ...rest, source: cut.source, values: new CutValues(cut) }, body: reply.body }
    },
    countPrompt: async large => {
      const reply = await askWithEarlier(large, false)
      if (reply.kind !== 'count') throw unexpected(reply)
      return reply.count
    },
    close: () => {
      thread?.end('it was closed')
      thread = null
    },
  }
}

const inTurns = createCooperativeQueue()

export function beginBodies(clock: Pick<Clock, 'sleep'>): BodyThread {
  return beginThread({ name: 'bodies', file: 'inference/gateway/bodies/thread', clock })
}

function faultOf({ code, message, param }: Extract<FromThread, { kind: 'fault' }>): Fault {
  return new Fault(code, message, param === undefined ? {} : { param })
}

function unexpected({ kind }: FromThread): Error {
  return new Error(`the thread that parses large bodies replied ${kind}`)
}

/** Returns the bytes in a buffer of their own, which can be transferred. A shared buffer may be in use elsewhere. */
function ownBuffer(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const { buffer, byteLength } = bytes
  return buffer instanceof ArrayBuffer && buffer.byteLength <= 2 * byteLength
    ? (bytes as Uint8Array<ArrayBuffer>)
    : bytes.slice()
}

/** Characters of items that are encoded together. */
const pieceChars = 65_536

/** Encodes the earlier items as JSON, one long item or several short ones per turn of the event loop. */
export function* earlierTexts({ items, named }: Earlier): Turns<EarlierTexts> {
  return { items: yield* pieces(items), named: yield* pieces([...named]) }
}

function* pieces(values: readonly unknown[]): Turns<Uint8Array<ArrayBuffer>[]> {
  const found: Uint8Array<ArrayBuffer>[] = []
  let texts: string[] = []
  let chars = 0
  for (const value of values) {
    const text = JSON.stringify(value)
    texts.push(text)
    chars += text.length
    if (chars < pieceChars) continue
    found.push(ownUtf8(texts.join(',')))
    texts = []
    chars = 0
    yield
  }
  if (texts.length > 0) found.push(ownUtf8(texts.join(',')))
  return found
}

function ownUtf8(text: string): Uint8Array<ArrayBuffer> {
  return ownBuffer(utf8(text))
}
