// Failures of nix for the people who sent the source: the cause and the remedy. Pure.

import type { BuildFailure } from '../failure.ts'
import { type Cause, causedFailure } from '../failure.ts'

/** The first that fits counts. The words are those of Nix 2.8 to 2.26. */
const CAUSES: readonly Cause[] = [
  {
    pattern: /does not provide attribute|output attribute '[^']*' is not a derivation/,
    errorType: 'source_invalid',
    message:
      'the flake has no package of this name; name one by output (--flake-output), or add packages.x86_64-linux.default',
  },
  {
    pattern: /access to (?:absolute path|path|URI) '[^']*' is forbidden in (?:pure|restricted)/,
    errorType: 'source_invalid',
    message: 'the flake reads something outside of itself; put the file into the source, or make it an input',
  },
  {
    pattern: /allow-import-from-derivation/,
    errorType: 'source_invalid',
    message:
      'the flake builds something while it is evaluated, which is refused; put the generated file into the source',
  },
  {
    pattern: /no-update-lock-file|requires lock file changes|unlocked (?:flake )?(?:input|reference)/,
    errorType: 'source_invalid',
    message: 'flake.lock does not match flake.nix; run `nix flake lock`, and send flake.lock with the source',
  },
  {
    pattern: /a '[^']+' with features \{[^}]*\} is required|required to build '[^']+', but I am a/,
    errorType: 'source_invalid',
    message: 'a derivation is for another system than x86_64-linux; name an output for that system',
  },
]

/** `what`: how the program ended. `output`: the end of what it printed. */
export function nixFailure(what: string, output: string): BuildFailure {
  return causedFailure(CAUSES, what, output)
}
