// The collateral of this host's SNP reports: VCEK, chain and CRL, so that a report can be verified without a network.
// Effects: through the client of the key distribution service; sleeps.
//
// Chain and CRL belong to the product, which CPUID names: they are fetched at start, and the CRL is renewed long before
// it expires. The VCEK belongs to one chip at one TCB; a report names both (CHIP_ID and REPORTED_TCB; AMD 56860 rev
// 1.58, table 23).

import type { Product } from '../../attest/amd/product.ts'
import { derBlocks } from '../../attest/encoding/pem.ts'
import { vcekOfReport } from '../../attest/kds/served.ts'
import { Malformed } from '../../attest/malformed.ts'
import { decodeReport } from '../../attest/report/report.ts'
import { verifyReportSignature } from '../../attest/verify/report-signature.ts'
import { decodeCertificate } from '../../attest/x509/certificate.ts'
import { type Clock, pause } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { Kds, KdsResult } from './kds.ts'

/** Everything that a verifier needs besides the report, as DER. */
export type Collateral = {
  readonly vek: Uint8Array
  readonly chain: readonly [intermediate: Uint8Array, ark: Uint8Array]
  readonly crl: Uint8Array
}

export type CollateralResult =
  | { readonly ok: true; readonly collateral: Collateral }
  /** `retryAfterMs`: null if it is unknown whether another attempt may succeed. */
  | { readonly ok: false; readonly reason: string; readonly retryAfterMs: number | null }

export type CollateralDeps = {
  readonly kds: Kds
  /** Product of this host's processors. */
  readonly product: Product
  readonly clock: Clock
  readonly log: Logger
}

/** AMD's CRLs are valid for months: this interval is short enough, also to see a revocation soon. */
const renewMs = 6 * 3_600_000
const retryMs = 60_000
const retryMsMax = 3_600_000
export const collateralRemedy =
  'let this host reach kds.base_url, set kds.base_url to a mirror, or put the named files there by hand (they are verified)'

export class CollateralKeeper {
  readonly #deps: CollateralDeps

  constructor(deps: CollateralDeps) {
    this.#deps = deps
  }

  /** Keeps chain and CRL current until the signal is aborted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#deps
    let backOffMs = retryMs
    while (!signal.aborted) {
      const { failure, isRenewed } = await this.#renew()
      if (failure !== null && !signal.aborted) {
        log.warn('the collateral of SNP reports is not complete: they cannot be verified', {
          reason: failure.reason,
          remedy: collateralRemedy,
        })
      }
      const waitMs = isRenewed ? renewMs : Math.max(backOffMs, failure?.retryAfterMs ?? 0)
      backOffMs = isRenewed ? retryMs : Math.min(2 * backOffMs, retryMsMax)
      await pause(clock, waitMs, signal)
    }
  }

  /**
   * Returns the collateral for a report, whose signature it has verified: a guest wrote these bytes, and may name any
   * chip. Reads the disk first. A new VCEK may wait up to a minute for its turn at the service. Never rejects.
   */
  async forReport(report: Uint8Array): Promise<CollateralResult> {
    const { kds } = this.#deps
    try {
      const wanted = vcekOfReport(decodeReport(report), this.#deps.product)
      const [vcek, chain, crl] = await Promise.all([
        kds.vcek(wanted),
        kds.chain(wanted.product, 'vcek'),
        kds.crl(wanted.product, 'vcek'),
      ])
      if (!vcek.ok) return failed(vcek)
      if (!chain.ok) return failed(chain)
      if (!crl.ok) return failed(crl)
      const { publicKey } = decodeCertificate(vcek.bytes)
      const { outcome, reason } = await verifyReportSignature(report, publicKey.spki)
      if (outcome !== 'pass')
        return { ok: false, reason: `the chip that it names did not sign it: ${reason}`, retryAfterMs: null }
      // By the report that it verified: a forged one may have begun the request, which equal ones share.
      if (vcek.from === 'network') kds.storeVcek(wanted, vcek.bytes)
      return { ok: true, collateral: { vek: vcek.bytes, chain: chainPair(chain.bytes), crl: crl.bytes } }
    } catch (error) {
      return { ok: false, reason: messageOf(error), retryAfterMs: null }
    }
  }

  /**
   * Fetches chain and CRL. `isRenewed`: whether the CRL came from the service now. A stored CRL in force is not a
   * failure, but is retried soon.
   */
  async #renew(): Promise<{ readonly failure: KdsFailure | null; readonly isRenewed: boolean }> {
    const { kds, product } = this.#deps
    try {
      const [chain, crl] = await Promise.all([kds.chain(product, 'vcek'), kds.crl(product, 'vcek')])
      if (!chain.ok) return { failure: chain, isRenewed: false }
      if (!crl.ok) return { failure: crl, isRenewed: false }
      return { failure: null, isRenewed: crl.from === 'network' }
    } catch (error) {
      return { failure: { reason: messageOf(error), retryAfterMs: null }, isRenewed: false }
    }
  }
}

type KdsFailure = Pick<Extract<KdsResult, { ok: false }>, 'reason' | 'retryAfterMs'>

function failed({ reason, retryAfterMs }: KdsFailure): CollateralResult {
  return { ok: false, reason, retryAfterMs }
}

/** Splits the chain; the client has verified that it has only these two certificates. */
function chainPair(pem: Uint8Array): Collateral['chain'] {
  const [intermediate, ark] = derBlocks(pem, 'CERTIFICATE', 'chain')
  if (intermediate === undefined || ark === undefined) throw new Malformed('chain: not two certificates')
  return [intermediate, ark]
}
