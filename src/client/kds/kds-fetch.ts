// Downloads the collateral of a report from AMD's key server. Effects: the network. The chain is not downloaded: AMD's
// own is built in.

import type { KdsRequest } from '../../attest/kds/request.ts'
import type { ServedRequests } from '../../attest/kds/served.ts'
import type { SnpReport } from '../../attest/report/report.ts'
import { decodeCertificate } from '../../attest/x509/certificate.ts'
import { decodeCrl } from '../../attest/x509/crl.ts'
import { InputFault } from '../../terminal/exit.ts'
import type { Downloader } from '../collateral/download.ts'
import { below } from '../collateral/fetch-options.ts'
import { noVcekRemedy } from './kds-urls.ts'

/** Files from the relying party, which are not downloaded. */
export type GivenFiles = {
  readonly vek: Uint8Array | undefined
  readonly chain: Uint8Array | readonly Uint8Array[] | undefined
  readonly crl: Uint8Array | undefined
}

/** Returns the files, downloaded unless given. Faults of Downloader; invalid_request if the server has no such VEK. */
export async function fetchMissing(
  { signer }: Pick<SnpReport, 'signer'>,
  { served, given }: { readonly served: ServedRequests; readonly given: GivenFiles },
  { baseUrl, downloader }: { readonly baseUrl: string; readonly downloader: Downloader },
): Promise<GivenFiles> {
  const { vcek, crl } = served
  const get = async (kind: keyof typeof FORMS, request: KdsRequest) => {
    const { param, untilMs, isRenewed } = FORMS[kind]
    const { file, path, bodyBytesMax } = request
    const wanted = { kind, url: below(baseUrl, path), bodyBytesMax, param, mirror: 'kds-url' }
    return await downloader.get(wanted, { file, fileBytesMax: bodyBytesMax, isRenewed, untilMs })
  }
  const vekOf = async () => {
    if (typeof vcek !== 'string') return await get('vcek', vcek)
    throw new InputFault(`--fetch: ${vcek}`, { param: 'fetch', remedy: noVcekRemedy(signer) })
  }
  return {
    vek: given.vek ?? (await vekOf()),
    chain: given.chain,
    crl: given.crl ?? (await get('crl', crl)),
  }
}

const FORMS = {
  vcek: { param: 'vek', isRenewed: false, untilMs: (der: Uint8Array) => decodeCertificate(der).notAfterMs },
  crl: { param: 'crl', isRenewed: true, untilMs: (der: Uint8Array) => decodeCrl(der).nextUpdateMs ?? 0 },
} as const
