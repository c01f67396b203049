// Remedies for checks of a report, in words of the command line: the field of the policy that refused a number, and
// a revocation list that is not in force. Pure.

import type { Product } from '../../attest/amd/product.ts'
import type { Check } from '../../attest/verdict.ts'
import { toHex } from '../../base/bytes.ts'
import { pinCheckName } from '../../verifier/pins.ts'

/** `canFetch`: whether the command has --fetch. `measurement`: the one that a waiver accepted. */
export type Advice = {
  readonly product: Product | null
  readonly canFetch: boolean
  readonly measurement: Uint8Array | null
}

/** Completes the reasons of failed checks. Outcomes and names stay. */
export function withAdvice(checks: readonly Check[], { product, canFetch, measurement }: Advice): Check[] {
  return checks.map(check => {
    const { name, reason } = check
    if (check.outcome === 'not-checked' && name === pinCheckName('measurement') && measurement !== null)
      return { ...check, reason: `${reason}; it is ${toHex(measurement)}` }
    if (check.outcome !== 'fail') return check
    if (reason.endsWith(notNow)) return { ...check, reason: `${reason}; ${renewal(canFetch)}` }
    const [, kind, component] = /^minimum-(launch-)?tcb-(\w+)$/.exec(name) ?? []
    if (component === undefined || product === null || !reason.includes(' is less than ')) return check
    const field = `minimum${kind === undefined ? '' : 'Launch'}Tcb.${product}.${component}`
    return { ...check, reason: `the policy's ${field}: ${reason}; change it in the policy` }
  })
}

const notNow = 'not for the time of this verification'

/** Advice for a document that is not in force. */
export function renewal(canFetch: boolean): string {
  const again = canFetch ? 'get it again (--fetch)' : 'get it again'
  return `${again}, or verify for the time at which you saved it (--as-of)`
}
