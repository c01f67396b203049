// The launch settings of a VM that starts now, read each time because they may be unusable for a while, as during an
// update. Effects: those of its `read`.

import { messageOf } from '../../base/fault.ts'

export type TemplateDeps<T> = {
  /** Reads the settings. Throws while they cannot be used. */
  readonly read: () => T
  /** Called after every failure. `isNew`: whether the previous failure had another reason, or there was none. */
  readonly onUnusable: (reason: string, error: unknown, isNew: boolean) => void
}

export class Template<T> {
  readonly #deps: TemplateDeps<T>
  #problem: string | null = null

  constructor(deps: TemplateDeps<T>) {
    this.#deps = deps
  }

  /** Why it could not be used at the last reading. */
  get problem(): string | null {
    return this.#problem
  }

  /** Returns the settings; null if they cannot be used now. */
  read(): T | null {
    try {
      const found = this.#deps.read()
      this.#problem = null
      return found
    } catch (error) {
      const reason = messageOf(error)
      const isNew = this.#problem !== reason
      this.#problem = reason
      this.#deps.onUnusable(reason, error, isNew)
      return null
    }
  }
}
