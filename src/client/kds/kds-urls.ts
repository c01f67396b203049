// The addresses at AMD's key server of what verifies a report, for people and for programs. Pure.

import type { Product } from '../../attest/amd/product.ts'
import type { KdsRequest } from '../../attest/kds/request.ts'
import { servedRequests } from '../../attest/kds/served.ts'
import type { Signer } from '../../attest/report/bits.ts'
import type { SnpReport } from '../../attest/report/report.ts'

/** `vcek` null: the server has no certificate of the key that signed; `reason` says why. */
export type KdsUrls = {
  readonly vcek: string | null
  readonly chain: string
  readonly crl: string
  readonly reason: string | null
}

/** Throws Malformed when the product is not known, or REPORTED_TCB is not one of it. */
export function kdsUrls(report: SnpReport, named: Product | null, baseUrl: string): KdsUrls {
  const { vcek, chain, crl } = servedRequests(report, named)
  const url = (request: KdsRequest) => kdsUrl(baseUrl, request)
  const rest = { chain: url(chain), crl: url(crl) }
  if (typeof vcek === 'string') return { vcek: null, ...rest, reason: `${vcek}; ${noVcekRemedy(report.signer)}` }
  return { vcek: url(vcek), ...rest, reason: null }
}

export function kdsUrl(baseUrl: string, { path }: KdsRequest): string {
  return `${baseUrl.replace(/\/+$/, '')}${path}`
}

/** The way to a certificate that AMD's key server does not have. */
export function noVcekRemedy(signer: Signer): string {
  const ways = {
    vlek: "AMD's key server has no VLEKs: take the certificate that the cloud provider hands to the guest beside its report (certificate table of the extended report), and name it by --vek",
    vcek: 'ask the host for its VCEK, and name it by --vek with --masked-chip-id',
    none: 'have the firmware sign reports: such a report proves nothing',
  } as const satisfies Record<Signer, string>
  return ways[signer]
}
