// Answers of an earlier run of `strongroom init` that did not reach its end, so that a second run has them. Effects:
// one file of the state directory, for root alone.

import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { isRecord } from '../../base/json.ts'
import { resultOr } from '../../base/result-or.ts'
import { readTextOrNull, writeFileAtomic } from '../../linux/files.ts'

export const keptAnswersName = 'init-answers.json'
const textBytesMax = 65_536

/** By the dotted path of the field, or the name of the question. */
export type KeptAnswers = {
  /** Undefined if the question has no answer yet. */
  readonly get: (name: string) => string | undefined
  /** Keeps an answer at once. Without a state directory it lives as long as this run. */
  readonly set: (name: string, answer: string) => void
  /** Removes them all. */
  readonly clear: () => void
}

/** Answers in a damaged file count as none. */
export function openKeptAnswers(stateDir: string): KeptAnswers {
  const path = join(stateDir, keptAnswersName)
  const text = resultOr(() => readTextOrNull(path), null) ?? ''
  const read: unknown = text.length > textBytesMax ? null : resultOr(() => JSON.parse(text), null)
  const answers = new Map<string, string>()
  for (const [name, answer] of Object.entries(isRecord(read) ? read : {})) {
    if (typeof answer === 'string') answers.set(name, answer)
  }
  return {
    get: name => answers.get(name),
    set: (name, answer) => {
      answers.set(name, answer)
      if (!existsSync(stateDir)) return
      writeFileAtomic(path, `${JSON.stringify(Object.fromEntries(answers))}\n`, { mode: 0o600 })
    },
    clear: () => rmSync(path, { force: true }),
  }
}
