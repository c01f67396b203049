// Services A, B and C behind the console: those of this process by a call, a gateway in its VM over TLS. Effects: those
// of the services; reads the authority's certificate, and the keys of the directory.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { listenAddress } from '../../config/listen.ts'
import type { Config } from '../../config/schema.ts'
import type { ServiceName, TenantPeer, TenantService, TenantServices } from '../../console/http/tenant.routes.ts'
import { AUTHORITIES } from '../../http/authority.ts'
import { LimitedFault, UnavailableFault } from '../../http/limited.ts'
import { createPublicLimiter } from '../../http/public-rate.ts'
import { createRequestRate } from '../../http/rate.ts'
import { createGatewayAuthenticate } from '../../inference/keys/stored-keys.ts'
import { createAuthenticate } from '../../instances/http/auth.ts'
import { fetchDirectly } from '../../linux/net/outgoing.ts'
import type { MaintenanceMode } from '../../operator/maintenance/mode.ts'
import type { Store } from '../../store/db.ts'

export type Services = {
  readonly instances: {
    readonly fetch: (request: Request, peer: Pick<TenantPeer, 'address'>) => Promise<Response>
  }
  /** Null if it is off. */
  readonly builds: { readonly fetch: (request: Request, peer: TenantPeer) => Promise<Response> } | null
  readonly gateway: {
    readonly url: string | null
    readonly fetch: ((request: Request, address: () => string) => Promise<Response>) | null
  }
}

export type TenantParts = {
  readonly config: Config
  readonly stateDir: string
  readonly maintenance: Pick<MaintenanceMode, 'view'>
  readonly store: Pick<Store, 'directory'>
  readonly clock: Clock
  readonly log: Logger
}

export function tenantServices({ instances, builds, gateway }: Services, parts: TenantParts): TenantServices {
  const { config, stateDir, clock } = parts
  const { fetch: ask, url } = gateway
  const caFile = join(stateDir, AUTHORITIES.clients.directory, 'ca.pem')
  const publicRequestsPerMinute = config.inference.public_requests_per_minute
  const here: TenantService | null = ask === null ? null : (request, { address }) => ask(request, address)
  return {
    urls: {
      instances: publicUrl('instances', config),
      inference: publicUrl('inference', config),
      builds: publicUrl('builds', config),
    },
    instances: (request, { address }) => instances.fetch(request, { address }),
    builds: builds === null ? null : (request, peer) => builds.fetch(request, peer),
    inference: here ?? (url === null ? null : relayTo({ url, caFile, clock, publicRequestsPerMinute })),
    maintenance: () => parts.maintenance.view(),
    ownerOfKey: keyOwners(parts),
  }
}

/** Looks a key up as its service does, which looks again: what it then admits is its own decision. */
function keyOwners({ config, store, clock, log }: TenantParts): TenantServices['ownerOfKey'] {
  const { key_requests_per_minute, key_tokens_per_minute, key_concurrency_max } = config.inference
  const { directory } = store
  const ofOrganization = createAuthenticate({ directory, clock, log })
  const ofGateway = createGatewayAuthenticate({
    ...{ db: directory.db, clock, log },
    defaults: {
      requestsPerMinute: key_requests_per_minute,
      tokensPerMinute: key_tokens_per_minute,
      concurrencyMax: key_concurrency_max,
    },
  })
  const ownerOf = (headers: Headers, service: ServiceName | 'any'): string => {
    const isForGateway = service === 'any' ? isGatewayKey(headers) : service === 'inference'
    return isForGateway ? ofGateway(headers).organizationId : ofOrganization(headers, 'read').organization.id
  }
  return (headers, service) => directory.retryUnknownKey(() => ownerOf(headers, service))
}

function isGatewayKey(headers: Headers): boolean {
  return /^bearer +gw_/i.test(headers.get('authorization') ?? '')
}

/** By the name that this host has in its own DNS; null if it is off. */
function publicUrl(name: 'instances' | 'inference' | 'builds', { listen, domain }: Config): string | null {
  if (listen[name] === '') return null
  const { port } = listenAddress(listen[name])
  return `https://${name}.${domain}${port === 443 ? '' : `:${port}`}`
}

const retryMs = 5_000
/** This many visitors together may use what the VM admits from one address, which is that of this host for all. */
const publicParts = 8

export type RelayedGateway = {
  readonly url: string
  readonly caFile: string
  readonly clock: Pick<Clock, 'monotonicMs'>
  /** Requests to public routes that the VM admits from one address. */
  readonly publicRequestsPerMinute: number
}

/**
 * The gateway's VM, which serves at this address for clients of this host. Bodies pass as they are, so that the host
 * cannot read what a client encrypts to the VM's key. The VM sees the address of this host. It counts requests below
 * /v1/ by their key, and all others by that address: of those a visitor gets a part, by its own address and its owner.
 */
export function relayTo({ url, caFile, clock, publicRequestsPerMinute }: RelayedGateway): TenantService {
  const requestsPerMinute = Math.max(1, Math.floor(publicRequestsPerMinute / publicParts))
  const byAddress = createPublicLimiter({ clock, requestsPerMinute })
  const byOwner = createRequestRate({ clock, requestsPerMinute, what: 'requests to public routes' })
  return async (request, { address, owner, mayPause }) => {
    const { pathname, search } = new URL(request.url)
    if (!pathname.startsWith('/v1/')) {
      const refusal = byAddress.admitPublic(address())
      if (refusal !== null) throw new LimitedFault(refusal.message, refusal.retryAfterSeconds * 1000)
      byOwner.take(owner)
    }
    const { method, headers, body, signal } = request
    // A model may think for longer than a connection may be idle.
    mayPause()
    const options: BunFetchRequestInit = {
      ...{ method, headers, body, signal },
      decompress: false,
      tls: { ca: readFileSync(caFile, 'utf8') },
    }
    try {
      const response = await fetchDirectly(`${url}${pathname}${search}`, options)
      return new Response(response.body, { status: response.status, headers: endToEnd(response.headers) })
    } catch (cause) {
      if (signal.aborted) throw cause
      throw new UnavailableFault('The gateway does not answer now; try again.', retryMs, { cause })
    }
  }
}

/** RFC 9110 7.6.1: headers of one connection. */
const HOP = ['connection', 'keep-alive', 'transfer-encoding', 'upgrade', 'te', 'trailer', 'proxy-authenticate'] as const

function endToEnd(from: Headers): Headers {
  const headers = new Headers(from)
  for (const name of HOP) headers.delete(name)
  return headers
}
