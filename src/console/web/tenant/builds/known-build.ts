// A build as the tab that submitted it remembers it. Pure.

import type { Toolchain, ToolchainOptions } from '../../../../contract/http/build-options.ts'

export type KnownBuild = {
  readonly id: string
  /** Hexadecimal, drawn by this page. */
  readonly nonce: string
  readonly source:
    | { readonly kind: 'git'; readonly url: string; readonly ref: string | null }
    | { readonly kind: 'archive'; readonly name: string }
  readonly projectDir: string | null
  readonly toolchain: Toolchain | null
  readonly options: ToolchainOptions | null
  readonly reproduce: boolean
  readonly atMs: number
}
