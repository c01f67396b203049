// An upstream's settings, and the check of its identity by certificate chain, name and pinned key. Pure.

import { X509Certificate } from 'node:crypto'
import { isIP } from 'node:net'
import { toHex } from '../../base/bytes.ts'
import type { ContentKind, Engine } from '../../config/upstream/kinds.ts'
import type { UpstreamAttestation } from './attested/attestation.ts'

export type UpstreamTarget = {
  readonly name: string
  /** Up to and including `/v1`, no slash at the end. */
  readonly url: string
  /** Path of the Unix socket to connect to instead of the address in `url`; null if there is none. */
  readonly unixSocket: string | null
  readonly key: string | null
  /** Decides which request fields are sent. */
  readonly engine: Engine
  readonly models: readonly string[]
  /** The models that make embeddings or rank documents; the others make completions. */
  readonly embeddingModels: readonly string[]
  readonly weight: number
  readonly concurrencyMax: number
  /** Maximum number of choices per request. */
  readonly choicesMax: number
  /** Prompt and completion together; null if unknown. */
  readonly contextTokens: number | null
  /** Kinds of content parts that it accepts besides text. */
  readonly content: readonly ContentKind[]
  /** Whether content parts may contain URLs, which the engine fetches. */
  readonly remoteUrls: boolean
  readonly ca: string | null
  readonly spkiSha256: string | null
  /** A second key that is also accepted, while the upstream changes its own. */
  readonly spkiSha256Next?: string
  /** The evidence that it must show; absent if none is required. */
  readonly attestation?: UpstreamAttestation
  /** SHA-256 of the public key (SPKI) that its evidence currently names; null if it has shown none. */
  readonly attestedKey?: string | null
}

/** Address of a target, in the form of Bun.connect. */
export type Endpoint = {
  readonly address: { readonly unix: string } | { readonly hostname: string; readonly port: number }
  /** Null without TLS. Bun checks chain and name, `isExpected` checks the pins. */
  readonly tls: { readonly ca?: string; readonly serverName?: string; readonly rejectUnauthorized: true } | null
  /** The key must be one of these; if the list is empty, any key is accepted. */
  readonly configuredPins: readonly string[]
  /** The key must also be this one; null if evidence names none. */
  readonly attestedKey: string | null
  /** Value of the Host header. */
  readonly host: string
  /** Prefix of the path of every request. */
  readonly basePath: string
}

export function endpointOf(
  target: Pick<UpstreamTarget, 'url' | 'unixSocket' | 'ca' | 'spkiSha256' | 'spkiSha256Next' | 'attestedKey'>,
): Endpoint {
  const url = new URL(target.url)
  const isTls = url.protocol === 'https:'
  const hostname = url.hostname.replace(/^\[|\]$/g, '')
  const common = { host: url.host, basePath: url.pathname.replace(/\/+$/, '') }
  if (target.unixSocket !== null) {
    return { ...common, address: { unix: target.unixSocket }, tls: null, configuredPins: [], attestedKey: null }
  }
  return {
    ...common,
    address: { hostname, port: Number(url.port || (isTls ? 443 : 80)) },
    tls: isTls
      ? {
          rejectUnauthorized: true,
          ...(target.ca === null ? {} : { ca: target.ca }),
          // Only names are sent (RFC 6066 3), but addresses are checked too.
          ...(isIP(hostname) === 0 ? { serverName: hostname } : {}),
        }
      : null,
    configuredPins: [target.spkiSha256, target.spkiSha256Next].flatMap(pin => pin ?? []),
    attestedKey: target.attestedKey ?? null,
  }
}

/**
 * Reports whether a connection with this certificate may carry prompts: its key is a configured one and the attested
 * one.
 */
export function isExpected({ configuredPins, attestedKey }: Endpoint, der: unknown): boolean {
  return isPinned(configuredPins, der) && (attestedKey === null || isPinned([attestedKey], der))
}

/** Reports whether a certificate (DER) has a pinned key: SHA-256 over SubjectPublicKeyInfo (RFC 5280 4.1). */
export function isPinned(pins: readonly string[], der: unknown): boolean {
  if (pins.length === 0) return true
  if (!(der instanceof Uint8Array)) return false
  try {
    const spki = new X509Certificate(der).publicKey.export({ type: 'spki', format: 'der' })
    return pins.includes(toHex(new Bun.CryptoHasher('sha256').update(spki).digest()))
  } catch {
    return false
  }
}
