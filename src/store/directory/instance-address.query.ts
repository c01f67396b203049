// Names and addresses of instances. Effects: SQL.

import { eq } from 'drizzle-orm'
import { type DirectoryDb, prepareRaw } from '../db.ts'
import type { Instance } from './instance.table.ts'
import { type InstanceAddress, instanceAddresses } from './instance-address.table.ts'

/** Null: it has none any more. */
export function setAddress(db: DirectoryDb, instanceId: string, addresses: InstanceAddress | null): void {
  if (addresses === null) db.delete(instanceAddresses).where(eq(instanceAddresses.instanceId, instanceId)).run()
  else {
    db.insert(instanceAddresses)
      .values({ instanceId, ...addresses })
      .onConflictDoUpdate({ target: instanceAddresses.instanceId, set: { ...addresses } })
      .run()
  }
}

/** Fields that the name of an instance follows from; addresses as in the fleet's directory. */
export type NamedInstance = Pick<Instance, 'name' | 'hostId' | 'vmId' | 'desired' | 'status'> &
  InstanceAddress & { readonly organization: string; readonly sshHostKey: string | null }

/** One statement, and raw: all instances are looked up every few seconds. Null: there is no such instance. */
export function prepareNamed(db: DirectoryDb): (id: string) => NamedInstance | null {
  const select = prepareRaw<NamedInstance>(
    db,
    `SELECT i.name, o.slug AS organization, i.host_id AS hostId, i.vm_id AS vmId, i.desired, i.status,
       a.address, a.address_v6 AS addressV6, t.ssh_host_key AS sshHostKey
     FROM instances i JOIN organizations o ON o.id = i.organization_id
     LEFT JOIN instance_addresses a ON a.instance_id = i.id
     LEFT JOIN instance_attestations t ON t.instance_id = i.id
     WHERE i.id = ?`,
  )
  return id => select.get(id)
}
