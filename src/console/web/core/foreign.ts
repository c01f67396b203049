// Text that guests, builds or tenants wrote, made ready to show. Pure. The page puts it into text nodes alone.

import { harmless } from '../../../base/harmless.ts'

const shownCharsMax = 4_096

/** Control and bidi characters as symbols, and bounded in length. */
export function shownText(text: string, charsMax = shownCharsMax): string {
  const cut = text.length > charsMax ? `${text.slice(0, charsMax)}…` : text
  return harmless(cut)
}

/** The same on one line. */
export function shownLine(text: string, charsMax = shownCharsMax): string {
  return shownText(text, charsMax).replace(/[\r\n\t]+/g, ' ')
}

/** The newest text of something that grows, cut at a line. */
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

  /** Whether older text was left out. */
  get isCut(): boolean {
    return this.#isCut
  }
}
