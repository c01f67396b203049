// Whether a snapshot is one that an instance of this user has made, and the newest that is known. Pure. Throws
// AdvisedFault.

import { fromBase64, utf8 } from '../../base/bytes.ts'
import { checkedJson } from '../../contract/check.ts'
import { type SignedSnapshot, SnapshotHeader, snapshotNamespace, snapshotText } from '../../contract/snapshot.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import type { SeenSnapshots } from './memory.ts'
import { isSignedBy } from './ssh-signature.ts'

/** Checks signature, instance and number. `isOlderAccepted`: an older snapshot than the newest known is wanted. */
export function judgeSnapshot(
  { header: text, signature }: SignedSnapshot,
  { hostname, hostKey, newest }: Pick<SeenSnapshots, 'hostname' | 'hostKey' | 'newest'>,
  { isOlderAccepted }: { readonly isOlderAccepted: boolean },
): SnapshotHeader {
  const key = fromBase64(hostKey.split(' ')[1] ?? '') ?? new Uint8Array()
  if (!isSignedBy({ armored: signature, message: text, namespace: snapshotNamespace, key }))
    throw refused(hostname, `was not made by it: its signature is not by the host key of ${hostname}`)
  const header = checkedJson(SnapshotHeader, utf8(text), { what: 'header of the snapshot', code: 'internal' })
  if (snapshotText(header) !== text) throw refused(hostname, 'has a header that is not in canonical form')
  if (header.hostname !== hostname) throw refused(hostname, `is one of ${header.hostname}`)
  if (newest === null || header.number > newest.number + 1) return header
  if (header.number === newest.number + 1 && header.previous !== newest.sha256)
    throw refused(hostname, `does not follow on snapshot ${newest.number}, which this machine has seen`)
  if (header.number === newest.number && header.sha256 !== newest.sha256)
    throw refused(hostname, `differs from the snapshot ${newest.number} that this machine has seen`)
  if (header.number < newest.number && !isOlderAccepted) {
    throw new AdvisedFault(
      'conflict',
      `snapshot ${header.number} of ${hostname} is older than ${newest.number}, which exists`,
      {
        remedy: `restore ${newest.number}; if the service no longer has it, or you want this one, add --accept-older`,
      },
    )
  }
  return header
}

function refused(hostname: string, problem: string): AdvisedFault {
  return new AdvisedFault('internal', `the snapshot of ${hostname} ${problem}`, {
    remedy: 'do not restore it; if the service handed it out, ask its operator why it is not what it was given',
  })
}
