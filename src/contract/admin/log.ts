// The transparency log in the admin interface. Pure.

import { Closed, OrNull, Sha256 } from '../forms.ts'
import { type Static, Type } from '../type.ts'

const count = Type.Integer({ minimum: 0 })

/** The log in short. */
export const AdminLogSummary = Closed({
  size: count,
  shown: count,
  /** When the newest entry was written; null if there is none. */
  last_entry_at: OrNull(Type.String()),
  /** When the oldest entry that is not shown was written; null if all are. */
  waiting_since: OrNull(Type.String()),
  /** Number of witnesses that are named. */
  witnesses: count,
  problems: Type.Array(
    Closed({
      /** Null for the log as a whole. */
      witness: OrNull(Type.String()),
      /** Clients with pins on the log refuse something. */
      severe: Type.Boolean(),
      detail: Type.String(),
      remedy: Type.String(),
    }),
  ),
})
export type AdminLogSummary = Static<typeof AdminLogSummary>

export const AdminLog = Closed({
  /** For relying parties, as NAME+ID+KEY; null if no log has begun. */
  key: OrNull(Type.String()),
  size: count,
  /** Entries of the tree that is shown to everybody; fewer than `size` while no witness has cosigned the rest. */
  shown: count,
  /** The newest tree as this log signs it: what a witness cosigns. */
  note: OrNull(Type.String()),
  witnesses: Type.Array(
    Closed({
      name: Type.String(),
      /** Null if it is not used. */
      url: OrNull(Type.String()),
      /** Size of the tree that it has cosigned last. */
      size: OrNull(count),
      cosigned_at: OrNull(Type.String()),
      problem: OrNull(Type.String()),
    }),
  ),
})
export type AdminLog = Static<typeof AdminLog>

export const logEntryListMax = 256

export const AdminLogEntries = Closed({
  /** `entry`: its JSON text. */
  entries: Type.Array(Closed({ index: count, at: Type.String(), entry: Type.String() })),
})
export type AdminLogEntries = Static<typeof AdminLogEntries>

/** A signed note with cosignatures. */
export const AdminCosign = Closed({ note: Type.String({ minLength: 1, maxLength: 32_768 }) })
/** SHA-256 of a policy file, or of a list of chips, that relying parties get. */
export const AdminPublishPolicy = Closed({ sha256: Sha256 })
