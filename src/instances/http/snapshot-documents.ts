// Examples and texts about snapshots in the OpenAPI document of service A. Pure.

import type { SNAPSHOT_STATES, SnapshotAttempt } from '../../contract/http/snapshot.ts'

const DIGEST = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'

export const SNAPSHOT = {
  instance: 'k3v9x2ma',
  number: 2,
  bytes: 73_400_320,
  created_at: '2026-11-20T09:30:00.000Z',
  header: `{"ageHeader":"${DIGEST}","format":"strongroom/snapshot/v1"}`,
  signature: '-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n',
} as const

export const SNAPSHOT_ATTEMPT = {
  instance: 'k3v9x2ma',
  id: 'b7t2m9q4x1v8c3z6',
  state: 'writing' satisfies (typeof SNAPSHOT_STATES)[number],
  number: null,
  bytes: 1_048_576,
  message: null,
  started_at: '2026-11-20T09:29:50.000Z',
} as const satisfies SnapshotAttempt

export const SNAPSHOT_TEXTS = {
  create:
    'Has the virtual machine pack the home directory of its owner and what `private-root` installed, encrypt it to the SSH keys that may log in (age, ssh-ed25519 and ssh-rsa) and hand over the ciphertext. Poll the snapshots of the instance until this attempt is `kept` or `failed`. One of an instance at a time. The oldest beyond the limit of the operator is replaced.',
  list: 'Kept snapshots of the instance, and its last attempt. They are kept as long as its record.',
  listAll: 'Kept snapshots of the organization on the host that answers, and attempts there.',
  retrieve:
    'The ciphertext: a file in the format of age (age-encryption.org/v1), which holds a tar archive compressed by zstd. With Range, status 206 and that part.',
  restore:
    'Has the virtual machine of a ready instance fetch a snapshot of the same organization. It holds the ciphertext for a session of its owner, who alone can open it: `strongroom up --from` does all of it.',
} as const
