// The real TDX quotes under test/vectors/tdx with their collateral, and a time at which it was in force. Reads files.

import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'

const folder = resolve(import.meta.dir, '../../../vectors/tdx')

export type TdxVector = {
  readonly name: 'v4' | 'v5'
  readonly quote: Uint8Array
  readonly collateral: Uint8Array
  readonly asOfMs: number
}

export const TDX_VECTORS: readonly TdxVector[] = [
  { name: 'v4', ...filesOf('v4'), asOfMs: Date.parse('2025-06-20T00:00:00Z') },
  { name: 'v5', ...filesOf('v5'), asOfMs: Date.parse('2026-02-20T00:00:00Z') },
]

function filesOf(name: string): { readonly quote: Uint8Array; readonly collateral: Uint8Array } {
  const bytes = (end: string) => new Uint8Array(readFileSync(resolve(folder, `${name}.${end}`)))
  return { quote: bytes('quote'), collateral: bytes('collateral.json') }
}
