// The configuration that decides who gets prompts and how receipts are made, as one canonical text. Pure but for the
// native hash.
//
// Its SHA-256 is in the gateway's statement, so the text lists every upstream that this process can send a prompt to.

import { toHex, utf8 } from '../../base/bytes.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import { workerUpstreamName } from '../../config/checks/checks.ts'
import { hasWorker } from '../../config/checks/worker.ts'
import type { Config } from '../../config/schema.ts'

export type GatewayConfiguration = {
  /** Canonical JSON (RFC 8785) and a line break. No secrets, no paths of this host. */
  readonly bytes: Uint8Array
  /** SHA-256 of the bytes, as sha256sum(1) prints it. */
  readonly digest: Uint8Array
}

/** `authorities`: for each upstream in order the text of its `ca_file`, null without one. */
export function gatewayConfiguration(
  { listen, inference }: Config,
  authorities: readonly (string | null)[],
): GatewayConfiguration {
  const { response_receipts, nonce_retention_minutes, nonces_max, worker } = inference
  const document = {
    schemaVersion: 1,
    listen: listen.inference,
    // Left out where there is none: so the digest is that of before there were such origins.
    ...(inference.cors_origins.length === 0 ? {} : { cors_origins: inference.cors_origins }),
    receipts: { responses: response_receipts, nonce_retention_minutes, nonces_max },
    // Every field but these, so that a field that comes later is in it by itself.
    upstreams: inference.upstreams.map(
      ({ key_file, ca_file, weight, concurrency_max, embedding_models, spki_sha256_next, ...upstream }, at) => ({
        ...upstream,
        // Left out where there is none: so the digest is that of before there were such fields.
        ...(embedding_models.length === 0 ? {} : { embedding_models }),
        ...(spki_sha256_next === '' ? {} : { spki_sha256_next }),
        ca_sha256: digestOf(authorities[at] ?? null),
      }),
    ),
    ...(inference.fallbacks.length === 0 ? {} : { fallbacks: inference.fallbacks }),
    // Its image, its command and the digest of its model are in its own statement.
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

function digestOf(authority: string | null): string {
  return authority === null ? '' : toHex(sha256(utf8(authority)))
}

function sha256(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes))
}
