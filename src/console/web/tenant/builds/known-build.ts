// A build as the tab that submitted it remembers it. Pure.

import type { Toolchain } from '../../../../contract/http/build.ts'

export type KnownBuild = {
  readonly id: string
  /** Hexadecimal, drawn by this page. */
  readonly nonce: string
  readonly source:
    | { readonly kind: 'git'; readonly url: string; readonly ref: string | null }
    | { readonly kind: 'archive'; readonly name: string }
  readonly projectDir: string | null
  readonly toolchain: Toolchain | null
  readonly reproduce: boolean
  readonly atMs: number
}
