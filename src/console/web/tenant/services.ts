// Services A, B and C by the paths of their own APIs, with the tenant's key. Effects: requests.

import type { MaintenanceNotice } from '../../../contract/admin/maintenance.ts'
import { useLoaded } from '../core/loaded.ts'
import type { LoadRequest, RequestOptions } from '../core/request.ts'
import { requestBytes, requestJson, requestStream } from '../core/request.ts'
import { tenantKeys } from './keys.ts'

const KEY_OF = { instances: 'ca', inference: 'gw', builds: 'ca' } as const

export type Service = keyof typeof KEY_OF

function at(service: Service, path: string): string {
  return `/api/tenant/${service}${path}`
}

function withKey(service: Service, options: RequestOptions): RequestOptions {
  return { ...options, key: tenantKeys.peek()[KEY_OF[service]] }
}

/** Returns `data` of a response of service A. */
export async function askInstances<T>(path: string, options: RequestOptions = {}): Promise<T> {
  const envelope = await requestJson<{ readonly data: T }>(at('instances', path), withKey('instances', options))
  return envelope.data
}

export async function askService<T>(
  service: 'inference' | 'builds',
  path: string,
  options: LoadRequest & RequestOptions = {},
): Promise<T> {
  return await requestJson<T>(at(service, path), withKey(service, options))
}

export async function fetchBytes(
  service: Service,
  path: string,
  options: RequestOptions = {},
): Promise<Uint8Array<ArrayBuffer>> {
  return await requestBytes(at(service, path), withKey(service, options))
}

export async function fetchStream(service: Service, path: string, options: RequestOptions = {}): Promise<Response> {
  return await requestStream(at(service, path), withKey(service, options))
}

/** Address of each service without the console; null if the service is off. */
export type ServiceUrls = Readonly<Record<Service, string | null>>

/** The host as tenants see it: addresses, and maintenance. */
type HostDocument = ServiceUrls & { readonly maintenance: MaintenanceNotice | null }

function useHost() {
  return useLoaded('/api/tenant', options => {
    const { ca, gw } = tenantKeys.peek()
    return requestJson<HostDocument>('/api/tenant', { ...options, key: ca ?? gw })
  })
}

/** Returns the service's address, for commands to copy. Until it is loaded, they name the service in capitals. */
export function useServiceUrl(service: Service): string {
  return useHost().data?.[service] ?? `https://${service.toUpperCase()}`
}

/** Returns the notice of maintenance; null in operation, and until it is loaded. */
export function useMaintenance(): MaintenanceNotice | null {
  return useHost().data?.maintenance ?? null
}
