// The version of both executables, from package.json, and what this one is made of.

export { version } from '../../package.json'

/** As `scripts/build/provenance.ts` finds it; `commit` is null for a build that no commit stands for. */
export type Provenance = {
  readonly bunSha256: string
  readonly lockSha256: string
  readonly sourceSha256: string
  readonly commit: string | null
}

/** The compiler puts it in. */
declare const STRONGROOM_PROVENANCE: Provenance | undefined

/** Null when run from source, and in the guest, which is measured. */
export const provenance: Provenance | null = typeof STRONGROOM_PROVENANCE === 'undefined' ? null : STRONGROOM_PROVENANCE
