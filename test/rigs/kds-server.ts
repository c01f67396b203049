// A stand-in for AMD's key distribution service on 127.0.0.1, with a simulated platform's certificates. AMD's own is
// never asked.

import {
  chipIdOf,
  SIMULATED_TCBS,
  type SimulatedPlatform,
  simulatedPlatform,
} from '../../scripts/rigs/launch/simulated-platform.ts'
import type { Product } from '../../src/attest/amd/product.ts'
import { toPem } from '../../src/attest/encoding/pem.ts'
import { vcekRequest } from '../../src/attest/kds/request.ts'
import { issueSimulatedCrl } from '../../src/attest/simulator/certificates.ts'

export type Respond = (request: Request) => Response | Promise<Response>

export type KdsServer = AsyncDisposable & {
  readonly url: string
  readonly platform: SimulatedPlatform
  /** In force from 1 November to 1 December 2026. */
  readonly crl: Uint8Array
  /** Paths with their queries, in the order in which they came. */
  requests: string[]
  /** Response to a request; `serve` unless a test sets another. */
  respond: Respond
  /** The working service: it has the chain, the CRL and the VCEK of the one chip at its one TCB. */
  readonly serve: Respond
}

export async function startKdsServer(product: Product): Promise<KdsServer> {
  const platform = await simulatedPlatform(product)
  const { ask, ark } = platform.authority.root
  const chainPem = toPem(ask, 'CERTIFICATE') + toPem(ark, 'CERTIFICATE')
  const validity = { thisUpdate: new Date('2026-11-01T00:00:00Z'), nextUpdate: new Date('2026-12-01T00:00:00Z') }
  const crl = await issueSimulatedCrl(platform.authority, { ...validity, revoked: [] })
  const vcek = vcekRequest({ product, chipId: chipIdOf(product), tcb: SIMULATED_TCBS[product] })
  const serve: Respond = request => {
    const { pathname } = new URL(request.url)
    if (pathname.endsWith('/cert_chain')) return new Response(chainPem)
    if (pathname.endsWith('/crl')) return new Response(new Uint8Array(crl))
    if (pathname === vcek.path.split('?')[0]) return new Response(new Uint8Array(platform.vcek))
    return new Response('unknown chip', { status: 404 })
  }
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: request => {
      const { pathname, search } = new URL(request.url)
      self.requests.push(pathname + search)
      return self.respond(request)
    },
  })
  const self: KdsServer = {
    url: server.url.href,
    platform,
    crl,
    requests: [],
    respond: serve,
    serve,
    [Symbol.asyncDispose]: () => server.stop(true),
  }
  return self
}
