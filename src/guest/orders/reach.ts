// Orders of the kinds `egress_policy` and `egress_log`: the destinations of programs of this VM, allowed and tried.
// Effects: those of reach.ts, and a request to the broker.

import { resultOr } from '../../base/result-or.ts'
import type { ClaimRecord } from '../claim-record.ts'
import type { GuestPaths } from '../paths.ts'
import type { Reach } from '../reach/reach.ts'
import type { OrderHandlers } from './orders.ts'

type ReachOrderDeps = {
  readonly reach: Reach
  /** Null before the claim, when no order is taken. */
  readonly claim: () => ClaimRecord | null
  readonly paths: Pick<GuestPaths, 'brokerLog'>
}

/** Emulated, the broker takes seconds to start. */
const servedWaitMs = 60_000
const logTimeoutMs = 20_000
/** The answer to an order fits 64 KiB. No share: limits one answer. */
const logBytesMax = 60_000

/** Results: the policy in force, or the newest destinations. */
export function reachOrders({ reach, claim, paths }: ReachOrderDeps): OrderHandlers {
  return {
    egress_policy: async body => {
      const claimed = claim()
      if (claimed === null) return { ok: false, message: 'this VM has no claim' }
      const changed = await reach.change({ policy: body }, claimed.document.claim, servedWaitMs)
      return changed.ok ? { ok: true, result: { policy: reach.policyText() } } : { ok: false, message: changed.message }
    },
    egress_log: async () => {
      const init = { unix: paths.brokerLog, signal: AbortSignal.timeout(logTimeoutMs) }
      const text = await fetch('http://broker/', init).then(
        response => response.text(),
        () => '{"rows":[]}',
      )
      const rows = resultOr(() => JSON.parse(text).rows, []) as readonly unknown[]
      return { ok: true, result: { rows: newestOf(rows) } }
    },
  }
}

function newestOf(rows: readonly unknown[]): readonly unknown[] {
  let sizeBytes = 0
  let first = rows.length
  for (const row of rows.toReversed()) {
    sizeBytes += JSON.stringify(row).length + 1
    if (sizeBytes > logBytesMax) break
    first -= 1
  }
  return rows.slice(first)
}
