// Encodes a build's events as lines of events.jsonl and as server-sent events
// (https://html.spec.whatwg.org/#server-sent-events). Pure.
//
// A line is `{"id":…,"seq":…,"atMs":…,"data":{…}}`. Only this file writes it, so `data` is extracted unchanged, without
// parsing.

import type { BuildEvent } from '../../contract/http/build.ts'

export type EventLine = {
  /** Counts from 1 without gaps. */
  readonly id: number
  /** The guest's own number of its line; null for a line of the service. */
  readonly seq: number | null
  readonly atMs: number
  readonly data: BuildEvent
}

/** Encodes a line, including its LF. `type` comes first in `data`. */
export function toLine({ id, seq, atMs, data }: EventLine): string {
  const { type, ...rest } = data
  return `{"id":${id},"seq":${seq ?? 'null'},"atMs":${atMs},"data":${JSON.stringify({ type, ...rest })}}\n`
}

const HEAD = /^\{"id":([0-9]{1,15}),"seq":(null|[0-9]{1,15}),"atMs":([0-9]{1,16}),"data":(?=\{"type":"([a-z]{1,16})")/

export type ReadLine = {
  readonly id: number
  readonly seq: number | null
  readonly type: string
  /** JSON text of the event. */
  readonly data: string
}

/** Parses a line without its LF; null if it is damaged, as after a power cut. */
export function readLine(line: string): ReadLine | null {
  const head = readHead(line)
  if (head === null || !line.endsWith('}}')) return null
  const { id, seq, type, headChars } = head
  return { id, seq, type, data: line.slice(headChars, -1) }
}

type LineHead = Pick<EventLine, 'id' | 'seq' | 'atMs'> & {
  readonly type: string
  /** Position of `data`. */
  readonly headChars: number
}

/** Upper bound for the head of a line. */
export const headBytesMax = 128

/** Parses the part of a line before its data; null if it is damaged. */
export function readHead(line: string): LineHead | null {
  const match = HEAD.exec(line)
  if (match === null) return null
  const [head, id = '', seq = '', atMs = '', type = ''] = match
  return { id: Number(id), seq: seq === 'null' ? null : Number(seq), atMs: Number(atMs), type, headChars: head.length }
}

/** Encodes an event. JSON text has no line breaks. */
export function toServerSentEvent({ id, type, data }: ReadLine): string {
  return `event: ${type}\nid: ${id}\ndata: ${data}\n\n`
}

export const ping = ': ping\n\n'
/** Milliseconds after which a disconnected client retries. */
export const retryLine = 'retry: 1000\n\n'
