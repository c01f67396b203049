// Services A, B and C for a tenant's page, each with its own paths, documents, keys and limits. Effects: those of the
// services.
//
// The page's key is in its Authorization header, as in any client's. No cookie goes on, and no session counts here.

import { Fault } from '../../base/fault.ts'

/** A service of this host as its own listener asks it. */
export type TenantService = (request: Request, peer: TenantPeer) => Response | Promise<Response>

export type TenantPeer = {
  readonly address: () => string
  /** The response may pause for long, as a build's events do. */
  readonly mayPause: () => void
}

/** Null: it is off. */
export type TenantServices = {
  /** Where clients reach each without the console; null: it is off. */
  readonly urls: Readonly<Record<ServiceName, string | null>>
} & {
  readonly [Name in ServiceName]: TenantService | null
}

const prefix = '/api/tenant'

type ServiceName = 'instances' | 'inference' | 'builds'

export function isTenantPath(path: string): boolean {
  return path === prefix || path.startsWith(`${prefix}/`)
}

/** Fault not_found: there is no such service here. */
export function askTenantService(
  services: TenantServices,
  { request, path, search, peer }: TenantAsked,
): Response | Promise<Response> {
  if (path === prefix && request.method === 'GET') return Response.json(services.urls)
  const [, name = '', rest = ''] = /^\/api\/tenant\/([a-z]+)(\/.*)$/.exec(path) ?? []
  const service = isServiceName(name) ? services[name] : null
  if (service === null) {
    throw new Fault('not_found', name === '' ? 'There is nothing at this path.' : `This host has no service ${name}.`)
  }
  const headers = new Headers(request.headers)
  for (const removed of REMOVED) headers.delete(removed)
  const { method, signal } = request
  const body = method === 'GET' || method === 'HEAD' ? null : request.body
  return service(new Request(`https://strongroom.internal${rest}${search}`, { method, headers, body, signal }), peer)
}

export type TenantAsked = {
  readonly request: Request
  readonly path: string
  readonly search: string
  readonly peer: TenantPeer
}

/** The operator's session, and what a browser says of the console's page. */
const REMOVED = ['cookie', 'origin', 'referer', 'host', 'connection', 'upgrade'] as const

function isServiceName(name: string): name is ServiceName {
  return name === 'instances' || name === 'inference' || name === 'builds'
}
