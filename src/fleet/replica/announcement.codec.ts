// The announcement of a numbered transaction to the other hosts: its version, and the hosts that should read it at
// once. Pure.
//
// The text is the version alone if every host should, otherwise the version, a colon and the ids of hosts. A host that
// does not know the second form takes it for a lost announcement, and reads at once.

import type { RowChange } from './tables.ts'

/** The channel of begin_change(). */
export const announcementChannel = 'strongroom'

export type Announcement = {
  readonly version: number
  /** The hosts that should read the version at once; null if all should. The others may read it with later ones. */
  readonly hostIds: readonly string[] | null
}

/** PostgreSQL refuses texts of 8,000 bytes. */
const textLengthMax = 7_000

/** Returns the text for the changes of a version. */
export function announcementText(version: number, changes: readonly RowChange[]): string {
  const hostIds = new Set<string>()
  for (const change of changes) {
    const concerned = hostConcernedBy(change)
    if (concerned === 'all') return String(version)
    if (concerned !== null) hostIds.add(concerned)
  }
  const text = `${version}:${[...hostIds].join(',')}`
  return text.length > textLengthMax ? String(version) : text
}

/** Reads a text. Null if it has no version. */
export function readAnnouncement(text: string | undefined): Announcement | null {
  const [, version, hostIds] = /^([0-9]{1,16})(?::(.*))?$/.exec(text ?? '') ?? []
  if (version === undefined || !Number.isSafeInteger(Number(version))) return null
  return { version: Number(version), hostIds: hostIds?.split(',').filter(id => id !== '') ?? null }
}

/** Returns the host that should act on a row at once; null if none should. */
function hostConcernedBy({ table, row }: RowChange): string | 'all' | null {
  switch (table) {
    case 'instances':
      return row === null ? null : String(row.host_id)
    case 'instance_changes':
    case 'instance_attestations':
    case 'instance_addresses':
    case 'idempotency':
      return null
    case 'gateway_keys':
      // The key of a claim. Each claim has one, and its instance uses the gateway of its own host.
      return row !== null && row.instance_id !== null && row.revoked_at_ms === null ? null : 'all'
    default:
      return 'all'
  }
}
