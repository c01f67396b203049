// Snapshots of instances as service A's clients see them. Pure. Fields stand in the order of the wire.
//
// The service keeps ciphertext alone. `header` and `signature` prove its origin (contract/snapshot.ts); no other field
// proves anything.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { SignedSnapshot, SnapshotNumber } from '../snapshot.ts'
import { type Static, Type } from '../type.ts'
import { InstanceName, Timestamp } from './instance.ts'

const Bytes = (description: string) => Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, description })
const Numbered = { ...SnapshotNumber, description: 'Counted by the virtual machine, from 1.' }

export const Snapshot = Closed({
  instance: InstanceName,
  number: Numbered,
  bytes: Bytes('Size of the ciphertext.'),
  created_at: Timestamp('When the ciphertext was complete.'),
  header: Type.String({
    ...SignedSnapshot.properties.header,
    description: 'JSON text of what the virtual machine states about the ciphertext, with its SHA-256.',
  }),
  signature: Type.String({
    ...SignedSnapshot.properties.signature,
    description: 'Signature over `header` by the SSH host key of the instance, as ssh-keygen -Y sign makes it.',
  }),
})
export type Snapshot = Static<typeof Snapshot>

export const SNAPSHOT_STATES = ['writing', 'kept', 'failed', 'skipped'] as const

/** The last attempt to take a snapshot of an instance. The service forgets it at a restart. */
export const SnapshotAttempt = Closed({
  instance: InstanceName,
  id: Type.String({ pattern: '^[a-z0-9]{16}$', description: 'Drawn for this attempt.' }),
  state: OneOf(SNAPSHOT_STATES, {
    description:
      'Where the attempt is. `skipped`: by the schedule of the owner, or before an idle end that waits, without a snapshot.',
  }),
  number: OrNull(Numbered, { description: 'Number of the snapshot; null until it is kept.' }),
  bytes: Bytes('Bytes that have arrived.'),
  message: OrNull(Type.String({ maxLength: 2_000 }), {
    description: 'Why it failed or was skipped, for people; null unless it was.',
  }),
  started_at: Timestamp('When it began.'),
})
export type SnapshotAttempt = Static<typeof SnapshotAttempt>

export const SnapshotList = Closed({
  snapshots: Type.Array(Snapshot, { description: 'Kept snapshots: by instance, the oldest first.' }),
  attempts: Type.Array(SnapshotAttempt, {
    description: 'The last attempt of each instance since the start of the service.',
  }),
})
export type SnapshotList = Static<typeof SnapshotList>

/** Body of `POST /v1/instances/{name}/restore`. */
export const RestoreRequest = Closed({
  instance: InstanceName,
  number: Numbered,
})
export type RestoreRequest = Static<typeof RestoreRequest>

/** The virtual machine fetches the ciphertext, and its owner's session reads it. */
export const RestoreBegun = Closed({
  pipe: Type.String({ pattern: '^[a-z0-9]{16}$', description: 'Name of the pipe in the virtual machine.' }),
  bytes: Bytes('Size of the ciphertext.'),
})
export type RestoreBegun = Static<typeof RestoreBegun>
