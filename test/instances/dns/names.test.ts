// Goal: names follow commits: a deleted name is gone before the response, and the next refresh repairs missed
// changes.

import { expect, test } from 'bun:test'
import { type Appliance, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { toBase64 } from '../../../src/base/bytes.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { v6Bytes } from '../../../src/instances/dns/address.plan.ts'
import { NameTableReader } from '../../../src/instances/dns/name-table.ts'
import { Names } from '../../../src/instances/dns/names.ts'
import { hostKey } from '../../../src/instances/dns/zone.plan.ts'
import { storeAttestation } from '../../../src/store/directory/attestation.query.ts'
import type { VmView } from '../../../src/vm/engine.ts'

type Vms = Map<string, Pick<VmView, 'state' | 'address' | 'addressV6'>>

async function withNames(
  work: (rig: {
    appliance: Appliance
    names: Names
    vms: Vms
    address: (name: string) => string | null
    fingerprint: (name: string) => string | null
    find: NameTableReader['find']
  }) => Promise<void>,
) {
  let names: Names | null = null
  await using appliance = await startAppliance({ onDeleted: instance => names?.instanceChanged(instance.id) })
  const vms: Vms = new Map()
  names = new Names({
    db: appliance.store.db,
    hostId: appliance.store.hostId,
    report: () => {},
    isPartial: () => false,
    engine: {
      view: id => {
        const vm = vms.get(id)
        return vm === undefined
          ? null
          : {
              id,
              platform: 'tcg' as const,
              failureCode: null,
              failureMessage: null,
              failedAtMs: null,
              guest: null,
              opened: true,
              ...vm,
            }
      },
    },
    namesMax: 20,
    hostAddresses: () => {
      const own = { v4: '192.0.2.1', v6: null }
      return { ns: own, instances: own, inference: null, builds: null }
    },
    clock: appliance.clock,
    log: silentLogger,
  })
  const reader = new NameTableReader(names.memory)
  const address = (name: string) => {
    const found = reader.find(name)
    return found.kind === 'found' && found.v4 !== null ? found.v4.join('.') : null
  }
  const fingerprint = (name: string) => {
    const found = reader.find(name)
    return found.kind === 'found' && found.fingerprint !== null ? toBase64(found.fingerprint) : null
  }
  try {
    await work({ appliance, names, vms, address, fingerprint, find: name => reader.find(name) })
  } finally {
    await names.stop()
  }
}

test('goal: a name is there from its VM’s address on, and gone when the delete is answered', async () => {
  await withNames(async ({ appliance, names, vms, address }) => {
    const { name, vmId } = await appliance.create()
    expect(address(`${name}.acme`)).toBeNull()
    vms.set(vmId ?? '', { state: 'launching', address: '10.88.0.7', addressV6: null })
    names.vmChanged(vmId ?? '')
    expect(address(`${name}.acme`)).toBe('10.88.0.7')
    expect(address(`${name}.globex`)).toBeNull()
    expect((await appliance.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
    expect(address(`${name}.acme`)).toBeNull()
    // The VM is still there and moves on; its name stays gone.
    names.vmChanged(vmId ?? '')
    expect(address(`${name}.acme`)).toBeNull()
  })
})

test('goal: the labels of the appliance lead to this host and those of its fleet that are there', async () => {
  await withNames(async ({ names, address }) => {
    await names.start()
    const at = (v4: string) => ({ v4, v6: null })
    const host = (v4: string) => ({ ns: at(v4), instances: at(v4), inference: at(v4), builds: null })
    const led = (label: string) => [0, 1, 2, 3, 4].flatMap(n => address(hostKey(label, n)) ?? [])
    expect([led('instances'), led('inference')]).toEqual([['192.0.2.1'], []])
    names.othersAre([host('192.0.2.2'), host('192.0.2.1'), host('192.0.2.3')])
    expect(led('instances')).toEqual(['192.0.2.1', '192.0.2.2', '192.0.2.3'])
    expect(led('inference')).toEqual(['192.0.2.2', '192.0.2.1', '192.0.2.3'])
    expect(led('builds')).toEqual([])
    names.othersAre([4, 5, 6, 7, 8].map(n => host(`192.0.2.${n}`)))
    expect(led('ns')).toEqual(['192.0.2.1', '192.0.2.4', '192.0.2.5', '192.0.2.6'])
    names.othersAre([host('192.0.2.9')])
    expect(led('ns')).toEqual(['192.0.2.1', '192.0.2.9'])
    expect(led('inference')).toEqual(['192.0.2.9'])
  })
})

test('goal: the fingerprint of the attested host key stands beside the address, and goes with the name', async () => {
  await withNames(async ({ appliance, names, vms, fingerprint }) => {
    const { id, name, vmId } = await appliance.create()
    vms.set(vmId ?? '', { state: 'running', address: '10.88.0.7', addressV6: null })
    names.vmChanged(vmId ?? '')
    expect(fingerprint(`${name}.acme`)).toBeNull()
    const sshHostKey = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHsJzTQ0tPK4Tw9J6f8W6S1QhIYzG1mJtN5gRt0cMZrE'
    const row = { instanceId: id, nonce: 'n'.repeat(43), sshHostKey, attestedAtMs: 1, document: '{}' }
    storeAttestation(appliance.store.db, row)
    names.instanceChanged(id)
    // As `ssh-keygen -l` prints it.
    expect(fingerprint(`${name}.acme`)).toBe('De0OWSeuoZoObY+NjNtWg1896NfGFZ2gG8akGVi9/ds=')
    expect((await appliance.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
    expect(fingerprint(`${name}.acme`)).toBeNull()
  })
})

test('goal: a name leads to the addresses of both families, or of the one that there is', async () => {
  await withNames(async ({ appliance, names, vms, find }) => {
    const { vmId, name } = await appliance.create()
    const found = (v4: readonly number[] | null, v6: string | null) => ({
      kind: 'found',
      v4: v4 === null ? null : Uint8Array.from(v4),
      v6: v6 === null ? null : v6Bytes(v6),
      fingerprint: null,
    })
    for (const [address, addressV6, expected] of [
      ['10.88.0.7', '2001:db8:88::7', found([10, 88, 0, 7], '2001:db8:88::7')],
      [null, '2001:db8:88::7', found(null, '2001:db8:88::7')],
      ['10.88.0.7', null, found([10, 88, 0, 7], null)],
      [null, null, { kind: 'absent' }],
    ] as const) {
      vms.set(vmId ?? '', { state: 'running', address, addressV6 })
      names.vmChanged(vmId ?? '')
      expect(find(`${name}.acme`)).toEqual(expected as never)
    }
  })
})

test('goal: a VM that failed or is gone leaves its name without an address', async () => {
  await withNames(async ({ appliance, names, vms, address }) => {
    for (const state of ['failed', 'gone'] as const) {
      const { name, vmId } = await appliance.create()
      vms.set(vmId ?? '', { state: 'running', address: '10.88.0.7', addressV6: null })
      names.vmChanged(vmId ?? '')
      expect([state, address(`${name}.acme`)]).toEqual([state, '10.88.0.7'])
      vms.set(vmId ?? '', { state, address: '10.88.0.7', addressV6: null })
      names.vmChanged(vmId ?? '')
      expect([state, address(`${name}.acme`)]).toEqual([state, null])
    }
  })
})

test('goal: the appliance’s own names are there from the start, and lost events are made good', async () => {
  await withNames(async ({ appliance, names, vms, address }) => {
    const [first, second] = [await appliance.create(), await appliance.create()]
    vms.set(first.vmId ?? '', { state: 'running', address: '10.88.0.7', addressV6: null })
    await names.start()
    expect(['ns', 'instances', 'inference', `${first.name}.acme`].map(address)).toEqual([
      '192.0.2.1',
      '192.0.2.1',
      null,
      '10.88.0.7',
    ])
    vms.delete(first.vmId ?? '')
    vms.set(second.vmId ?? '', { state: 'running', address: '10.88.0.8', addressV6: null })
    await until('the refresh', 15_000, () => {
      appliance.clock.advance(5_000)
      return address(`${first.name}.acme`) === null && address(`${second.name}.acme`) === '10.88.0.8'
    })
  })
})

test('goal: what cannot be looked up has no name', async () => {
  await withNames(async ({ appliance, names, vms, address }) => {
    const created = [
      await appliance.create(),
      await appliance.create(),
      await appliance.create(),
      await appliance.create(),
    ]
    const [first] = created
    await names.start()
    for (const [i, { vmId }] of created.entries()) {
      vms.set(vmId ?? '', { state: 'running', address: `10.88.0.${i}`, addressV6: null })
      names.vmChanged(vmId ?? '')
    }
    expect(created.map(({ name }) => address(`${name}.acme`))).toEqual([
      '10.88.0.0',
      '10.88.0.1',
      '10.88.0.2',
      '10.88.0.3',
    ])
    vms.get = () => {
      throw new Error('the ledger cannot be read')
    }
    names.instanceChanged(first?.id ?? '')
    expect(address(`${first?.name}.acme`)).toBeNull()
  })
})
