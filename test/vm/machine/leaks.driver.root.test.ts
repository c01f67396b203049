// Goal: what a crash or an operator's hand leaves in the kernel is found, and the printed command removes it; what VMs
// need is no leak. Real connections, routes and processes in a namespace of its own. Needs root.

import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { link, nextHopV6 } from '../../../scripts/rigs/guest/two-guests.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { shellWord } from '../../../src/base/shell-word.ts'
import { rememberedAddresses } from '../../../src/host/network/connections.ts'
import { createNft } from '../../../src/host/network/nft.ts'
import { createVmNamespace } from '../../../src/host/network/vm-namespace.ts'
import { identifyProcess } from '../../../src/linux/process/running.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { recordResource, strikeResource } from '../../../src/store/ledger/resource.query.ts'
import { insertVm, moveVm } from '../../../src/store/ledger/vm.query.ts'
import { vmPaths } from '../../../src/vm/launch.plan.ts'
import { findLeaks } from '../../../src/vm/machine/leaks.driver.ts'

const timeoutMs = 120_000
const pool = '10.88.0.0/24'
const dir = mkdtempSync(join(tmpdir(), 'srt-leaks-'))
afterAll(() => rmSync(dir, { recursive: true }))

function inside(text: string): string {
  return sh(`ip netns exec srt-leaks sh -ec ${shellWord(text)}`)
}

function sh(text: string): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync(['sh', '-ec', text])
  if (exitCode !== 0) throw new Error(`${text}: ${stdout}${stderr}`)
  return stdout.toString()
}

inOwnNetns(
  import.meta.path,
  () => {
    let store: Store
    let stateDir: string
    const namespace = createVmNamespace({ ...link, nextHopV6, name: 'srt-leaks' })
    beforeAll(() => namespace.open())
    beforeEach(() => {
      store = openStore(':memory:')
      stateDir = mkdtempSync(join(dir, 's-'))
      mkdirSync(join(stateDir, 'vms'))
    })
    afterEach(() => {
      store.close()
      sh('conntrack --flush 2>&1; ip route flush table main; ip -6 route flush root 2001:db8:88::/64')
      inside(
        'conntrack --flush 2>&1; for t in $(ls /proc/sys/net/ipv4/conf); do case $t in srtest*) ip link delete $t;; esac; done',
      )
    })

    const leaks = async () => {
      const { db } = store.ledger
      const nft = createNft({ table: 'strongroom', log: silentLogger, netns: namespace.netns })
      const uids = { min: 7_654_000, max: 7_654_001 }
      return await findLeaks({
        db,
        nft,
        namespace,
        stateDir,
        tapPrefix: 'sr',
        pools: { v4: pool, v6: '2001:db8:88::/64' },
        uids,
        cgroupRoot: join(stateDir, 'cgroup'),
      })
    }
    const summary = async () => (await leaks()).map(leak => [leak.kind, leak.name, leak.detail, leak.vm])

    /** As a VM that runs, with its tap and its route; its QEMU is a program that does nothing. */
    const plugIn = (n: number) => {
      const id = `0000000${n}-0000-4000-8000-000000000000`
      const [tap, address, nowMs] = [`srtest0${n}`, `10.88.0.${n}`, 1]
      insertVm(store.ledger.db, { id, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs })
      for (const [from, to] of [
        ['waiting', 'launching'],
        ['launching', 'booting'],
        ['booting', 'running'],
      ] as const)
        moveVm(store.ledger.db, { id, from, to, nowMs, address })
      recordResource(store.ledger.db, { vmId: id, kind: 'address', name: address, nowMs })
      recordResource(store.ledger.db, { vmId: id, kind: 'tap', name: tap, nowMs })
      inside(`ip tuntap add ${tap} mode tap; ip link set ${tap} up; ip route replace ${address}/32 dev ${tap}`)
      sh(`ip route replace ${address}/32 via 192.0.0.8 dev sr-vms onlink`)
      return { id, tap, address }
    }
    const remember = (from: string, to: string, replied: boolean) =>
      inside(
        `conntrack --create --orig-src ${from} --orig-dst ${to} --protonum udp --sport 5 --dport 7 --timeout 600 ${replied ? '--status SEEN_REPLY' : ''} 2>&1`,
      )

    test('goal: connections and routes of VMs are no leak; those of addresses that nobody holds are, and their commands end them', async () => {
      const { id, tap, address } = plugIn(2)
      remember(address, '192.0.2.1', true)
      // A stranger calls an address that nobody has.
      remember('192.0.2.1', '10.88.0.9', false)
      // The probe of firewalls has the first and the last address, which no VM gets.
      for (const probed of ['10.88.0.0', '10.88.0.255']) remember(probed, '192.0.2.1', false)
      expect(await leaks()).toEqual([])
      remember('10.88.0.7', '192.0.2.1', false)
      remember('192.0.2.2', '10.88.0.8', true)
      inside(
        `ip route add 10.88.0.7/32 dev ${tap}; ip route add blackhole 10.88.0.8/32; ip route add 10.99.0.0/24 dev lo`,
      )
      sh(
        'ip route add 10.88.0.6/32 via 192.0.0.8 dev sr-vms onlink; conntrack --create --orig-src 10.88.0.5 --orig-dst 192.0.2.1 --protonum udp --sport 5 --dport 7 --timeout 600 2>&1',
      )
      expect(await summary()).toEqual([
        ['route', `10.88.0.7/32 dev ${tap}`, 'unknown', id],
        ['route', '10.88.0.8/32 dev *', 'unknown', null],
        ['route', '10.88.0.6/32 dev sr-vms', 'unknown', null],
        ['conntrack', '10.88.0.7', 'unknown', null],
        ['conntrack', '10.88.0.8', 'unknown', null],
        ['conntrack', '10.88.0.5', 'unknown', null],
      ])
      for (const leak of await leaks()) sh(`${leak.remedy} 2>&1`)
      expect(await leaks()).toEqual([])
    })

    test('goal: what the tests of firewalls leave is no leak, because no VM gets their addresses', async () => {
      const here = (from: string, to: string) =>
        sh(
          `conntrack --create --orig-src ${from} --orig-dst ${to} --protonum udp --sport 5 --dport 7 --timeout 600 2>&1`,
        )
      for (const address of ['10.88.0.0', '10.88.0.255']) {
        remember(address, '192.0.2.1', false)
        here(address, '192.0.2.1')
      }
      for (const address of ['2001:db8:88::', '2001:db8:88::ffff:ffff:ffff:ffff']) here(address, '2a0f:1::9')
      expect(await summary()).toEqual([])
      here('10.88.0.254', '192.0.2.1')
      expect(await summary()).toEqual([['conntrack', '10.88.0.254', 'unknown', null]])
    })

    test('goal: the same of IPv6', async () => {
      const { id, tap } = plugIn(2)
      const [held, other] = ['2001:db8:88::2', '2001:db8:88::7']
      recordResource(store.ledger.db, { vmId: id, kind: 'address_v6', name: held, nowMs: 1 })
      expect(await summary()).toEqual([
        ['route', `${held}/128 dev ${tap}`, 'missing', id],
        ['route', `${held}/128 dev sr-vms`, 'missing', id],
      ])
      inside(`ip -6 route replace ${held}/128 dev ${tap}`)
      sh(`ip -6 route replace ${held}/128 via fe80::1 dev sr-vms`)
      const rememberV6 = (from: string) =>
        inside(
          `conntrack --create --orig-src ${from} --orig-dst 2a0f:1::9 --protonum udp --sport 5 --dport 7 --timeout 600 2>&1`,
        )
      rememberV6(held)
      expect(await leaks()).toEqual([])
      rememberV6(other)
      inside(`ip -6 route add ${other}/128 dev ${tap}; ip -6 route add 2a0f:9::/64 dev lo`)
      expect(await summary()).toEqual([
        ['route', `${other}/128 dev ${tap}`, 'unknown', id],
        ['conntrack', other, 'unknown', null],
      ])
      for (const leak of await leaks()) sh(`${leak.remedy} 2>&1`)
      expect(await leaks()).toEqual([])
    })

    test('goal: connections of a VM whose address is given back are a leak until they are forgotten', async () => {
      const { id, tap, address } = plugIn(2)
      remember(address, '192.0.2.1', true)
      strikeResource(store.ledger.db, { vmId: id, kind: 'address' })
      expect(await summary()).toEqual([
        ['route', `${address}/32 dev ${tap}`, 'unknown', null],
        ['route', `${address}/32 dev sr-vms`, 'unknown', null],
        ['conntrack', address, 'unknown', null],
      ])
    })

    test('goal: a lost route is told, and a tap that no ledger knows', async () => {
      const { id, tap, address } = plugIn(2)
      inside(`ip route delete ${address}/32; ip tuntap add srtest09 mode tap`)
      expect(await summary()).toEqual([
        ['tap', 'srtest09', 'unknown', null],
        ['route', `${address}/32 dev ${tap}`, 'missing', id],
      ])
    })

    test('goal: a link of an appliance with other names is told, and its command removes it', async () => {
      sh('ip link add old-vms address 0a:73:74:72:6f:6c type veth peer name old-host; ip link set old-vms up')
      expect(await summary()).toEqual([['link', 'old-vms', 'unknown', null]])
      for (const leak of await leaks()) sh(leak.remedy)
      expect(await leaks()).toEqual([])
    })

    test('goal: a scope without a VM is a leak; that of a VM, and an empty one that systemd is about to remove, are none', async () => {
      const scope = (n: number, procs: string) => {
        const id = `0000000${n}-0000-4000-8000-000000000000`
        const directory = join(stateDir, 'cgroup', 'strongroom.slice', `strongroom-${id}.scope`)
        mkdirSync(directory, { recursive: true })
        writeFileSync(join(directory, 'cgroup.procs'), procs)
        return { id, unit: `strongroom-${id}.scope` }
      }
      const become = (n: number, to: 'gone') => {
        const { id } = plugIn(n)
        moveVm(store.ledger.db, { id, from: 'running', to, nowMs: 2 })
        strikeResource(store.ledger.db, { vmId: id, kind: 'address' })
        strikeResource(store.ledger.db, { vmId: id, kind: 'tap' })
        inside(`ip link delete srtest0${n}`)
        sh(`ip route delete 10.88.0.${n}`)
      }
      plugIn(2)
      scope(2, `${process.pid}\n`)
      become(3, 'gone')
      scope(3, '')
      expect(await leaks()).toEqual([])
      become(4, 'gone')
      const running = scope(4, `${process.pid}\n`)
      const nobodys = scope(5, '')
      expect((await leaks()).map(leak => [leak.name, leak.vm, leak.remedy])).toEqual(
        [running, nobodys].map(({ unit, id }) => [unit, id, `systemctl stop ${unit}`]),
      )
    })

    test('goal: however many connections there are, so many addresses are told and no more, and it says that there are more', async () => {
      for (let n = 10; n < 20; n += 1) remember(`10.88.0.${n}`, '192.0.2.1', false)
      const read = (bounds: object) =>
        rememberedAddresses({ network: pool, isHeld: () => false, timeoutMs, netns: namespace.netns, ...bounds })
      expect((await read({})).addresses).toHaveLength(10)
      expect(await read({ addressCountMax: 4 })).toMatchObject({ whole: false, addresses: { length: 4 } })
      const some = await read({ entryCountMax: 3 })
      expect([some.whole, some.addresses.length]).toEqual([false, 3])
    })

    test('goal: a QEMU that is stopped, and one that is deaf, are told; one that answers is not', async () => {
      const start = (code: string) => Bun.spawn([process.execPath, '-e', code], { stdout: 'pipe', stderr: 'inherit' })
      const idle = 'setInterval(() => {}, 1000)'
      const monitor = (path: string) => `
        Bun.listen({ unix: ${JSON.stringify(path)}, socket: {
          open: s => { s.write('{"QMP":{"version":{},"capabilities":[]}}\\n') },
          data: (s, d) => { for (const line of d.toString().trim().split('\\n')) {
            const { id, execute } = JSON.parse(line)
            s.write(JSON.stringify({ return: execute === 'query-status' ? { running: true, status: 'running' } : {}, id }) + '\\n')
          } } } })
        console.log('up')`
      const started = [2, 3, 4].map(n => {
        const { id } = plugIn(n)
        const paths = vmPaths(stateDir, id)
        mkdirSync(paths.directory)
        recordResource(store.ledger.db, { vmId: id, kind: 'directory', name: paths.directory, nowMs: 1 })
        const child = start(n === 4 ? monitor(paths.qmpRescue) : idle)
        const name = `${child.pid}:${identifyProcess(child.pid)?.startTicks}`
        recordResource(store.ledger.db, { vmId: id, kind: 'qemu', name, nowMs: 1 })
        return { id, child, name, paths }
      })
      const [stopped, deaf, well] = started as [(typeof started)[0], (typeof started)[0], (typeof started)[0]]
      try {
        expect(new TextDecoder().decode((await well.child.stdout.getReader().read()).value)).toBe('up\n')
        process.kill(stopped.child.pid, 'SIGSTOP')
        await until('it is stopped', timeoutMs, () => sh(`cat /proc/${stopped.child.pid}/stat`).includes(') T '))
        // None of the three is a QEMU, so that each is missing too.
        const said = (await leaks()).filter(leak => leak.detail !== 'missing')
        expect(said.map(leak => [leak.kind, leak.name, leak.detail, leak.vm])).toEqual([
          ['qemu', stopped.name, 'stopped', stopped.id],
          ['qemu', deaf.name, 'unanswered', deaf.id],
        ])
        sh((said[0]?.remedy ?? '').split(' lets ')[0] ?? '')
        await until('it goes on', timeoutMs, () => !sh(`cat /proc/${stopped.child.pid}/stat`).includes(') T '))
      } finally {
        for (const { child } of started) child.kill('SIGKILL')
        await Promise.all(started.map(({ child }) => child.exited))
      }
    })
  },
  { timeoutMs },
)
