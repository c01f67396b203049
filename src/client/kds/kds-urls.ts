// The addresses of a report's collateral at AMD's key server, for people and for programs. Pure.

import type { Product } from '../../attest/amd/product.ts'
import type { KdsRequest } from '../../attest/kds/request.ts'
import { servedRequests } from '../../attest/kds/served.ts'
import type { Signer } from '../../attest/report/bits.ts'
import type { SnpReport } from '../../attest/report/report.ts'
import { below } from '../collateral/fetch-options.ts'

/** `vcek` is null if the server has no certificate for the signing key; `reason` then explains why. */
export type KdsUrls = {
  readonly vcek: string | null
  readonly chain: string
  readonly crl: string
  readonly reason: string | null
}

/** Returns the addresses. Throws Malformed if the product is unknown or REPORTED_TCB does not fit it. */
export function kdsUrls(report: SnpReport, named: Product | null, baseUrl: string): KdsUrls {
  const { vcek, chain, crl } = servedRequests(report, named)
  const url = ({ path }: KdsRequest) => below(baseUrl, path)
  const rest = { chain: url(chain), crl: url(crl) }
  if (typeof vcek === 'string') return { vcek: null, ...rest, reason: `${vcek}; ${noVcekRemedy(report.signer)}` }
  return { vcek: url(vcek), ...rest, reason: null }
}

/** Explains how to get a certificate that AMD's key server does not have. */
export function noVcekRemedy(signer: Signer): string {
  const ways = {
    vlek: "AMD's key server has no VLEKs: take the certificate that the cloud provider hands to the guest beside its report (certificate table of the extended report), and name it by --vek",
    vcek: 'ask the host for its VCEK, and name it by --vek with --masked-chip-id',
    none: 'have the firmware sign reports: such a report proves nothing',
  } as const satisfies Record<Signer, string>
  return ways[signer]
}
