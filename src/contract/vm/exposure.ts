// Settings of workload.json by which more of a request reaches the host, or stays in the gateway. Pure. A verification
// fails unless each of them is allowed by name.

import { OneOf } from '../check.ts'
import type { Static } from '../type.ts'
import type { GatewaySettings } from './workload.ts'

export const Exposure = OneOf(['usage-labels', 'no-padding', 'kept-responses', 'traces'])
export type Exposure = Static<typeof Exposure>
export const exposureNames = Exposure.anyOf.map(item => item.const)

/** Meaning of each setting for a client. */
export const EXPOSURE_WORDS: Readonly<Record<Exposure, string>> = {
  'usage-labels': 'the host gets `user` and `metadata` of each request',
  'no-padding': 'packets of streams show the length of each token',
  'kept-responses': 'the gateway keeps requests and responses for later requests of the key',
  traces: 'the host gets times, finish reasons, counts and codes of each request',
}

/** Returns the settings of a gateway in a VM that have to be allowed, in the order of EXPOSURE_WORDS. */
export function exposuresIn(
  gateway: Pick<GatewaySettings, 'usageLabels' | 'padStreams' | 'keptResponses' | 'traces'>,
): Exposure[] {
  const { usageLabels, padStreams, keptResponses, traces } = gateway
  return [
    ...(usageLabels === true ? ['usage-labels' as const] : []),
    ...(padStreams === 'off' ? ['no-padding' as const] : []),
    // Absent means `keptResponsesDefault`.
    ...(keptResponses === undefined || keptResponses.retentionMs > 0 ? ['kept-responses' as const] : []),
    ...(traces === undefined ? [] : ['traces' as const]),
  ]
}
