// Prepares text from guests, builds or tenants for display. Pure. The page puts it only into text nodes.

import { harmless } from '../../../base/harmless.ts'

const shownCharsMax = 4_096

/** Replaces control and bidi characters by symbols, and limits the length. */
export function shownText(text: string, charsMax = shownCharsMax): string {
  const cut = text.length > charsMax ? `${text.slice(0, charsMax)}…` : text
  return harmless(cut)
}

/** Does the same as `shownText`, on one line. */
export function shownLine(text: string, charsMax = shownCharsMax): string {
  return shownText(text, charsMax).replace(/[\r\n\t]+/g, ' ')
}

/** Keeps the end of growing text, cut at a line. */
export class GrowingText {
  readonly #charsMax: number
  #text = ''
  #isCut = false

  constructor(charsMax: number) {
    this.#charsMax = charsMax
  }

  add(text: string): void {
    this.#text += text
    if (this.#text.length <= this.#charsMax) return
    const from = this.#text.indexOf('\n', this.#text.length - this.#charsMax)
    this.#text = this.#text.slice(from < 0 ? -this.#charsMax : from + 1)
    this.#isCut = true
  }

  get text(): string {
    return this.#text
  }

  /** Whether older text was dropped. */
  get isCut(): boolean {
    return this.#isCut
  }
}
