// Attacks of a customer on the own VM with everything an instance has: one VM, one boot.

import { expect, test } from 'bun:test'
import { startWithCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'

const timeoutMs = 900_000
const readyMs = 300_000
const listMsMax = 2_000

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'a guest that fills its disk or its memory recovers, and one that only forks is deleted like any other',
      async () => {
        // Goal: what a guest does to itself costs the API nothing, and the host gets back all that it gave.
        await using started = await startWithCustomer('scratch_gib = 1\nmemory_mib = 1024\nstop_grace_ms = 2_000')
        const { appliance, acme } = started
        const { name } = (await acme.create()).body.data
        const { hostname } = await acme.reached(name, 'ready', readyMs)
        const listMs = async () => {
          const startedMs = performance.now()
          await acme.list()
          return performance.now() - startedMs
        }

        const full = await appliance.ssh(hostname, [
          'fallocate -l $(($(df --output=avail -B1M ~ | tail -n 1) - 8))M ~/most; head -c 64M /dev/zero >~/rest; rm ~/most ~/rest; echo still here',
        ])
        expect(full.stderr).toContain('No space left on device')
        expect(full.stdout).toBe('still here\n')

        await appliance.ssh(hostname, ['tail /dev/zero'])
        await until('the guest serves SSH after it was out of memory', 180_000, async () => {
          return (await appliance.ssh(hostname, ['true'])).exitCode === 0
        })

        await appliance.ssh(hostname, ["setsid -f bash -c 'f() { f | f & }; f' >/dev/null 2>&1 </dev/null"])
        const times: number[] = []
        for (let at = 0; at < 21; at += 1) times.push(await listMs())
        // Half of them: now and then the machine has something else to do.
        expect(times.toSorted((a, b) => a - b)[10]).toBeLessThan(listMsMax)
        expect(['ready', 'failed']).toContain((await acme.retrieve(name)).status)
        await acme.end(name, 60_000)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
