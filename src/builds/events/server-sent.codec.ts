// Parses events of a build that another host streams back into lines. Pure.

import type { ReadLine } from './line.codec.ts'

/** Longest text without an end of event. Events have a few thousand characters. */
const restCharsMax = 262_144

const EVENT = /^event: ([a-z]{1,16})\nid: ([0-9]{1,15})\ndata: (\{[^\n]*\})$/

export class ServerSentEvents {
  readonly #decoder = new TextDecoder()
  #rest = ''
  #lastId: number

  /** Skips events up to and including `afterId`. */
  constructor(afterId: number) {
    this.#lastId = afterId
  }

  /** Returns the complete events, ignoring other fields. Throws if an event is too long. */
  push(bytes: Uint8Array): ReadLine[] {
    const blocks = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split('\n\n')
    this.#rest = blocks.pop() ?? ''
    if (this.#rest.length > restCharsMax) throw new Error('an event of another host has no end')
    return blocks.flatMap(block => {
      const [, type = '', id = '', data = ''] = EVENT.exec(block) ?? []
      if (type === '' || Number(id) <= this.#lastId) return []
      this.#lastId = Number(id)
      return [{ id: Number(id), seq: null, type, data }]
    })
  }
}
