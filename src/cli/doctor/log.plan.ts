// Judges the transparency log as the daemon describes it. Pure.

import type { AdminStatus } from '../../contract/admin/admin.ts'
import { type Check, fail, pass, skip, warn } from './check.ts'

const name = 'transparency log'

/** Checks the log. `log`: null if the daemon does not answer, or cannot read its database. */
export function logChecks(log: AdminStatus['log']): Check[] {
  if (log === null) return [skip(name, 'the daemon does not answer for it')]
  const { size, shown, last_entry_at: last, witnesses, problems } = log
  const entries = `${size} entries${last === null ? '' : `, the last ${last}`}, ${size - shown} not shown`
  const word = witnesses === 0 ? "no witness: it is this host's word alone" : `${witnesses} witnesses`
  const whole = problems.filter(({ witness }) => witness === null)
  return [
    ...(whole.length === 0 ? [pass(name, `${entries}; ${word}`)] : []),
    ...problems.map(({ witness, severe, detail, remedy }) => {
      const [of, text] = witness === null ? [name, `${entries}; ${detail}`] : ['log witness', `${witness}: ${detail}`]
      return severe ? fail(of, text, remedy) : warn(of, text, remedy)
    }),
  ]
}
