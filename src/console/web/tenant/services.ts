// Services A, B and C at the paths of their own APIs, with the tenant's key. Effects: requests.

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

/** `data` of a response of service A. */
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

/** Where clients reach each service without the console; null if it is off. */
export type ServiceUrls = Readonly<Record<Service, string | null>>

/** For commands to copy; they name the service in capitals until this has come. */
export function useServiceUrl(service: Service): string {
  const found = useLoaded('/api/tenant', options => {
    const { ca, gw } = tenantKeys.peek()
    return requestJson<ServiceUrls>('/api/tenant', { ...options, key: ca ?? gw })
  })
  return found.data?.[service] ?? `https://${service.toUpperCase()}`
}
