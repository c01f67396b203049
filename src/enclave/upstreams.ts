// The upstreams of workload.json in the form of the router. Pure except for the key, which is read for each request.

import type { WorkloadUpstream } from '../contract/vm/workload.ts'
import type { UpstreamTarget } from '../inference/upstream/target.ts'

/** `keyOf`: returns the key to send now; the host can change it while the gateway runs. */
export function upstreamTarget(upstream: WorkloadUpstream, keyOf: (name: string) => string | null): UpstreamTarget {
  const { name, url, engine, models, weight, concurrencyMax, choicesMax, contextTokens, hasKey, attestation } = upstream
  return {
    name,
    url: url.replace(/\/+$/, ''),
    unixSocket: null,
    get key() {
      return hasKey ? keyOf(name) : null
    },
    engine,
    models,
    embeddingModels: upstream.embeddingModels ?? [],
    weight,
    concurrencyMax,
    choicesMax,
    contextTokens,
    content: upstream.content,
    remoteUrls: upstream.remoteUrls,
    ca: upstream.ca,
    spkiSha256: upstream.spkiSha256,
    ...(upstream.spkiSha256Next === undefined ? {} : { spkiSha256Next: upstream.spkiSha256Next }),
    ...(attestation === undefined
      ? {}
      : { attestation: { simulatedRoot: null, ...attestation, collateralFile: null } }),
  }
}
