// Services A, B and C behind the console: those of this process by a call, a gateway in its VM over TLS. Effects: those
// of the services; reads the authority's certificate.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { listenAddress } from '../../config/listen.ts'
import type { Config } from '../../config/schema.ts'
import type { TenantPeer, TenantService, TenantServices } from '../../console/http/tenant.routes.ts'
import { AUTHORITIES } from '../../http/authority.ts'
import { UnavailableFault } from '../../http/limited.ts'

export type Services = {
  readonly instances: {
    readonly fetch: (request: Request, peer: Pick<TenantPeer, 'address'>) => Promise<Response>
  }
  /** Null: it is off. */
  readonly builds: { readonly fetch: (request: Request, peer: TenantPeer) => Promise<Response> } | null
  readonly gateway: {
    readonly url: string | null
    readonly fetch: ((request: Request, address: () => string) => Promise<Response>) | null
  }
}

export function tenantServices(
  { instances, builds, gateway }: Services,
  { config, stateDir }: { readonly config: Config; readonly stateDir: string },
): TenantServices {
  const { fetch: ask, url } = gateway
  const here: TenantService | null = ask === null ? null : (request, { address }) => ask(request, address)
  return {
    urls: {
      instances: publicUrl('instances', config),
      inference: publicUrl('inference', config),
      builds: publicUrl('builds', config),
    },
    instances: (request, { address }) => instances.fetch(request, { address }),
    builds: builds === null ? null : (request, peer) => builds.fetch(request, peer),
    inference: here ?? (url === null ? null : relayTo(url, join(stateDir, AUTHORITIES.clients.directory, 'ca.pem'))),
  }
}

/** By the name that this host has in its own DNS; null: it is off. */
function publicUrl(name: 'instances' | 'inference' | 'builds', { listen, domain }: Config): string | null {
  if (listen[name] === '') return null
  const { port } = listenAddress(listen[name])
  return `https://${name}.${domain}${port === 443 ? '' : `:${port}`}`
}

const retryMs = 5_000

/**
 * The gateway's VM, which serves at this address for clients of this host. Bodies pass as they are: a page that
 * encrypts to the VM's key is read by the VM alone, and receipts are for the page to judge.
 */
export function relayTo(url: string, caFile: string): TenantService {
  return async (request, { mayPause }) => {
    const { pathname, search } = new URL(request.url)
    const { method, headers, body, signal } = request
    // A model may think for longer than a connection may be idle.
    mayPause()
    const options: BunFetchRequestInit = {
      ...{ method, headers, body, signal },
      redirect: 'manual',
      decompress: false,
      tls: { ca: readFileSync(caFile, 'utf8') },
    }
    try {
      const response = await fetch(`${url}${pathname}${search}`, options)
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
