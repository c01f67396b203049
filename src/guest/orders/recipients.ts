// Orders of the kind `snapshot_recipients`: recipients of snapshots besides the SSH keys that log in. Effects: a
// file of root, which the programs of the image read.

import { checkValue } from '../../contract/check.ts'
import { RecipientsBody } from '../../contract/vm/orders/order.ts'
import { type Owner, writeFileAtomic } from '../../linux/files.ts'
import type { GuestPaths } from '../paths.ts'
import type { OrderHandler } from './orders.ts'

/** The result of an order: the recipients from now on. */
export function createRecipientsHandler(
  { snapshotRecipients }: Pick<GuestPaths, 'snapshotRecipients'>,
  owner: Owner,
): OrderHandler {
  return async body => {
    const read = checkValue(RecipientsBody, body)
    if (!read.ok) return { ok: false, message: `${read.problem}: name recipients age1…, ssh-ed25519 … or ssh-rsa …` }
    const { recipients } = read.value
    writeFileAtomic(snapshotRecipients, recipients.map(line => `${line}\n`).join(''), { mode: 0o644, owner })
    return { ok: true, result: { recipients } }
  }
}
