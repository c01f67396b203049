// Cost of encryption to the gateway's attested keys, for a request and for a chunk of a stream.

import type { Figures } from './bench-report.ts'
import { measureEncryption } from './encryption.ts'
import type { BenchContext } from './main.ts'

export function run(context: BenchContext): Promise<Figures> {
  return measureEncryption(context)
}
