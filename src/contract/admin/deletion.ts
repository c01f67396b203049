// Deletion of an organization: its plan, and how far it is. Pure.

import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { Slug } from './admin.ts'

const TimeOrNull = OrNull(Type.String())
const Many = Type.Integer({ minimum: 0 })

export const AdminDeletion = Closed({
  slug: Slug,
  deleting_at: TimeOrNull,
  deleted_at: TimeOrNull,
  /** That run or are being provisioned; they end. */
  instances: Type.Array(Type.String()),
  /** That wait or run; they are cancelled. */
  builds: Type.Array(Type.String()),
  /** They end when they expire. */
  reserved_vms: Many,
  keys_active: Many,
  gateway_keys_active: Many,
  build_file_bytes: Many,
  /** Records of terminated instances; they stay for `instances.retention_days`. */
  records: Many,
  /** For which an accepted deletion still waits. */
  waits_for: Type.Array(Type.String()),
})
export type AdminDeletion = Static<typeof AdminDeletion>
