// The configuration file as `strongroom init` would leave it. No effects.

import { changesTo, editToml, inlineToml, type Setting, settingsOf } from '../../config/edit.ts'
import { type ConfigProblem, parseConfig } from '../../config/parse.ts'
import type { Config } from '../../config/schema.ts'

export type Candidate = {
  readonly text: string
  readonly config: Config
  /** Fields that are ignored. */
  readonly warnings: readonly ConfigProblem[]
  /** One line each: `field = value`. Empty if the file already has all values. */
  readonly changes: readonly string[]
}

export type CandidateVerdict =
  | ({ readonly ok: true } & Candidate)
  | { readonly ok: false; readonly problems: readonly ConfigProblem[] }

/** `text` is that of the present file, "" where there is none; `wanted` are the fields to be set. */
export function candidateOf(text: string, wanted: readonly Setting[], file: string): CandidateVerdict {
  const changes = changesTo(text, wanted)
  const edited = editToml(text, changes)
  const verdict = parseConfig(edited, file)
  if (!verdict.ok) return verdict
  const missing = changesTo(edited, wanted)
  const lost = (settingsOf(text) ?? []).filter(({ path }) => settingsOf(edited)?.every(other => !isSame(other, path)))
  const wrong = [...missing, ...lost][0]
  if (wrong !== undefined) {
    const field = wrong.path.join('.')
    return {
      ok: false,
      problems: [{ file, line: 1, field, message: 'cannot be set here by a program; edit the file' }],
    }
  }
  const lines = changes.map(({ path, value }) => `${path.join('.')} = ${inlineToml(value)}`)
  return { ok: true, text: edited, config: verdict.config, warnings: verdict.warnings, changes: lines }
}

function isSame(setting: Setting, path: Setting['path']): boolean {
  return setting.path.join('\n') === path.join('\n')
}
