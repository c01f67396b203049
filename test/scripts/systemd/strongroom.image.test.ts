// The systemd unit as systemd runs it: an appliance installed in a booted Debian, with a VM under software emulation
// and a worker.

import { Database } from 'bun:sqlite'
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { copyFileSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { imageDir } from '../../../scripts/rigs/appliance.ts'
import { buildTimeoutMs, debianTree } from '../../../scripts/rigs/booted/tree.ts'
import { buildCachedImage } from '../../../scripts/rigs/build/image-build.ts'
import {
  createGatewayClient,
  type GatewayClient,
  workerModel,
} from '../../../scripts/rigs/gateway/appliance-gateway.ts'
import { type Customer, createCustomer } from '../../../scripts/rigs/instances/instances-client.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import type { AdminGatewayVms } from '../../../src/contract/admin/gateway-vms.ts'
import { likeTheDaemon } from '../../rigs/probe-unit.ts'
import { installAppliance, type SystemdAppliance, units } from '../../rigs/systemd-appliance.ts'

/** Kernel, clock and network of a container are the machine's, so their checks are not the container's. */
const OF_THE_MACHINE = ['clock', 'control groups', 'forwarding', 'processes', 'connections']

/** Checks of doctor that fail or warn, except those of the machine. */
function oddChecks(stdout: string): string[] {
  return stdout
    .split('\n')
    .filter(line => /^(FAIL|WARN) /.test(line))
    .filter(line => !OF_THE_MACHINE.some(name => line.startsWith(`WARN  ${name} `)))
}

const timeoutMs = 600_000
/** For all tests together: three VMs boot one after the other. */
const wholeTimeoutMs = 1_800_000
const connectTimeoutMs = 10_000
/** The limit that stood in the unit before: after so many starts within a minute systemd gave up. */
const formerStartsMax = 10

// The namespace of the tests has no way to Debian's mirror, and what is not cached takes minutes.
beforeAll(async () => {
  await debianTree()
  await imageDir()
  await buildCachedImage('inference')
}, 3 * buildTimeoutMs)

/** Whether the SSH port of an address can be reached. */
function isOpen(address: string): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect({ host: address, port: 22 })
    const end = (open: boolean) => {
      socket.destroy()
      resolve(open)
    }
    socket.on('connect', () => end(true)).on('error', () => end(false))
    setTimeout(() => end(false), connectTimeoutMs)
  })
}

/** One number of the database, or null; from a copy, as SQLite follows links that /proc hides. */
function numberIn({ stateDir, debian }: SystemdAppliance, select: string, ...values: string[]): number | null {
  const copy = join(debian.scratch, 'copy.db')
  for (const suffix of ['', '-wal']) {
    rmSync(copy + suffix, { force: true })
    const file = `${stateDir}/strongroom.db${suffix}`
    if (existsSync(file)) copyFileSync(file, copy + suffix)
  }
  using db = new Database(copy)
  return (db.query(select).values(...values)[0]?.[0] as number | null | undefined) ?? null
}

const egressObservedMs = (appliance: SystemdAppliance, name: string) =>
  numberIn(
    appliance,
    'SELECT e.observed_at_ms FROM egress e JOIN instances i ON i.vm_id = e.vm_id WHERE i.name = ?',
    name,
  )

const changedMs = (appliance: SystemdAppliance, name: string, status: string) =>
  numberIn(
    appliance,
    'SELECT c.at_ms FROM instance_changes c JOIN instances i ON i.id = c.instance_id WHERE i.name = ? AND c.status = ?',
    name,
    status,
  )

inOwnNetns(
  import.meta.path,
  () => {
    describe('the service', () => {
      let appliance: SystemdAppliance
      let acme: Customer
      let gateway: GatewayClient
      let name: string
      let hostname: string
      let address: string
      let vm: string
      let gatewayVm: string

      beforeAll(async () => {
        appliance = await installAppliance()
      }, timeoutMs)
      afterAll(async () => {
        await appliance?.[Symbol.asyncDispose]()
      })

      const mainPid = () => appliance.property('MainPID')
      /** A file in the /proc directory of the daemon or another process in the container. */
      const proc = async (pid: string, file: string) =>
        (await appliance.debian.exec(['cat', `/proc/${pid}/${file}`])).stdout
      const qemuPid = async (vm = '') =>
        (await appliance.debian.exec(['pgrep', '--full', `^/usr/bin/qemu.*${vm}`])).stdout.trim()
      /** The VM of a QEMU, by the scope that it runs in. */
      const vmOf = async (pid: string) =>
        /0::\/strongroom\.slice\/strongroom-([0-9a-f-]{36})\.scope$/m.exec(await proc(pid, 'cgroup'))?.[1] ?? ''
      const swtpmPid = async () => (await appliance.debian.exec(['pgrep', '--full', '^/usr/bin/swtpm'])).stdout.trim()
      /** Once its worker runs. */
      const servingVm = async () => {
        let shown: AdminGatewayVms['gateways'] = []
        const serving = () => shown.find(vm => vm.state === 'serving' && vm.problem === null)?.vm
        try {
          await until('a gateway VM serves', 180_000, async () => {
            shown = (await appliance.admin<AdminGatewayVms>('inference', 'show')).gateways
            return serving() !== undefined
          })
        } catch (error) {
          throw new Error(`${JSON.stringify(shown)}\n${(await appliance.log()).slice(-8_000)}`, { cause: error })
        }
        return serving() ?? ''
      }
      const chat = () =>
        gateway.post('/v1/chat/completions', {
          model: workerModel,
          messages: [{ role: 'user', content: 'hello' }],
          max_tokens: 4,
        })

      test('it becomes active and answers, and doctor finds nothing amiss', async () => {
        // Goal: README's steps on a bare Debian give an appliance; systemd understands every setting of the unit.
        const verified = await appliance.debian.exec(['systemd-analyze', '--man=no', 'verify', ...units])
        expect(verified.stdout + verified.stderr).toBe('')
        await appliance.systemctl('start', 'strongroom')
        await appliance.answers(60_000)
        expect(await appliance.property('ActiveState')).toBe('active')
        // The worker loads its model meanwhile, and a gateway without a model is a problem.
        let checks = await appliance.cli('doctor')
        await until('doctor finds no problem', 120_000, async () => {
          checks = await appliance.cli('doctor')
          return checks.exitCode === 0
        }).catch(error => {
          throw new Error(checks.stdout, { cause: error })
        })
        expect(oddChecks(checks.stdout), checks.stdout).toEqual([])
      })

      test('its exposure, as systemd reckons it, does not grow', async () => {
        // Goal: a setting that is lost shows here. 10 is everything, 0 nothing; why the rest stays is said in the unit.
        // An instance of the starter has the unit's settings while nobody is connected.
        for (const unit of ['strongroom.service', 'strongroom-starter@none.service'])
          await appliance.debian.exec(['systemd-analyze', 'security', '--threshold=30', unit])
      })

      test('what its settings forbid fails, and what it needs works', async () => {
        // Goal: a setting without effect shows here.
        const said = await likeTheDaemon(appliance, {
          'user namespace': 'unshare --user true',
          'mount namespace': 'unshare --mount true',
          mount: 'mount -t tmpfs none /mnt',
          'sysctl of the kernel': 'cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern',
          'sysctl of the network': 'cat /proc/sys/net/ipv4/ip_forward > /proc/sys/net/ipv4/ip_forward',
          system: 'touch /usr/x',
          ruleset: 'nft list tables',
        })
        expect(said).toEqual([
          'user namespace: refused',
          'mount namespace: refused',
          'mount: refused',
          'sysctl of the kernel: refused',
          'sysctl of the network: works',
          'system: refused',
          'ruleset: works',
        ])
      })

      test(
        'its worker answers from the sandbox, in a scope of its own',
        async () => {
          // Goal: bubblewrap gets its namespaces and mounts under the unit's restrictions.
          await appliance.admin('org', 'create', 'models')
          gateway = await createGatewayClient(appliance, 'models')
          await until('the worker answers', 60_000, async () => (await chat()).status === 200)
          const worker = (await appliance.debian.exec(['pgrep', '--oldest', 'bwrap'])).stdout.trim()
          expect(await proc(worker, 'cgroup')).toMatch(/0::\/strongroom\.slice\/run-.*\.scope$/m)
          expect((await proc(worker, 'oom_score_adj')).trim()).toBe('900')
        },
        timeoutMs,
      )

      test(
        'a strict schema of a client is compiled and checked, by a child without privileges',
        async () => {
          // Goal: the child starts, becomes nobody and compiles under the unit's system calls, capabilities and limits.
          const ask = (schema: unknown) =>
            gateway.post('/v1/chat/completions', {
              model: workerModel,
              messages: [{ role: 'user', content: 'hello' }],
              max_tokens: 64,
              response_format: { type: 'json_schema', json_schema: { name: 'answer', strict: true, schema } },
            })
          const properties = { a: { type: 'string', enum: ['yes'] } }
          const answered = await ask({ type: 'object', properties, required: ['a'], additionalProperties: false })
          const body = (await answered.json()) as { choices: { message: { content: string } }[] }
          expect([answered.status, body]).toMatchObject([200, { choices: [{ message: {} }] }])
          expect(JSON.parse(body.choices[0]?.message.content ?? '')).toEqual({ a: 'yes' })
          const refused = await ask({ type: 'object', properties: { a: { type: 'no such type' } } })
          expect([refused.status, await refused.text()]).toEqual([400, expect.stringContaining('response_format')])
          const child = (
            await appliance.debian.exec(['pgrep', '--oldest', '--full', 'schema-check-child$'])
          ).stdout.trim()
          const status = await proc(child, 'status')
          expect(status).toMatch(/^Uid:\s+65534\s+65534\s+65534\s+65534$/m)
          expect(status).toMatch(/^CapEff:\s+0{16}$/m)
          expect(status).toMatch(/^NoNewPrivs:\s+1$/m)
          expect(status).toMatch(/^Seccomp:\s+2$/m)
          expect((await proc(child, 'oom_score_adj')).trim()).toBe('1000')
          expect(await proc(child, 'cgroup')).toMatch(/0::\/system\.slice\/strongroom-starter@.*\.service$/m)
        },
        timeoutMs,
      )

      test(
        'an instance becomes ready, its QEMU in a scope of its own and without privileges',
        async () => {
          // Goal: all needs of a VM pass the unit's restrictions, and those hold for its QEMU.
          acme = await createCustomer(appliance, 'acme')
          const created = await acme.create('unit-1')
          ;({ name, hostname } = created.body.data)
          await acme.reached(name, 'ready', 150_000)
          address = (await appliance.resolve(hostname)) ?? ''
          const pid = await qemuPid()
          vm = await vmOf(pid)
          expect(vm).not.toBe('')
          const status = await proc(pid, 'status')
          expect((await proc(pid, 'oom_score_adj')).trim()).toBe('500')
          expect(status).toMatch(/^CapBnd:\s+0{16}$/m)
          expect(status).toMatch(/^NoNewPrivs:\s+1$/m)
          expect(status).toMatch(/^Seccomp:\s+2$/m)
          // In its jail: the first and only process of its namespace, whose root has no directory of the host.
          expect(status).toMatch(/^NSpid:.*\s1$/m)
          expect((await appliance.debian.exec(['ls', `/proc/${pid}/root/`])).stdout.split('\n')).not.toContain('var')
          expect(
            (await appliance.debian.exec(['pgrep', '--uid', /^Uid:\s+(\d+)/m.exec(status)?.[1] ?? ''])).stdout,
          ).toBe(`${await swtpmPid()}\n${pid}\n`)
          expect(await proc(pid, 'limits')).toMatch(/^Max core file size\s+0\s+0\s/m)
        },
        timeoutMs,
      )

      test(
        'restart and kill -9 leave a VM and its SSH session alone, and what was started before is deleted after them',
        async () => {
          // Goal: the daemon may go at any time; it comes back by itself and takes the VMs up again.
          const session = appliance.sshSession(hostname, 'cat')
          session.type('one\n')
          await session.printed('one')
          const qemu = await qemuPid()
          // Its boot is not waited for.
          const other = (await acme.create('unit-2')).body.data.name
          const others = async () => (await qemuPid()).split('\n').filter(pid => pid !== qemu)
          await until('its QEMU runs', 240_000, async () => (await others()).length === 1)
          const [otherQemu = ''] = await others()
          const otherVm = await vmOf(otherQemu)
          expect(otherVm).not.toBe('')
          const before = await mainPid()
          await appliance.systemctl('restart', 'strongroom')
          await appliance.answers(60_000)
          const restarted = await mainPid()
          expect(restarted).not.toBe(before)
          await appliance.debian.exec(['kill', '-KILL', restarted])
          await until('systemd starts it again', 60_000, async () => (await appliance.property('NRestarts')) === '1')
          await appliance.answers(60_000)
          expect(await others()).toEqual([otherQemu])
          await acme.end(other)
          const scopes = await appliance.systemctl('list-units', '--plain', '--no-legend', 'strongroom-*.scope')
          expect([scopes.includes(vm), scopes.includes(otherVm)]).toEqual([true, false])
          expect(await qemuPid()).toBe(qemu)
          session.type('two\n')
          await session.printed('two')
          const again = appliance.sshSession(hostname, 'hostname')
          await again.printed(name)
          expect(await again.exited).toBe(0)
          expect((await acme.retrieve(name)).status).toBe('ready')
          expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })
        },
        timeoutMs,
      )

      test('a flushed ruleset comes back, and what VMs may do never depended on it', async () => {
        // Goal: the daemon sees that its table has gone; the VMs' own is in a namespace that a restart finds again.
        await appliance.debian.exec(['nft', 'flush', 'ruleset'])
        expect(await isOpen(address)).toBe(true)
        const tables = async () => (await appliance.debian.exec(['nft', 'list', 'tables'])).stdout.trim()
        await until('the table is there', 90_000, async () => (await tables()) === 'table inet strongroom')
        const inside = ['ip', 'netns', 'exec', 'strongroom', 'nft', 'list', 'tables']
        expect((await appliance.debian.exec(inside)).stdout.trim()).toBe('table inet strongroom\ntable arp strongroom')
      })

      test(
        'stopping is orderly',
        async () => {
          // Goal: SIGTERM ends it by itself, well before systemd would kill it.
          const qemu = await qemuPid()
          await appliance.systemctl('stop', 'strongroom')
          expect(await appliance.property('Result')).toBe('success')
          expect(await appliance.property('ExecMainStatus')).toBe('0')
          expect(appliance.log()).toContain('"message":"stopped"')
          expect(await qemuPid()).toBe(qemu)
        },
        timeoutMs,
      )

      test('while the appliance is down, nftables may be started, reloaded, restarted and stopped', async () => {
        // Goal: SSH is as before, and the VMs' table counts on.
        const quotas = async () =>
          (await appliance.debian.exec(['ip', 'netns', 'exec', 'strongroom', 'nft', 'list', 'quotas'])).stdout
        for (const verb of ['start', 'reload', 'restart', 'stop']) {
          await appliance.systemctl(verb, 'nftables')
          const before = await quotas()
          expect([verb, await isOpen(address)]).toEqual([verb, true])
          expect(await quotas()).not.toBe(before)
        }
      })

      test(
        'a port that stays busy does not make systemd give up',
        async () => {
          // Goal: it starts as soon as it can, however often it could not.
          const port = Bun.listen({ hostname: '127.0.0.1', port: 8441, socket: { data() {} } })
          try {
            await appliance.systemctl('start', 'strongroom')
            const restarts = async () => Number(await appliance.property('NRestarts'))
            await until('more starts than were allowed', 180_000, async () => (await restarts()) > formerStartsMax)
          } finally {
            port.stop(true)
          }
          await appliance.answers(60_000)
          expect(await appliance.property('ActiveState')).toBe('active')
          await until('the VM can be reached again', 60_000, () => isOpen(address))
        },
        timeoutMs,
      )

      test(
        'a wrong configuration is not tried again, until somebody has put it right',
        async () => {
          // Goal: a bad configuration ends as `failed` with the reason, without restarts; missing files are waited for.
          const file = `${appliance.debian.root}/etc/strongroom/strongroom.toml`
          const good = readFileSync(file, 'utf8')
          const restarts = async () => Number(await appliance.property('NRestarts'))
          await appliance.systemctl('stop', 'strongroom')
          try {
            writeFileSync(file, `nonsense = 1\n${good}`)
            await appliance.systemctl('start', 'strongroom')
            const state = () => appliance.property('ActiveState')
            await until('it has ended', 60_000, async () => (await state()) === 'failed')
            expect(await appliance.property('ExecMainStatus')).toBe('2')
            expect(appliance.log()).toContain('strongroom.toml:1: nonsense: unknown field')
            expect(await appliance.property('SubState')).toBe('failed')
            expect(await restarts()).toBe(0)
            const missing = '[tls]\ncertificate_file = "/run/c.pem"\nkey_file = "/run/k.pem"\n'
            writeFileSync(file, `${good}\n${missing}`)
            await appliance.systemctl('start', 'strongroom')
            await until('it is started again', 90_000, async () => (await restarts()) > 1)
            expect(appliance.log()).toContain('/run/c.pem')
          } finally {
            writeFileSync(file, good)
          }
          // A start that stands already is not waited for: the next try finds the file as it was.
          await appliance.systemctl('start', 'strongroom')
          await appliance.answers(60_000)
        },
        timeoutMs,
      )

      test(
        'the gateway moves into a VM, in a scope of its own',
        async () => {
          // Goal: making a disk, starting a VM and leading clients to it pass the unit.
          const file = `${appliance.debian.root}/etc/strongroom/strongroom.toml`
          writeFileSync(file, readFileSync(file, 'utf8').replace('placement = "host"', 'placement = "vm"'))
          await appliance.systemctl('restart', 'strongroom')
          await appliance.answers(60_000)
          gatewayVm = await servingVm()
          await until('the VM answers', 90_000, async () => (await chat()).status === 200)
          const pid = await qemuPid(`vms/${gatewayVm}`)
          expect(await vmOf(pid)).toBe(gatewayVm)
          expect(await proc(pid, 'status')).toMatch(/^CapBnd:\s+0{16}$/m)
          expect((await appliance.debian.exec(['pgrep', 'bwrap'], { check: false })).stdout).toBe('')
          const checks = await appliance.cli('doctor')
          expect(oddChecks(checks.stdout), checks.stdout).toEqual([])
          expect(checks.stdout).toMatch(new RegExp(`^PASS +gateway VM +${gatewayVm} serves`, 'm'))
        },
        timeoutMs,
      )

      test(
        'after an orderly reboot of the host instances are lost when they were last well, and the gateway is there again',
        async () => {
          // Goal: systemd ends the VMs' scopes while the daemon still runs; the record must not show that. For the
          // gateway a reboot costs a VM, no more.
          const readyMs = Date.now()
          expect((await acme.retrieve(name)).status).toBe('ready')
          const egressReadMs = () => egressObservedMs(appliance, name)
          await until('its egress has been read while it was ready', 90_000, () => (egressReadMs() ?? 0) > readyMs)
          const lastWellMs = egressReadMs() ?? 0
          await appliance.debian.reboot()
          const bootedMs = appliance.bootedAtMs()
          // Enabled: nobody starts it.
          await appliance.answers(60_000)
          const record = await acme.reached(name, 'failed', 60_000)
          expect(record.failure_code).toBe('host_restarted')
          const failedMs = changedMs(appliance, name, 'failed')
          expect(failedMs).toBeGreaterThanOrEqual(lastWellMs)
          expect(failedMs).toBeLessThan(bootedMs)
          expect(await servingVm()).not.toBe(gatewayVm)
          // Every process is another, and the appliance works as before. The client's connections from before the
          // reboot have ended, as it finds out by using them.
          await until('another VM answers', 90_000, () =>
            chat().then(
              ({ status }) => status === 200,
              () => false,
            ),
          )
          for (const lost of [vm, gatewayVm])
            expect((await appliance.debian.exec(['pgrep', '--full', `vms/${lost}`], { check: false })).stdout).toBe('')
          await acme.end(name)
          await until('nothing leaked', 90_000, async () => {
            const { leaks } = await appliance.admin<{ leaks: unknown[] }>('doctor', '--leaks')
            return leaks.length === 0
          })
        },
        timeoutMs,
      )
    })
  },
  { timeoutMs: wholeTimeoutMs },
)
