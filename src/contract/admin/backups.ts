// Backups of this host in the admin interface: the last one, and whether that is enough. Pure.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'

const Time = Type.String({ description: 'ISO 8601 UTC' })

export const AdminBackups = Closed({
  /** `failed`: the newest attempt; `old`: the next is overdue; `none`: none is known, and none is overdue. */
  state: OneOf(['good', 'failed', 'old', 'none']),
  /** The newest successful backup of this host; the file may have been moved. */
  last: OrNull(Closed({ at: Time, file: Type.String(), bytes: Type.Integer({ minimum: 0 }) })),
  /** The newest that failed; null means none since the last that succeeded. */
  failure: OrNull(Closed({ at: Time, message: Type.String() })),
  /** Whether strongroom-backup.timer makes one each night. */
  nightly: Type.Boolean(),
  /** Null if nothing need be done. */
  problem: OrNull(Type.String()),
  remedy: OrNull(Type.String()),
})
export type AdminBackups = Static<typeof AdminBackups>
