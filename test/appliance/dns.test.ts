// Goal: as the appliance is put together, a name goes with the delete's commit, and comes and goes with its VM's.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { createClockGuard } from '../../scripts/rigs/clock-guard.ts'
import { publicKey } from '../../scripts/rigs/instances/instances-service.ts'
import { nobodyLogs } from '../../scripts/rigs/transparency.ts'
import { composeNames } from '../../src/appliance/dns.ts'
import { SINGLE_HOST_LINK } from '../../src/appliance/fleet/directory.ts'
import { NO_FLEET_PEERS } from '../../src/appliance/fleet/peers.ts'
import { composeInstances, type InstancesParts } from '../../src/appliance/instances.ts'
import { newUuid, systemRandom } from '../../src/base/ids.ts'
import { type LogLevel, silentLogger } from '../../src/base/log.ts'
import { defaultConfig } from '../../src/config/load.ts'
import { supportedAgent, supportedInferenceMode } from '../../src/contract/http/instance.ts'
import { v4Bytes, v6Bytes } from '../../src/instances/dns/address.plan.ts'
import { NameTableReader } from '../../src/instances/dns/name-table.ts'
import { MaintenanceMode } from '../../src/operator/maintenance/mode.ts'
import { openStore } from '../../src/store/db.ts'
import { insertInstance, instanceById, listInstances } from '../../src/store/directory/instance.query.ts'
import { findOrganization, insertOrganization } from '../../src/store/directory/organization.query.ts'
import { openGate } from '../../src/upgrade/gate.ts'
import type { VmView } from '../../src/vm/engine.ts'

test('goal: no name outlives the answer to its delete, even when what follows the delete fails', async () => {
  const store = openStore(':memory:')
  const clock = createManualClock()
  const listeners: ((vmId: string) => void)[] = []
  let vm: VmView = {
    id: '',
    state: 'running',
    address: '10.88.0.7',
    addressV6: null,
    platform: 'tcg' as const,
    failureCode: null,
    failureMessage: null,
    failedAtMs: null,
    guest: null,
    opened: true,
  }
  const reconciler = {
    view: () => vm,
    define: () => {},
    dismiss: () => {
      throw new Error('the ledger cannot be written')
    },
    onChange: (listener: (vmId: string) => void) => void listeners.push(listener),
  }
  const engine = { reconciler } as unknown as InstancesParts['engine']
  const common = {
    ...nobodyLogs,
    config: defaultConfig(),
    store,
    engine,
    clock,
    clockGuard: createClockGuard(clock),
    random: systemRandom,
    gate: openGate,
    maintenance: new MaintenanceMode(store, { clock, log: silentLogger }),
    log: silentLogger,
    strangers: { level: (level: LogLevel) => level },
  }
  const names = composeNames({ ...common, link: SINGLE_HOST_LINK })
  const trust = () => Promise.reject(new Error('nobody is attested here'))
  const metering = { inferenceCostMicroUsd: () => 0n } as unknown as InstancesParts['metering']
  const keys = {
    revokeDeleted: () => {
      throw new Error('the directory cannot be written')
    },
    registerKey: () => {},
  } as unknown as InstancesParts['keys']
  const { service } = composeInstances({
    link: SINGLE_HOST_LINK,
    peers: NO_FLEET_PEERS,
    ...common,
    metering,
    keys,
    tls: { publish: () => Promise.reject(new Error('nothing is published here')), forgetPublished: () => {} },
    guestCaPem: '',
    stateDir: '/nowhere',
    workloads: null,
    names,
    trust,
    operatorKey: { digest: new Uint8Array(48) },
    firewall: { cutOff: async () => null },
    simulatedPlatform: () => Promise.reject(new Error('nobody is claimed here')),
  })
  insertOrganization(store.directory.db, { id: 'org', slug: 'acme', nowMs: 0 })
  const organization = findOrganization(store.directory.db, 'acme')
  if (organization === null) throw new Error('no organization')
  const caller = { organization, keyPrefix: 'admin', scope: 'write' } as const
  const reader = new NameTableReader(names.memory)

  const instance = insert(store.directory.db)
  for (const listener of listeners) listener(instance.vmId ?? '')
  expect(reader.find(`${instance.name}.acme`)).toEqual(found('10.88.0.7'))
  vm = { ...vm, address: null }
  for (const listener of listeners) listener(instance.vmId ?? '')
  expect(reader.find(`${instance.name}.acme`)).toEqual({ kind: 'absent' })
  vm = { ...vm, address: '10.88.0.8' }
  for (const listener of listeners) listener(instance.vmId ?? '')
  expect(reader.find(`${instance.name}.acme`)).toEqual(found('10.88.0.8'))

  await service.remove(caller, instance.name)
  expect(instanceById(store.directory.db, instance.id)?.desired).toBe('absent')
  expect(reader.find(`${instance.name}.acme`)).toEqual({ kind: 'absent' })
  store.close()

  function found(v4: string) {
    return { kind: 'found' as const, v4: v4Bytes(v4), v6: null, fingerprint: null }
  }

  function insert(db: typeof store.directory.db) {
    insertInstance(db, {
      id: newUuid(),
      hostId: store.hostId,
      organizationId: 'org',
      name: 'abcd2345',
      hostname: 'abcd2345.acme.agents.example',
      agent: supportedAgent,
      publicKey,
      inferenceMode: supportedInferenceMode,
      inferenceModel: 'tiny',
      vmId: newUuid(),
      nowMs: 0,
    })
    const [row] = listInstances(db, 'org')
    if (row === undefined) throw new Error('no instance')
    return row
  }
})

test('goal: without the database of its fleet a host says of no name that it does not exist', async () => {
  const store = openStore(':memory:')
  const engine = { reconciler: { view: () => null, onChange: () => {} } } as unknown as InstancesParts['engine']
  let isReached = true
  const link = { ...SINGLE_HOST_LINK, isShared: true, isReached: () => isReached }
  const config = defaultConfig()
  for (const kind of ['absent', 'busy', 'absent'] as const) {
    isReached = kind === 'absent'
    const names = composeNames({ config, store, engine, link, clock: createManualClock(), log: silentLogger })
    await names.start()
    expect(new NameTableReader(names.memory).find('abcd2345.acme')).toEqual({ kind })
    await names.stop()
  }
  store.close()
})

test('goal: the appliance’s own names have addresses of both families, those that are known', async () => {
  const public_v6 = '2001:db8:0::7'
  const table: [listen: string, public_v4: string, v4: string | null, v6: string | null][] = [
    ['192.0.2.2:53', '', '192.0.2.2', null],
    ['[::ffff:192.0.2.2]:53', '', '192.0.2.2', null],
    ['[2001:DB8:0::1]:53', '', null, '2001:db8::1'],
    ['[2001:db8::192.0.2.1]:53', '203.0.113.5', '203.0.113.5', '2001:db8::c000:201'],
    ['[::]:53', '203.0.113.5', '203.0.113.5', '2001:db8::7'],
    ['0.0.0.0:53', '203.0.113.5', '203.0.113.5', null],
    ['', '203.0.113.5', null, null],
  ]
  for (const [dns, public_v4, v4, v6] of table) {
    const store = openStore(':memory:')
    const config = defaultConfig()
    const names = composeNames({
      link: SINGLE_HOST_LINK,
      config: { ...config, listen: { ...config.listen, dns }, network: { ...config.network, public_v4, public_v6 } },
      store,
      engine: { reconciler: { view: () => null, onChange: () => {} } } as unknown as InstancesParts['engine'],
      clock: createManualClock(),
      log: silentLogger,
    })
    await names.start()
    const found = new NameTableReader(names.memory).find('ns')
    const expected = { v4: v4 === null ? null : v4Bytes(v4), v6: v6 === null ? null : v6Bytes(v6), fingerprint: null }
    const isAbsent = v4 === null && v6 === null
    expect([dns, found]).toEqual([dns, isAbsent ? { kind: 'absent' } : { kind: 'found', ...expected }])
    await names.stop()
    store.close()
  }
})
