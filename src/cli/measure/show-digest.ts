// Prints a launch digest, compared with an expected one. Effects: output, exit code.

import type { Run } from '../cli.ts'
import { EXIT } from '../exit.ts'
import { digestCheck, digestDocument, digestText, type ShownDigest } from './digest-render.ts'

export async function showDigest(run: Run, digest: ShownDigest, expected: Uint8Array | undefined): Promise<void> {
  const matched = digestCheck(digest.digest, expected)
  await run.result(digestDocument(digest, matched), digestText(digest, matched, run.paint))
  if (matched !== null && matched.outcome !== 'pass') run.exitWith(EXIT.failed)
}
