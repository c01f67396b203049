// Zstandard of node:zlib, which the pinned types of Node do not have.

import type { Transform } from 'node:stream'

declare module 'zlib' {
  export function createZstdDecompress(options: {
    readonly chunkSize: number
    readonly params: Readonly<Record<number, number>>
  }): Transform
  namespace constants {
    const ZSTD_d_windowLogMax: number
  }
}
