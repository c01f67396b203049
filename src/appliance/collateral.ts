// Keeps the collateral of this host's SNP reports (host/kds) on platforms that have them. Effects: those of host/kds.

import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { Config, Platform } from '../config/schema.ts'
import { keepReportedChip } from '../host/chip-id.ts'
import { CollateralKeeper } from '../host/kds/collateral.ts'
import { createKds, type KdsOptions } from '../host/kds/kds.ts'
import { type KeptCollateral, kdsDirName, keptCollateral } from '../host/kds/kept.ts'
import { hostProduct } from '../host/platform.ts'
import { createOutgoing } from '../linux/net/outgoing.ts'

export type CollateralParts = {
  readonly config: Pick<Config, 'kds' | 'network'>
  readonly stateDir: string
  readonly platform: Platform
  readonly clock: Clock
  readonly log: Logger
  /** Product of the processors; looked up unless given. */
  readonly product?: ReturnType<typeof hostProduct>
  /** AMD's unless given. */
  readonly roots?: KdsOptions['roots']
}

export type CollateralService = Pick<CollateralKeeper, 'forReport'> & {
  readonly describe: () => KeptCollateral
  /** Returns at once: the service may be slow or away. */
  readonly start: () => void
  readonly stop: () => Promise<void>
}

/**
 * Composes the collateral. Null if there are no SNP reports, or none that can be verified, as on processors of an
 * unknown product.
 */
export function composeCollateral({
  config,
  stateDir,
  platform,
  clock,
  ...parts
}: CollateralParts): CollateralService | null {
  if (platform !== 'snp') return null
  const { product = hostProduct(), roots } = parts
  const log = parts.log.unit('kds')
  if (product === null) {
    log.error('the processor is of no known EPYC product: its SNP reports cannot be verified', {
      remedy: 'install a newer strongroom that supports this processor',
    })
    return null
  }
  const cacheDir = `${stateDir}/${kdsDirName}`
  const stopping = new AbortController()
  const kds = createKds({
    baseUrl: config.kds.base_url || null,
    cacheDir,
    clock,
    log,
    signal: stopping.signal,
    send: createOutgoing(config.network.proxy),
    ...(roots === undefined ? {} : { roots }),
  })
  const keeper = new CollateralKeeper({ kds, product, clock, log })
  let running: Promise<void> = Promise.resolve()
  return {
    forReport: async report => {
      const found = await keeper.forReport(report)
      try {
        if (found.ok) keepReportedChip(stateDir, report)
      } catch (error) {
        // A full disk must not cost a genuine report.
        log.warn('the chip of a verified report was not noted', { error })
      }
      return found
    },
    describe: () => keptCollateral(cacheDir, product),
    start: () => {
      running = keeper.run(stopping.signal)
    },
    stop: async () => {
      stopping.abort()
      await running
    },
  }
}
