// A host of service A without QEMU: the service, both reconcilers and the warm pool over one real database, with a manual clock.

import nacl from 'tweetnacl'
import { toBase64 } from '../../src/base/bytes.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { type PoolDeps, WarmPool } from '../../src/instances/pool.ts'
import { InstanceReconciler } from '../../src/instances/reconciler.ts'
import { createInstancesService, type Principal } from '../../src/instances/service.ts'
import { listLiving } from '../../src/store/directory/instance.query.ts'
import type { Instance } from '../../src/store/directory/instance.table.ts'
import { findOrganization } from '../../src/store/directory/organization.query.ts'
import { listPoolVms } from '../../src/store/directory/pool.query.ts'
import { listVms } from '../../src/store/ledger/vm.query.ts'
import type { VmState } from '../../src/store/ledger/vm.table.ts'
import type { VmEngine } from '../../src/vm/engine.ts'
import type { VmReconciler } from '../../src/vm/reconciler.ts'
import { roomFor } from '../../src/vm/room.query.ts'
import { addKey, prefixOf, publicKey, settings } from './instances-service.ts'
import { addressRestMs, engineBench, hello, roomy, spec } from './vm-engine.ts'

export const digestA = 'a'.repeat(64)
export const digestB = 'b'.repeat(64)

export type HostChanges = Partial<Pick<PoolDeps, 'wanted' | 'shape'>> & {
  /** Stands before the engine: throws where the process is to have ended. */
  readonly engine?: Partial<Pick<VmEngine, 'define' | 'dismiss'>>
}

export type PoolBenchOptions = Parameters<typeof engineBench>[0] & { readonly wanted?: number }

export function poolBench({ wanted = 3, ...options }: PoolBenchOptions = {}) {
  const bench = engineBench(options)
  const { store, clock, world } = bench
  const capacity = options.capacity ?? roomy
  const image = { digest: digestA, isThere: true }
  const claims: { vmId: string; claimId: string | null }[] = []
  const faces = { claim: async (): Promise<void> => {} }
  const key = addKey(store.directory, clock, 'acme', 'write')
  const organization = findOrganization(store.directory.db, 'acme')
  if (organization === null) throw new Error('no organization')
  const caller: Principal = { organization, keyPrefix: prefixOf(key), scope: 'write' }

  /** The parts that a daemon has in memory; another call is another daemon on what an earlier one left. */
  const startHost = (changes: HostChanges = {}, reconciler: VmReconciler = bench.create()) => {
    const engine: VmEngine = {
      define: (vmId, vmSpec) => reconciler.define(vmId, vmSpec),
      dismiss: vmId => reconciler.dismiss(vmId),
      view: vmId => reconciler.view(vmId),
      onChange: listener => reconciler.onChange(listener),
      claim: async vmId => {
        await faces.claim()
        claims.push({
          vmId,
          claimId: listLiving(store.directory.db, store.hostId).find(one => one.vmId === vmId)?.id ?? null,
        })
        return { claimId: 'c', sshHostKey: hello.sshHostKey }
      },
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
        const asked = { hostId: store.hostId, ...spec, capacity, addressRestMs, nowMs: clock.nowMs() }
        return roomFor(store.ledger.db, asked)
      },
      clock,
      random: systemRandom,
      log: silentLogger,
    })
    const instances = new InstanceReconciler({
      store,
      engine,
      vmSpec: spec,
      probe: probe => world.ssh(probe),
      clock,
      random: systemRandom,
      log: silentLogger,
      inferenceBaseUrl: 'https://gateway/v1',
      inferenceCa: null,
      inferenceKey: () => null,
      claimTimeoutMs: 5_000,
      sshTimeoutMs: 5_000,
    })
    const service = createInstancesService({
      directory: store.directory,
      hostId: store.hostId,
      platform: 'tcg',
      clock,
      random: systemRandom,
      log: silentLogger,
      settings,
      takeVm: tx => pool.take(tx),
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
      create: (idempotencyKey: string | null = null) =>
        service.create(caller, { publicKey, inferenceModel: null }, idempotencyKey).data.name,
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
    const found = living().find(one => one.name === name)
    if (found === undefined) throw new Error(`no instance ${name}`)
    return found
  }
  return { ...bench, hello, image, faces, claims, startHost, boot, bootAll, vmsIn, pooled, living, instance }
}
