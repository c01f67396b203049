// Services A, B and C for a tenant's page, each with its own paths, documents, keys and limits. Pure.

/** A service of this host, which answers as it answers at its own address. */
export type TenantService = (request: Request, visitor: Visitor) => Response | Promise<Response>

export type TenantPeer = {
  readonly address: () => string
  /** The response may pause for long, as a build's events do. */
  readonly mayPause: () => void
}

/** The client of a relayed request. */
export type Visitor = TenantPeer & {
  /** The organization of its key, or the person of its session; bounds count by it. */
  readonly owner: string
}

export type ServiceName = 'instances' | 'inference' | 'builds'

/** Null if it is off. */
export type TenantServices = {
  /** Where clients reach each without the console; null if it is off. */
  readonly urls: Readonly<Record<ServiceName, string | null>>
  /**
   * Returns the organization of the key in these headers, which has to be one for this service, or for one of them if
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

/** `addresses`: of the services themselves. `rest` is the path there. */
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
