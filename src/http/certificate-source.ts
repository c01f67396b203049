// Where served certificates come from: what every source offers, and the names that the local ones bear. Pure.

import { isIP } from 'node:net'
import type { Runtime } from '../base/runtime.ts'
import { parseListen } from '../config/listen.ts'
import type { Config } from '../config/schema.ts'
import type { Authority } from './authority.ts'
import type { NamedCertificate, TlsPair } from './pair.ts'
import type { FormerNames } from './served-names.ts'

export type TlsDeps = Runtime & {
  readonly config: NamingConfig
  readonly stateDir: string
  /** `tls.changed`, `tls.refused`, `tls.expiring`, `tls.authority_replaced`, for the journal. */
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
  /**
   * Whether no client can have a certificate of this appliance yet, because it has never had an organization. Then
   * names change without a trace of the former ones. Default: false.
   */
  readonly isFresh?: boolean
}

export type NamingConfig = Pick<Config, 'tls' | 'domain' | 'listen' | 'network' | 'console'> & {
  readonly inference: Pick<Config['inference'], 'placement'>
}

/** DNS names and addresses of a local certificate. Instances of earlier releases use the gateway's address. */
export function certificateNames({ tls, domain, listen, network, console }: NamingConfig): string[] {
  const specific = [listen.instances, listen.console]
    .map(text => parseListen(text)?.hostname ?? '')
    .filter(address => isIP(address) !== 0 && !['0.0.0.0', '::'].includes(address))
  const own = [
    domain,
    `instances.${domain}`,
    `inference.${domain}`,
    ...(listen.builds === '' ? [] : [`builds.${domain}`]),
    'localhost',
    '127.0.0.1',
    '::1',
    network.gateway_v4,
  ]
  return [...new Set([...own, ...specific, ...tls.names, ...(listen.console === '' ? [] : console.names)])]
}

/** Certificates of one pair, all for its key. */
export type ServedCertificates = { readonly first: TlsPair; readonly named: readonly NamedCertificate[] }

export type Leaves = { readonly first: string; readonly named: readonly NamedCertificate[] }

export type Source = {
  readonly kind: 'local' | 'operator'
  readonly first: TlsPair
  readonly caFile: string | null
  /** Null if nothing is known of it. */
  readonly authorityEndsMs: number | null
  readonly intervalMs: number
  readonly warnMs: number
  /** The certificates to serve for the key of a pair. */
  readonly show: (pair: TlsPair) => Promise<ServedCertificates>
  readonly former: () => FormerNames | null
  /** The same certificates for a key of another process; null if they are not apart. */
  readonly leaves: (spki: Uint8Array) => Promise<Leaves | null>
  /** Changes with the names and the authority of the certificates for keys of other processes. */
  readonly stamp: () => string
  /** Signs for keys of other processes. */
  readonly authority: () => Promise<Pick<Authority, 'certify'>>
  /** The pair to serve from now on, or null for no change. */
  readonly check: (now: { readonly current: TlsPair; readonly forced: boolean }) => Promise<TlsPair | null>
}

/** Within this time before the end of the operator's certificate the log warns at start and every day. */
export const expiryWarnMs = 14 * 86_400_000
