// Formats a launch digest for people and for programs, and compares it with the expected one. Pure.

import type { LaunchPart } from '../../attest/launch/digest.ts'
import { type Check, check } from '../../attest/verdict.ts'
import { equalConstantTime, toHex } from '../../base/bytes.ts'
import { fields, hexNumber, type Paint } from '../../terminal/render.ts'

export type ShownDigest = {
  readonly digest: Uint8Array
  /** The loader whose order was followed. Loaders differ, so a digest is meaningful only with its profile. */
  readonly profile: string
  readonly parts: readonly LaunchPart[]
}

/** Compares a digest with the expected one; null if none is expected. */
export function digestCheck(digest: Uint8Array, expected: Uint8Array | undefined): Check | null {
  if (expected === undefined) return null
  const found = toHex(digest)
  return check('launch-digest', equalConstantTime(digest, expected), `${found} is not ${toHex(expected)}`, found)
}

export function digestText({ digest, profile }: ShownDigest, paint: Paint): string {
  return fields(paint, [
    ['profile', profile],
    ['digest', toHex(digest)],
  ])
}

export function digestDocument({ digest, profile, parts }: ShownDigest) {
  return {
    profile,
    digest: toHex(digest),
    parts: parts.map(part => ({
      name: part.name,
      type: part.type,
      gpa: hexNumber(part.gpa),
      pages: part.pageCount,
      digest: toHex(part.digest),
    })),
  }
}
