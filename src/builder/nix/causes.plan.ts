// Explains failures of nix to the people who sent the source: cause and remedy. Pure.

import type { BuildFailure } from '../failure.ts'
import { type Cause, causedFailure } from '../failure.ts'

const LOCK_MISMATCH = /no-update-lock-file|requires lock file changes|unlocked (?:flake )?(?:input|reference)/

/** The first match applies. Texts of Nix 2.8 to 2.26. */
const CAUSES: readonly Cause[] = [
  {
    pattern: /does not provide attribute/,
    errorType: 'source_invalid',
    message:
      'the flake does not define this package; select another with output (--flake-output), or add packages.x86_64-linux.default',
  },
  {
    pattern: /output attribute '[^']*' is not a derivation|attribute '[^']*' to be a derivation/,
    errorType: 'source_invalid',
    message: 'this output of the flake is not a derivation; select a package with output (--flake-output)',
  },
  {
    pattern: /access to (?:absolute path|path|URI) '[^']*' is forbidden in (?:pure|restricted)/,
    errorType: 'source_invalid',
    message: 'the flake reads a file outside of the source; add the file to the source, or make it an input',
  },
  {
    pattern: /allow-import-from-derivation/,
    errorType: 'source_invalid',
    message:
      'the flake builds a derivation during evaluation, which is not allowed; add the generated file to the source',
  },
  {
    pattern: LOCK_MISMATCH,
    errorType: 'source_invalid',
    message: 'flake.lock does not match flake.nix; run `nix flake lock`, and send flake.lock with the source',
  },
  {
    pattern: /a 'x86_64-linux' with features \{[^}]+\} is required/,
    errorType: 'source_invalid',
    message:
      'a derivation needs a feature that the builder lacks, such as a virtual machine (kvm); select an output without it',
  },
  {
    pattern: /a '[^']+' with features \{[^}]*\} is required|required to build '[^']+', but I am a/,
    errorType: 'source_invalid',
    message: 'a derivation is for a system other than x86_64-linux; select an output for that system',
  },
  {
    // Lines of build scripts begin with the name of their derivation.
    pattern: /^\s*error: hash mismatch in fixed-output derivation/m,
    errorType: 'checksum_mismatch',
    message:
      'the output of a derivation does not match the hash in the flake; compare the file with its origin first; if the change is intended, correct the hash',
  },
  {
    pattern: /^\S+> .*(?:error: unable to download|Could not resolve host)/m,
    errorType: 'source_unreachable',
    message:
      'a derivation fetches a file, but builds run without a network; add the file to the source, or submit to a service that fetches',
  },
  {
    pattern: /unable to download|Could not resolve host/,
    errorType: 'source_unreachable',
    message:
      'the flake fetches an input that flake.lock does not list, but builds run without a network; run `nix flake lock`, and turn files that it fetches during evaluation into inputs of flake.nix',
  },
  {
    pattern: /error: (?:syntax error|undefined variable|.*called with unexpected argument)/,
    errorType: 'source_invalid',
    message: 'flake.nix has an error; run `nix build` with the output of the request to see it',
  },
]

/** Reports whether the lock does not match the flake; false for an unreachable host. */
export function isLockMismatch(output: string): boolean {
  return LOCK_MISMATCH.test(output)
}

/** Reports whether a cache served other bytes than it describes, or bytes that no accepted key signed. */
export function hasOtherBytes(output: string): boolean {
  return /not signed by any of the keys|lacks a valid signature|hash mismatch|is incomplete|is corrupt|corrupted input/i.test(
    output,
  )
}

/** Returns the failure. `what`: how the program ended. `output`: the end of its output. */
export function nixFailure(what: string, output: string): BuildFailure {
  return causedFailure(CAUSES, what, output)
}
