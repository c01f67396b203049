// Evidence of VMs that are files: of the simulated platform, as the VM that was claimed would give it. Effects: SQL on
// the host's database.

import { present } from '../../../src/base/assert.ts'
import { toAttestation } from '../../../src/instances/attestation.codec.ts'
import type { ClaimedAs } from '../../../src/instances/evidence.verify.ts'
import type { Store } from '../../../src/store/db.ts'
import { storeAttestation } from '../../../src/store/directory/attestation.query.ts'
import { instanceById, instanceByVm } from '../../../src/store/directory/instance.query.ts'
import type { Instance } from '../../../src/store/directory/instance.table.ts'
import { organizationById } from '../../../src/store/directory/organization.query.ts'
import type { VmEngine } from '../../../src/vm/engine.ts'
import { claimedOf, evidenceOf, guestHostKey } from '../guest/attested-guest.ts'

export type AttestedVms = {
  readonly engine: Pick<VmEngine, 'evidence' | 'handReceipt'>
  /** Stores what a claim leaves. */
  readonly claimed: (instanceId: string) => Promise<void>
  /** VMs that were asked for fresh evidence, in order. */
  readonly asked: readonly string[]
}

export function attestedVms(store: Store): AttestedVms {
  const { db } = store.directory
  const asked: string[] = []
  const claimedAs = ({ organizationId, name, hostname, publicKey }: Instance): ClaimedAs => {
    const { slug } = present(organizationById(db, organizationId), 'an instance has an owner')
    return claimedOf({ organization: slug, name, hostname, publicKey })
  }
  return {
    asked,
    engine: {
      evidence: async (vmId, nonce) => {
        asked.push(vmId)
        const instance = present(instanceByVm(db, vmId), 'a VM that is asked has an instance')
        return await evidenceOf({ nonce, claimed: claimedAs(instance) })
      },
      handReceipt: async () => {},
    },
    claimed: async instanceId => {
      const claimed = claimedAs(present(instanceById(db, instanceId), 'it is being claimed'))
      const nonce = new Uint8Array(32).fill(1)
      const document = toAttestation(await evidenceOf({ nonce, claimed }), { nonce, claimed })
      store.directory.transact(tx =>
        storeAttestation(tx, {
          instanceId,
          nonce: document.nonce,
          sshHostKey: guestHostKey,
          attestedAtMs: Date.now(),
          document: JSON.stringify(document),
        }),
      )
    },
  }
}
