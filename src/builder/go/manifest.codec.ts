// Reads names and the toolchain from go.mod (go.dev/ref/mod, "go.mod files"); go itself reports errors in it. Pure.

import type { PinnedCompiler } from '../../attest/provenance/compiler.ts'

/** Returns the last element of the module's path that is not a version. */
export function describeModule(text: string): { readonly name: string; readonly version: null } | null {
  const path = /^[ \t]*module[ \t]+["`]?([^\s"`]+)/m.exec(text)?.[1]
  const name = path?.split('/').findLast(part => !/^v\d+$/.test(part))
  return name === undefined ? null : { name, version: null }
}

/** Returns the `toolchain` line; null if there is none. */
export function pinnedGo(text: string, path: string): PinnedCompiler | null {
  const channel = /^[ \t]*toolchain[ \t]+["`]?([^\s"`]{1,128})/m.exec(text)?.[1]
  return channel === undefined || channel === 'default' ? null : { path, channel }
}
