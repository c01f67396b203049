// A daemon that is killed between any two steps of an attested claim, and its successor on the same store. Real
// SQLite, real evidence.

import { describe, expect, test } from 'bun:test'
import { until } from '../../../scripts/rigs/until.ts'
import { attestationOf } from '../../../src/store/directory/attestation.query.ts'
import { listChangesOverlapping } from '../../../src/store/directory/instance.query.ts'
import type { VmEngine } from '../../../src/vm/engine.ts'
import { provisioningBench } from '../../rigs/instances/provisioning-bench.ts'

type Engine = Pick<VmEngine, 'claim' | 'evidence' | 'handReceipt' | 'open'>
/** The probe begins with the evidence, beside it. */
const STEPS = ['claim', 'probe', 'evidence', 'open', 'receipt'] as const

describe('a daemon killed', () => {
  for (const step of STEPS) {
    for (const moment of ['before', 'after'] as const) {
      test(`${moment} ${step} loses no instance, and hands out no VM twice`, async () => {
        // Goal: state is in rows and steps may be repeated: the next daemon makes the same instance ready on the same
        // VM, once.
        const bench = provisioningBench()
        const { store, clock, engine, claims, steps, ready, instance, provisioned } = bench
        const dead = Promise.withResolvers<never>()
        let hasDied = false
        /** The step, and then nothing more, or nothing at all. */
        const die = <T>(work: () => Promise<T>) => {
          const done = moment === 'after' ? work() : Promise.resolve()
          return done.then(() => {
            hasDied = true
            return dead.promise
          })
        }
        const killed: Engine = {
          claim: (...asked) => (step === 'claim' ? die(() => engine.claim(...asked)) : engine.claim(...asked)),
          evidence: (...asked) =>
            step === 'evidence' ? die(() => engine.evidence(...asked)) : engine.evidence(...asked),
          handReceipt: (...asked) =>
            step === 'receipt' ? die(() => engine.handReceipt(...asked)) : engine.handReceipt(...asked),
          open: vmId => {
            if (step !== 'open' || moment === 'after') engine.open(vmId)
            opened.resolve()
          },
        }
        // A synchronous step cannot hang: its daemon ends where it waits for the probe, and all else is done by then.
        const opened = Promise.withResolvers<void>()
        const probe =
          step === 'open' || step === 'probe' ? () => opened.promise.then(() => die(async () => {})) : undefined
        bench.start(killed, probe).wake('instance')
        await until('the daemon has died', 60_000, async () => {
          await clock.elapse(0)
          return hasDied
        })
        expect(instance()).toMatchObject({ status: 'provisioning', vmId: 'vm' })
        expect(attestationOf(store.directory.db, 'instance')).toBeNull()

        const stepsBefore = steps.length
        bench.reconciler.wake('instance')
        await provisioned()
        expect(instance()).toMatchObject({ status: 'ready', vmId: 'vm', failureCode: null })
        expect(steps.slice(stepsBefore)).toEqual([...STEPS])
        expect(new Set(claims.map(claim => claim.claimId))).toEqual(new Set(['instance']))
        expect(steps).not.toContain('define vm')
        expect(ready).toEqual(['instance'])
        const kept = attestationOf(store.directory.db, 'instance')
        expect(kept).not.toBeNull()

        // And should the old one only have been slow, it changes nothing any more.
        dead.reject(new Error('it comes to'))
        await clock.elapse(60_000)
        expect(instance().status).toBe('ready')
        expect(attestationOf(store.directory.db, 'instance')).toEqual(kept)
        const changes = listChangesOverlapping(store.directory.db, { organizationId: 'org', fromMs: 0 })
        expect(changes.map(({ status }) => status)).toEqual(['provisioning', 'ready'])
      })
    }
  }
})
