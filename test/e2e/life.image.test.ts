import { expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { createAppliance } from '../../scripts/rigs/appliance.ts'
import { createCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import { InstanceRecord, UsageSummary } from '../../src/contract/http/instance.ts'

const timeoutMs = 600_000

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'the whole life of an instance, by HTTP and by SSH',
      async () => {
        // Goal: create, boot, claim, log in, use, meter, delete; every response of the contract's form; nothing left
        // behind.
        await using appliance = await createAppliance()
        await appliance.start()
        const acme = await createCustomer(appliance, 'acme')
        const other = await createCustomer(appliance, 'other')

        const created = await acme.create('life-1')
        expect(created.status).toBe(202)
        const { name, hostname } = created.body.data
        expect(hostname).toBe(`${name}.acme.agents.test`)
        expect(Object.keys(created.body.data)).toEqual([
          ...['name', 'status', 'agent', 'hostname', 'public_key', 'inference_mode', 'inference_model'],
          ...['egress_limit_bytes', 'created_at'],
        ])
        expect((await other.list()).length).toBe(0)

        const ready = await acme.reached(name, 'ready', 300_000)
        expect(Value.Check(InstanceRecord, ready)).toBe(true)
        expect(ready.ready_at).not.toBeNull()

        const session = await appliance.ssh(hostname, [
          'id -un; hostname; opencode --version; cat ~/.config/opencode/opencode.json',
        ])
        expect(session.exitCode, session.stderr).toBe(0)
        const [user, host, version, ...settings] = session.stdout.split('\n')
        expect(user).toBe('agent')
        expect(host).toBe(name)
        expect(version).toMatch(/^\d+\.\d+\.\d+$/)
        expect(JSON.parse(settings.join('\n'))).toMatchObject({ model: expect.stringContaining('strongroom-tiny') })

        // Its processors and a clock, which its kernel learns of from tables that nothing may write over.
        const clock = '/sys/devices/system/clocksource/clocksource0/current_clocksource'
        const machine = (await appliance.ssh(hostname, [`nproc; cat ${clock}`])).stdout.split('\n')
        expect(machine[0]).toBe('2')
        expect(machine[1]).not.toMatch(/jiffies/)

        // Must fail in a guest.
        const root = await appliance.ssh(hostname, ['cat /etc/shadow; touch /usr/bin/x; sudo true'])
        expect(root.stdout).toBe('')
        expect((await appliance.sshWith(['-o', 'PubkeyAuthentication=no'], hostname, ['true'])).exitCode).toBe(255)
        expect((await appliance.sshWith(['-l', 'root'], hostname, ['true'])).exitCode).toBe(255)
        const privileged = ['-o', 'ExitOnForwardFailure=yes', '-R', '127.0.0.1:99:127.0.0.1:22']
        expect((await appliance.sshWith(privileged, hostname, ['true'])).exitCode).toBe(255)

        await until(
          'the sampler has seen the traffic',
          60_000,
          async () => (await acme.usage()).usage.egress_bytes > 1000,
        )
        const usage = await acme.usage()
        expect(Value.Check(UsageSummary, usage)).toBe(true)
        expect(usage.usage.instance_hours_used).toBeGreaterThan(0)
        expect((await other.usage()).usage.egress_bytes).toBe(0)

        const console_ = await appliance.cli('instance', 'console', `acme/${name}`)
        expect(console_.stdout).toContain('agent started')
        expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })

        const removed = await acme.remove(name)
        expect(removed.status).toBe(202)
        expect(removed.body.data).toMatchObject({
          status: 'terminating',
          terminated_reason: 'deleted_via_api',
          terminated_at: null,
        })
        expect(await appliance.resolve(hostname)).toBeNull()
        const gone = await acme.reached(name, 'terminated', 60_000)
        expect(gone.terminated_at).not.toBeNull()
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)

        // Repeating a delete, and the create, changes nothing.
        expect((await acme.remove(name)).body.data).toEqual(gone)
        expect((await acme.create('life-1')).body.data).toEqual(created.body.data)
        expect((await acme.list()).map(record => record.name)).toEqual([name])
        expect(appliance.log()).not.toContain(acme.key.slice(12))
        expect(await appliance.stop()).toBe(0)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
