// A host of service A without QEMU: the service, both reconcilers and the warm pool over a real database, with a
// manual clock.

import nacl from 'tweetnacl'
import { claimless, type Engine } from '../../../scripts/rigs/instances/claimless.ts'
import { addKey, prefixOf, publicKey, settings } from '../../../scripts/rigs/instances/instances-service.ts'
import { toBase64 } from '../../../src/base/bytes.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { type PoolDeps, WarmPool } from '../../../src/instances/pool.ts'
import { createInstancesService, type Principal } from '../../../src/instances/service.ts'
import { listLiving } from '../../../src/store/directory/instance.query.ts'
import type { Instance } from '../../../src/store/directory/instance.table.ts'
import { findOrganization } from '../../../src/store/directory/organization.query.ts'
import { listPoolVms } from '../../../src/store/directory/pool.query.ts'
import { listVms } from '../../../src/store/ledger/vm.query.ts'
import type { VmState } from '../../../src/store/ledger/vm.table.ts'
import { admissionFor } from '../../../src/vm/capacity.query.ts'
import type { VmReconciler } from '../../../src/vm/machine/reconciler.ts'
import { addressRestMs, engineBench, hello, roomy, spec } from '../launch/vm-engine.ts'

export const digestA = 'a'.repeat(64)
export const digestB = 'b'.repeat(64)

export type HostChanges = Partial<Pick<PoolDeps, 'wanted' | 'shape'>> & {
  /** Stands before the engine: throws where the process is to have ended. */
  readonly engine?: Partial<Pick<Engine, 'define' | 'dismiss'>>
}

export type PoolBenchOptions = Parameters<typeof engineBench>[0] & { readonly wanted?: number }

export function poolBench({ wanted = 3, ...options }: PoolBenchOptions = {}) {
  const bench = engineBench(options)
  const { store, clock } = bench
  const capacity = options.capacity ?? roomy
  const image = { digest: digestA, isThere: true }
  const claims: { vmId: string; claimId: string }[] = []
  const faces = { claim: async (): Promise<void> => {} }
  const key = addKey(store.directory, clock, 'acme', 'write')
  const organization = findOrganization(store.directory.db, 'acme')
  if (organization === null) throw new Error('no organization')
  const caller: Principal = { organization, keyPrefix: prefixOf(key) }

  const claimVm = async (claim: { vmId: string; claimId: string }) => {
    await faces.claim()
    claims.push(claim)
  }

  /** The parts that a daemon has in memory; another call is another daemon on what an earlier one left. */
  const startHost = (changes: HostChanges = {}, reconciler: VmReconciler = bench.create()) => {
    const engine: Engine = {
      define: (vmId, vmSpec) => reconciler.define(vmId, vmSpec),
      dismiss: vmId => reconciler.dismiss(vmId),
      view: vmId => reconciler.view(vmId),
      onChange: listener => reconciler.onChange(listener),
      ...changes.engine,
    }
    const pool = new WarmPool({
      store,
      engine,
      vmSpec: spec,
      shape: changes.shape ?? 'tcg, 2 vCPUs, 2048 MiB',
      wanted: changes.wanted ?? wanted,
      imageDigest: () => {
        if (!image.isThere) throw new Error('no manifest')
        return image.digest
      },
      room: () => {
        const host = { hostId: store.hostId, diskGibMax: () => 0, capacity, addressRestMs, nowMs: clock.nowMs() }
        return admissionFor(store.ledger.db, { ...spec, diskGib: 0 }, host)
      },
      clock,
      random: systemRandom,
      log: silentLogger,
    })
    const instances = claimless({ store, clock, engine, claim: claimVm })
    const service = createInstancesService({
      directory: store.directory,
      platform: 'tcg',
      clock,
      admitNew: () => {},
      isClockTrusted: () => true,
      random: systemRandom,
      log: silentLogger,
      settings,
      takeVm: tx => pool.take(tx) ?? { vmId: newUuid(), start: 'cold' },
      onCreated: (instance, start) => {
        pool.accepted(instance, start)
        instances.wake(instance.id)
      },
      onDeleted: instance => instances.wakeDeleted(instance),
      inferenceCostMicroUsd: () => 0n,
    })
    pool.start()
    instances.start()
    reconciler.start()
    return {
      pool,
      service,
      create: async (idempotencyKey: string | null = null) =>
        (await service.create(caller, { publicKey, inferenceModel: null, egress: null }, idempotencyKey)).data.name,
      remove: (name: string) => service.remove(caller, name),
      /** As good as kill -9 between two turns: nothing of it goes on, and nothing is cleared away. */
      end: async () => {
        await Promise.all([pool.stop(), instances.stop(), reconciler.stop()])
      },
    }
  }

  /** The agent of a booting VM says hello, with a key of its own. */
  const boot = (vmId: string) =>
    bench.observe(vmId, { hello: { ...hello, boxKey: toBase64(nacl.box.keyPair().publicKey) } })
  const vmsIn = (...states: VmState[]): string[] =>
    listVms(store.ledger.db, store.hostId).flatMap(vm => (states.includes(vm.state) ? [vm.id] : []))
  /** Boots all that the host begins to boot, until it begins no more. */
  const bootAll = async () => {
    await clock.elapse(0)
    for (let vms = vmsIn('booting'); vms.length > 0; vms = vmsIn('booting')) for (const vmId of vms) await boot(vmId)
  }
  const pooled = (): string[] => listPoolVms(store.directory.db, store.hostId).map(row => row.vmId)
  const living = (): Instance[] => listLiving(store.directory.db, store.hostId)
  const instance = (name: string): Instance => {
    const found = living().find(item => item.name === name)
    if (found === undefined) throw new Error(`no instance ${name}`)
    return found
  }
  return { ...bench, hello, image, faces, claims, startHost, boot, bootAll, vmsIn, pooled, living, instance }
}
