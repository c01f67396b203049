// Services A, B and C for a tenant's page, each with its own paths, documents, keys and limits. Pure.

import type { MaintenanceNotice } from '../../contract/admin/maintenance.ts'

/** A service of this host. It responds as at its own address. */
export type TenantService = (request: Request, visitor: Visitor) => Response | Promise<Response>

export type TenantPeer = {
  readonly address: () => string
  /** Allows long pauses in the response, as in a build's events. */
  readonly mayPause: () => void
}

/** The client of a relayed request. */
export type Visitor = TenantPeer & {
  /** The organization of the key, or the person of the session. Limits count by it. */
  readonly owner: string
}

export type ServiceName = 'instances' | 'inference' | 'builds'

/** A service is null if it is off. */
export type TenantServices = {
  /** Address of each service without the console; null if the service is off. */
  readonly urls: Readonly<Record<ServiceName, string | null>>
  /** Returns the notice of maintenance for tenants; null in operation. */
  readonly maintenance: () => MaintenanceNotice | null
  /**
   * Returns the organization of the key in these headers. The key must be for this service, or for any of them if
   * `any`. Faults: unauthenticated, forbidden, fleet.unavailable.
   */
  readonly ownerOfKey: (headers: Headers, service: ServiceName | 'any') => Promise<string>
} & {
  readonly [Name in ServiceName]: TenantService | null
}

const prefix = '/api/tenant'

export function isTenantPath(path: string): boolean {
  return path === prefix || path.startsWith(`${prefix}/`)
}

/** `addresses`: the list of the services' own addresses. `rest`: the path in the service. */
export type TenantPlace =
  | { readonly kind: 'addresses' }
  | { readonly kind: 'service'; readonly name: ServiceName; readonly rest: string }
  | { readonly kind: 'none'; readonly message: string }

export function tenantPlace(path: string): TenantPlace {
  if (path === prefix) return { kind: 'addresses' }
  const [, name = '', rest = ''] = /^\/api\/tenant\/([a-z]+)(\/.*)$/.exec(path) ?? []
  if (isServiceName(name)) return { kind: 'service', name, rest }
  return { kind: 'none', message: name === '' ? 'There is nothing at this path.' : noSuchService(name) }
}

export function noSuchService(name: string): string {
  return `This host has no service ${name}.`
}

function isServiceName(name: string): name is ServiceName {
  return name === 'instances' || name === 'inference' || name === 'builds'
}
