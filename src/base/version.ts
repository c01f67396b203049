// The version of both executables, from package.json, and what this one is made of.

export { version } from '../../package.json'

/** From `scripts/build/provenance.ts`; `commit` is null for a build from an uncommitted tree. */
export type Provenance = {
  readonly bunSha256: string
  readonly lockSha256: string
  readonly sourceSha256: string
  readonly commit: string | null
}

/** Set by the compiler. */
declare const STRONGROOM_PROVENANCE: Provenance | undefined

/** Null when run from source, and in the guest, which is measured. */
export const provenance: Provenance | null = typeof STRONGROOM_PROVENANCE === 'undefined' ? null : STRONGROOM_PROVENANCE
