// The configuration that decides who gets prompts and how receipts are made, as one canonical text. Pure except for the
// native hash.
//
// The SHA-256 of this text is in the gateway's statement, so it lists every upstream that this process can send a
// prompt to.

import { toHex, utf8 } from '../../base/bytes.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import { hasWorker } from '../../config/checks/worker.ts'
import type { Config } from '../../config/schema.ts'
import { workerUpstreamName } from '../../config/upstream/kinds.ts'
import type { UpstreamConfig } from '../../config/upstream/upstream.ts'

export type GatewayConfiguration = {
  /** Canonical JSON (RFC 8785) and a line break. No secrets, no paths of this host. */
  readonly bytes: Uint8Array
  /** SHA-256 of the bytes, as sha256sum(1) prints it. */
  readonly digest: Uint8Array
}

/** Contents of the files that an upstream's configuration names. */
type Loaded = {
  /** Text of `ca_file`; null without one. */
  readonly ca: string | null
  readonly attestation?: { readonly policy: string; readonly simulatedRoot: string | null }
}

/** Returns the configuration as canonical text. `loaded` has one entry for each upstream, in order. */
export function gatewayConfiguration({ listen, inference }: Config, loaded: readonly Loaded[]): GatewayConfiguration {
  const { response_receipts, nonce_retention_minutes, nonces_max, worker } = inference
  const document = {
    schemaVersion: 1,
    listen: listen.inference,
    // Absent when empty, so the digest equals that of releases without such origins.
    ...(inference.cors_origins.length === 0 ? {} : { cors_origins: inference.cors_origins }),
    receipts: { responses: response_receipts, nonce_retention_minutes, nonces_max },
    upstreams: inference.upstreams.map((upstream, at) => upstreamIn(upstream, loaded[at])),
    ...(inference.fallbacks.length === 0 ? {} : { fallbacks: inference.fallbacks }),
    // The worker's image, command and model digest are in the worker's own statement.
    worker: !hasWorker(worker)
      ? null
      : {
          name: workerUpstreamName,
          model: worker.model,
          context_tokens: worker.context_tokens,
          parallel: worker.parallel,
        },
  }
  const bytes = utf8(`${canonicalJson(document)}\n`)
  return { bytes, digest: sha256(bytes) }
}

/** Includes every field except those removed here, so that a field that is added later is included automatically. */
function upstreamIn(configured: UpstreamConfig, loaded: Loaded | undefined) {
  const { key_file, ca_file, weight, concurrency_max, embedding_models, spki_sha256_next, ...rest } = configured
  const { attestation, attestation_policy, attestation_collateral, attestation_simulated_root, ...others } = rest
  const { attestation_path, attestation_minutes, ...upstream } = others
  return {
    ...upstream,
    // Absent when unset, so the digest equals that of releases without such fields.
    ...(embedding_models.length === 0 ? {} : { embedding_models }),
    ...(spki_sha256_next === '' ? {} : { spki_sha256_next }),
    ...(attestation === ''
      ? {}
      : {
          ...{ attestation, attestation_path, attestation_minutes },
          attestation_policy_sha256: digestOf(loaded?.attestation?.policy ?? null),
          attestation_simulated_root_sha256: digestOf(loaded?.attestation?.simulatedRoot ?? null),
        }),
    ca_sha256: digestOf(loaded?.ca ?? null),
  }
}

/** Returns the SHA-256 of a file's text; '' if there is none. */
function digestOf(text: string | null): string {
  return text === null ? '' : toHex(sha256(utf8(text)))
}

function sha256(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes))
}
