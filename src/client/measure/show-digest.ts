// Prints a measurement, compared with the expected one. Effects: output, exit code.

import { type Check, verdict } from '../../attest/verdict.ts'
import type { Run } from '../../terminal/command.ts'
import { EXIT } from '../../terminal/exit.ts'
import { verdictDocument, verdictText } from '../../terminal/render.ts'
import { digestCheck, digestDocument, digestText, type ShownDigest } from './digest-render.ts'

export async function showDigest(run: Run, digest: ShownDigest, expected: Uint8Array | undefined): Promise<void> {
  const matched = digestCheck(digest.digest, expected)
  const shown = { document: digestDocument(digest), text: digestText(digest, run.paint) }
  await showCompared(run, shown, matched === null ? null : [matched])
}

/** Prints the result. `checks` is null if nothing is expected. */
export async function showCompared(
  run: Run,
  { document, text }: { readonly document: object; readonly text: string },
  checks: readonly Check[] | null,
): Promise<void> {
  if (checks === null) return await run.result(document, text)
  const compared = verdict(checks)
  await run.result({ ...verdictDocument(compared), ...document }, text + verdictText(compared, run.paint))
  if (!compared.ok) run.exitWith(EXIT.failed)
}
