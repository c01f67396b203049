// Settings of a gateway that keeps receipts or responses, where its workload document has none.

import type { GatewaySettings } from './workload.ts'

/** Receipts of responses that are kept for their clients. */
export const keptReceiptsDefault: NonNullable<GatewaySettings['keptReceipts']> = {
  retentionMs: 900_000,
  countMax: 8_192,
  bytesMax: 67_108_864,
}

export const keptResponsesDefault: NonNullable<GatewaySettings['keptResponses']> = {
  retentionMs: 1_800_000,
  countMax: 65_536,
  bytesMax: 134_217_728,
  bytesPerKeyMax: 33_554_432,
}
