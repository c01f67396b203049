// An instance with IPv6 alone, and attacks of its customer on the own VM with everything an instance has: one VM, one
// boot.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { type Started, startWithCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import { expectNetwork } from '../rigs/instances/expect-network.ts'

const timeoutMs = 900_000
const bootedMs = 600_000
const stepMs = 120_000
const listMsMax = 2_000

inOwnNetns(
  import.meta.path,
  () => {
    let host: Started
    const made = { name: '', hostname: '' }
    beforeAll(async () => {
      const settings = 'scratch_gib = 1\nmemory_mib = 1024\nstop_grace_ms = 2_000\nboot_timeout_ms = 900_000'
      host = await startWithCustomer(settings, 'vm', undefined, '', {
        listen: 'inference = "[::]:8442"',
        inference: 'placement = "host"',
        network: 'pool_v4 = ""\npool_v6 = "2001:db8:88::/64"\nresolvers = ["2620:fe::9"]',
      })
    }, timeoutMs)
    afterAll(() => host?.[Symbol.asyncDispose]())

    test(
      'an instance with IPv6 alone becomes ready, is named and logged in to',
      async () => {
        // Goal: nothing on the way of an instance needs IPv4.
        const { appliance, acme } = host
        Object.assign(made, (await acme.create()).body.data)
        await acme.reached(made.name, 'ready', bootedMs)
        const address = (await appliance.resolveV6(made.hostname)) ?? ''
        expect(address).toBe('2001:db8:88::1')
        // There is no IPv4 address.
        expect(await appliance.resolve(made.hostname)).toBe(address)
        await expectNetwork(appliance, made.hostname, {
          address,
          families: ['inet6'],
          holds: ['nameserver 2620:fe::9\n', 'fd73:7472:6f6e:67::1 inference.strongroom.internal\n'],
        })
        expect(appliance.log()).not.toContain('"level":"error"')
        expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })
      },
      timeoutMs,
    )

    test(
      'a guest that fills its disk or its memory recovers, and one that only forks is deleted like any other',
      async () => {
        // Goal: what a guest does to itself costs the API nothing, and the host gets back all that it gave.
        const { appliance, acme } = host
        const { name, hostname } = made
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
        await acme.end(name, stepMs)
        expect([await appliance.resolveV6(hostname), await appliance.resolve(hostname)]).toEqual([null, null])
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
        expect(await appliance.stop()).toBe(0)
      },
      timeoutMs,
    )
  },
  { timeoutMs: 2 * timeoutMs },
)
