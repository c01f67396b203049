// Service A under a wall clock that is set by an hour and by 40 days, either way, while it runs.

import { describe, expect, test } from 'bun:test'
import { createClockGuard } from '../../scripts/rigs/clock-guard.ts'
import { type Appliance, publicKey, startAppliance } from '../../scripts/rigs/instances/instances-service.ts'
import { silentLogger } from '../../src/base/log.ts'
import { runRetention } from '../../src/instances/retention.ts'
import { moveInstance } from '../../src/store/directory/instance.query.ts'

const hourMs = 3_600_000
const dayMs = 24 * hourMs
const JUMPS = { 'an hour on': hourMs, 'an hour back': -hourMs, '40 days on': 40 * dayMs, '40 days back': -40 * dayMs }

const create = (appliance: Appliance, key: string) =>
  appliance.send('POST', '/v1/instances', { body: { public_key: publicKey }, headers: { 'Idempotency-Key': key } })

const names = async (appliance: Appliance) =>
  Object((await appliance.send('GET', '/v1/instances')).data).instances.map(
    (instance: { name: string }) => instance.name,
  )

function terminate({ store, clock }: Appliance, id: string): void {
  const nowMs = clock.nowMs()
  moveInstance(store.db, { id, from: 'provisioning', to: 'terminating', nowMs, desired: 'absent' })
  moveInstance(store.db, { id, from: 'terminating', to: 'terminated', nowMs, terminatedAtMs: nowMs, vmId: null })
}

describe('a clock that is set by', () => {
  for (const [what, jumpMs] of Object.entries(JUMPS)) {
    // Goal: keys stay good, every request is answered, a repeated create makes nothing twice however far the clock was
    // set, and nobody is charged for hours that have not been, or negative ones.
    test(`${what}: requests and charges`, async () => {
      await using appliance = await startAppliance()
      const { clock, store } = appliance
      const first = await create(appliance, 'first')
      const { id, name } = appliance.instance(String(first.data.name))
      moveInstance(store.db, { id, from: 'provisioning', to: 'ready', nowMs: clock.nowMs(), readyAtMs: clock.nowMs() })
      clock.advance(hourMs)
      clock.set(clock.nowMs() + jumpMs)
      const again = await create(appliance, 'first')
      expect([again.status, again.data.name === first.data.name]).toEqual([202, true])
      expect((await create(appliance, 'second')).status).toBe(202)
      expect(await names(appliance)).toContain(name)
      const { usage, pricing } = (await appliance.send('GET', '/v1/usage')).data as Record<
        string,
        Record<string, never>
      >
      const periodHours = (Date.parse(String(pricing?.period_end)) - Date.parse(String(pricing?.period_start))) / hourMs
      expect(usage?.instance_hours_used).toBeGreaterThanOrEqual(0)
      expect(usage?.instance_hours_used).toBeLessThanOrEqual(periodHours)
      // Right again: the hour that was, and no other.
      clock.set(clock.nowMs() - jumpMs)
      const right = (await appliance.send('GET', '/v1/usage')).data as Record<string, Record<string, unknown>>
      expect(right.usage?.instance_hours_used).toBe(1)
      expect((await appliance.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
    })

    // Goal: a record is kept for its 30 days, whatever the clock says for an hour in between.
    test(`${what}: records`, async () => {
      await using appliance = await startAppliance()
      const { clock, store } = appliance
      const { id, name } = await appliance.create()
      terminate(appliance, id)
      const stopping = new AbortController()
      const deps = {
        directory: store.directory,
        clock,
        guard: createClockGuard(clock),
        log: silentLogger,
        retentionDays: 30,
      }
      const running = runRetention(deps, stopping.signal)
      await clock.elapse(hourMs)
      clock.set(clock.nowMs() + jumpMs)
      await clock.elapse(hourMs)
      expect(await names(appliance)).toEqual([name])
      clock.set(clock.nowMs() - jumpMs)
      const pass = (days: number) => {
        // One round at the end of it in place of thousands.
        clock.advance(days * dayMs - hourMs)
        return clock.elapse(hourMs)
      }
      await pass(29)
      expect(await names(appliance)).toEqual([name])
      await pass(4)
      expect(await names(appliance)).toEqual([])
      stopping.abort()
      await running
    })
  }
})
