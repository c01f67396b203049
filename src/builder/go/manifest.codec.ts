// go.mod (go.dev/ref/mod, "go.mod files"), as far as names and the toolchain go: go itself reports errors in it. Pure.

import type { PinnedCompiler } from '../../attest/provenance/compiler.ts'

/** The last element of the module's path that is no version. */
export function describeModule(text: string): { readonly name: string; readonly version: null } | null {
  const path = /^[ \t]*module[ \t]+["`]?([^\s"`]+)/m.exec(text)?.[1]
  const name = path?.split('/').findLast(part => !/^v\d+$/.test(part))
  return name === undefined ? null : { name, version: null }
}

/** The `toolchain` line; null without one. */
export function pinnedGo(text: string, path: string): PinnedCompiler | null {
  const channel = /^[ \t]*toolchain[ \t]+["`]?([^\s"`]{1,128})/m.exec(text)?.[1]
  return channel === undefined || channel === 'default' ? null : { path, channel }
}
