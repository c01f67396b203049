// The transparency log as the daemon describes it. Its problems are in the daemon's list. Pure.

import type { AdminStatus } from '../../contract/admin/admin.ts'
import { type Check, pass, skip } from './check.ts'

const name = 'transparency log'

/** `log`: null if the daemon does not answer, or cannot read its database. */
export function logCheck(log: AdminStatus['log']): Check {
  if (log === null) return skip(name, 'the daemon does not answer for it')
  const { size, shown, last_entry_at: last, witnesses } = log
  const entries = `${size} entries${last === null ? '' : `, the last ${last}`}, ${size - shown} not shown`
  const word = witnesses === 0 ? "no witness: it is this host's word alone" : `${witnesses} witnesses`
  return pass(name, `${entries}; ${word}`)
}
