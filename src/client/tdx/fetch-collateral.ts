// Downloads the collateral of a quote from Intel's provisioning service, as the file that --collateral takes. Effects:
// the network, files of --cache.

import { Malformed, parsed, wellFormed } from '../../attest/malformed.ts'
import { type Anchor, decodeOnlyCrl, decodePckChain, pckFaults } from '../../attest/tdx/chain.ts'
import { collateralBytesMax, parseCollateral } from '../../attest/tdx/collateral.ts'
import type { TdxQuote } from '../../attest/tdx/quote.ts'
import { parseQeIdentity, parseTcbInfo } from '../../attest/tdx/tcb-info.ts'
import { fromUtf8, toHex, utf8 } from '../../base/bytes.ts'
import { NoCollateralFault } from '../../terminal/exit.ts'
import type { Downloader } from '../collateral/download.ts'
import { type CollateralUrl, collateralUrls, platformOf } from './collateral-urls.ts'

/** Limit on one response: signed JSON, or a revocation list. */
const bodyBytesMax = 128 * 1024

export type CollateralFrom = {
  readonly downloader: Downloader
  readonly mirror: string | undefined
  /** Root of the quote's chain. */
  readonly anchor: Anchor
}

/** Returns why the quote's PCK chain does not identify a platform; empty if it does. */
export async function chainFaults(quote: TdxQuote, anchor: Anchor, asOfMs: number): Promise<readonly string[]> {
  const read = parsed(() => ({ chain: decodePckChain(quote.pckChain, anchor), platform: platformOf(quote, anchor) }))
  return read.ok ? await pckFaults(read.value.chain, anchor, asOfMs) : [read.reason]
}

/** Returns the collateral for a quote without `chainFaults`. Throws the Faults of Downloader. */
export async function fetchCollateral(quote: TdxQuote, from: CollateralFrom): Promise<Uint8Array> {
  const { downloader, mirror, anchor } = from
  const { fmspc, ca } = platformOf(quote, anchor)
  const file = `tdx-collateral-${fmspc}-${ca}.json`
  const kept = { file, fileBytesMax: collateralBytesMax, isRenewed: true, untilMs }
  return await downloader.cached(kept, async () => {
    const members: Record<string, string> = {}
    for (const url of collateralUrls(quote, anchor, mirror)) await fetchMember(url, downloader, members)
    const collateral = utf8(JSON.stringify(members))
    try {
      untilMs(collateral)
    } catch (error) {
      if (!(error instanceof Malformed)) throw error
      const remedy = 'name a mirror by --pcs-url, or the file by --collateral'
      throw new NoCollateralFault(`--fetch: not what was requested: ${error.message}`, { param: 'fetch', remedy })
    }
    return collateral
  })
}

/** Adds a response to the collateral in its form: a text, or a revocation list in hexadecimal. */
async function fetchMember(
  { member, url, chain }: CollateralUrl,
  downloader: Downloader,
  members: Record<string, string>,
): Promise<void> {
  const fileOf = (body: Uint8Array, headers: Headers) => {
    const issuers = chain === null ? null : headers.get(chain)
    wellFormed(chain === null || issuers !== null, `no header ${chain}`)
    if (issuers !== null) members[`${member}_issuer_chain`] = issuers
    members[member] = issuers === null ? toHex(body) : textOf(body)
    return body
  }
  await downloader.fetch({ kind: member, url, bodyBytesMax, param: 'collateral', mirror: 'pcs-url', fileOf })
}

function textOf(body: Uint8Array): string {
  try {
    return fromUtf8(body)
  } catch {
    throw new Malformed('not UTF-8')
  }
}

/** Returns the time until which all of the collateral is in force. Throws Malformed. */
function untilMs(bytes: Uint8Array): number {
  const { tcb_info, qe_identity, root_ca_crl, pck_crl } = parseCollateral(bytes)
  const crls = [decodeOnlyCrl(root_ca_crl, 'root CRL'), decodeOnlyCrl(pck_crl, 'PCK CRL')]
  const dated = [parseTcbInfo(tcb_info), parseQeIdentity(qe_identity)]
  return Math.min(...crls.map(({ nextUpdateMs }) => nextUpdateMs ?? 0), ...dated.map(({ nextUpdate }) => nextUpdate))
}
