import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { newUuid } from '../../../src/base/ids.ts'
import {
  configureTap,
  listTaps,
  openTap,
  removeTap,
  TapStates,
  tapBatch,
  tapMac,
  tapState,
} from '../../../src/host/network/tap.ts'
import { connectQmp } from '../../../src/host/qemu/qmp.ts'
import { run } from '../../../src/linux/command.ts'
import { ioctl } from '../../../src/linux/libc.ts'
import { signalProcess, spawnDetached, waitGone } from '../../../src/linux/process.ts'

/** include/uapi/linux/if_tun.h */
const TUNGETIFF = 0x800454d2
const TUNSETIFF = 0x400454ca
const IFF = { tap: 0x0002, noPacketInfo: 0x1000, vnetHeader: 0x4000 } as const
/** No test is about it: a busy machine may take long to start ip(8). */
const limitMs = 60_000
const bounds = { timeoutMs: limitMs, outputBytesMax: 100_000 }

test('goal: the whole batch of one tap (golden)', () => {
  const tap = { name: 'sr0123456789', nextHop: '169.254.88.1', address: '10.88.0.5', mtuBytes: 1500 }
  expect(tapBatch({ ...tap, mac: '02:00:00:00:00:05' })).toBe(
    `link set dev sr0123456789 mtu 1500 up
address replace 169.254.88.1/32 dev sr0123456789 scope link
route replace 10.88.0.5/32 dev sr0123456789 src 169.254.88.1
neighbour replace proxy 169.254.88.1 dev sr0123456789
neighbour replace 10.88.0.5 lladdr 02:00:00:00:00:05 dev sr0123456789 nud permanent
`,
  )
  expect(tapBatch(tap)).not.toContain('lladdr')
  const v6 = { nextHop: 'fd73:7472:6f6e:67::1', address: '2001:db8:88::5' }
  expect(tapBatch({ ...tap, address: null, v6, mac: '02:00:00:00:00:05' })).toBe(
    `link set dev sr0123456789 address 0a:73:74:72:6f:6e
link set dev sr0123456789 mtu 1500 up
address replace fd73:7472:6f6e:67::1/128 dev sr0123456789 nodad noprefixroute preferred_lft 0
route replace 2001:db8:88::5/128 dev sr0123456789 src fd73:7472:6f6e:67::1
neighbour replace 2001:db8:88::5 lladdr 02:00:00:00:00:05 dev sr0123456789 nud permanent
`,
  )
})

test('goal: a name that could break out of a batch or a path is refused', () => {
  for (const name of ['', 'a b', 'sr/0', 'sr\n0', '-x', 'sr01234567890123', '..'])
    expect(() => openTap(name)).toThrow('not a tap name')
})

inOwnNetns(
  import.meta.path,
  () => {
    const directory = mkdtempSync(join(tmpdir(), 'srt-tap-'))
    afterAll(() => rmSync(directory, { recursive: true, force: true }))

    test('goal: a tap appears exclusively and goes with its last holder', async () => {
      const tap = openTap('srt0')
      expect(await listTaps('sr', limitMs)).toEqual(['srt0'])
      expect(() => openTap('srt0')).toThrow('EBUSY')
      const uuid = newUuid()
      const fifo = join(directory, uuid)
      await run(['mkfifo', fifo], bounds)
      const { identity } = spawnDetached(['bash', '-c', `read -t 60 <> ${fifo}`, '-uuid', uuid], {
        uuid,
        stdoutFile: join(directory, `${uuid}.log`),
        extraFds: [tap.fd],
        scope: 'x',
        systemd: false,
      })
      tap.close()
      tap.close()
      expect(await listTaps('sr', limitMs)).toEqual(['srt0'])
      expect(signalProcess(identity, 'SIGKILL')).toBe(true)
      expect(await waitGone(identity, limitMs)).toBe(true)
      await until('the interface is gone', limitMs, async () => (await listTaps('sr', limitMs)).length === 0)
    })

    test('goal: one reading is for all taps, for a second, and none is said to be gone that is not', async () => {
      const clock = createManualClock()
      const states = new TapStates(clock)
      const of = (n: number) => states.of(`srts${n}`, { address: `10.88.4.${n}`, addressV6: null })
      const start = async (n: number) => {
        const tap = openTap(`srts${n}`)
        const to = { nextHop: '169.254.88.1', address: `10.88.4.${n}` }
        await configureTap({ name: tap.name, ...to, mtuBytes: 1500, timeoutMs: limitMs })
        return tap
      }
      const first = await start(1)
      expect([of(1), of(2)]).toEqual(['routed', 'gone'])
      const second = await start(2)
      expect(of(2)).toBe('routed')
      await run(['ip', 'link', 'set', 'dev', 'srts1', 'down'], bounds)
      // From the reading before.
      expect(of(1)).toBe('routed')
      clock.advance(1_000)
      expect([of(1), of(2)]).toEqual(['unrouted', 'routed'])
      second.close()
      clock.advance(1_000)
      expect([of(1), of(2)]).toEqual(['unrouted', 'gone'])
      first.close()
    })

    test('goal: a tap that is down or without its route is told from one that is gone, and configuring puts it right', async () => {
      const tap = openTap('srt9')
      const addresses = {
        name: 'srt9',
        nextHop: '169.254.88.1',
        address: '10.88.3.9',
        mtuBytes: 1500,
        timeoutMs: limitMs,
      }
      const state = () => tapState('srt9', { address: '10.88.3.9', addressV6: null })
      expect(state()).toBe('unrouted')
      await configureTap(addresses)
      expect(state()).toBe('routed')
      expect(tapState('srt9', { address: '10.88.3.8', addressV6: null })).toBe('unrouted')
      for (const harm of [
        ['ip', 'link', 'set', 'dev', 'srt9', 'down'],
        ['ip', 'route', 'delete', '10.88.3.9/32', 'dev', 'srt9'],
      ]) {
        await run(harm, bounds)
        expect(state()).toBe('unrouted')
        await configureTap(addresses)
        expect(state()).toBe('routed')
      }
      // Deleted under its holder's hands: nothing that the holder has leads back to a new one.
      await run(['ip', 'link', 'delete', 'dev', 'srt9'], bounds)
      expect(state()).toBe('gone')
      tap.close()
    })

    test('goal: a configured tap carries the next hop, a route to the VM alone, and no IPv6; repeating changes nothing', async () => {
      const tap = openTap('srt1')
      const addresses = {
        name: 'srt1',
        nextHop: '169.254.88.1',
        address: '10.88.0.5',
        mac: '02:00:00:00:00:05',
        mtuBytes: 1400,
        timeoutMs: limitMs,
      }
      await configureTap(addresses)
      await configureTap(addresses)
      const show = async (...argv: string[]) => JSON.parse((await run(['ip', '-json', ...argv], bounds)).stdout)
      const [link] = await show('address', 'show', 'dev', 'srt1')
      expect(link).toMatchObject({ mtu: 1400, flags: expect.arrayContaining(['UP']) })
      expect(link.addr_info).toEqual([
        expect.objectContaining({ family: 'inet', local: '169.254.88.1', prefixlen: 32 }),
      ])
      expect(await show('route', 'show', 'dev', 'srt1')).toEqual([
        expect.objectContaining({ dst: '10.88.0.5', prefsrc: '169.254.88.1' }),
      ])
      expect(await show('neighbour', 'show', 'dev', 'srt1')).toEqual([
        expect.objectContaining({ dst: '10.88.0.5', lladdr: '02:00:00:00:00:05', state: ['PERMANENT'] }),
      ])
      for (const [path, value] of [
        ['ipv6/conf/srt1/disable_ipv6', '1'],
        ['ipv6/conf/srt1/accept_ra', '0'],
        ['ipv4/conf/srt1/rp_filter', '1'],
        ['ipv4/conf/srt1/arp_ignore', '1'],
      ]) {
        expect(readFileSync(`/proc/sys/net/${path}`, 'utf8').trim()).toBe(value ?? '')
      }
      tap.close()
    })

    test('goal: a tap with IPv6 has the next hop, a route to the VM alone and no address of its own making; repeating changes nothing', async () => {
      const tap = openTap('srt6')
      const v6 = { nextHop: 'fd73:7472:6f6e:67::1', address: '2001:db8:88::5' }
      const shared = {
        name: 'srt6',
        nextHop: '169.254.88.1',
        mac: '02:00:00:00:00:05',
        mtuBytes: 1400,
        timeoutMs: limitMs,
      }
      const show = async (...argv: string[]) => JSON.parse((await run(['ip', '-json', ...argv], bounds)).stdout)
      const state = (address: string | null) => tapState('srt6', { address, addressV6: '2001:db8:88::5' })
      expect(state(null)).toBe('unrouted')
      for (const address of [null, '10.88.0.5']) {
        await configureTap({ ...shared, address, v6 })
        await configureTap({ ...shared, address, v6 })
        expect(state(address)).toBe('routed')
        const [link] = await show('address', 'show', 'dev', 'srt6')
        expect(link.address).toBe(tapMac)
        const found = link.addr_info.map(
          (item: { local: string; prefixlen: number }) => `${item.local}/${item.prefixlen}`,
        )
        expect(found).toEqual([...(address === null ? [] : ['169.254.88.1/32']), 'fd73:7472:6f6e:67::1/128'])
        expect(link.addr_info.at(-1)).toMatchObject({ deprecated: true })
        expect(link.addr_info.at(-1).tentative).toBeUndefined()
        // None to the next hop: it would stand in each tap's way.
        expect(await show('-6', 'route', 'show', 'dev', 'srt6')).toEqual([
          expect.objectContaining({ dst: '2001:db8:88::5', prefsrc: 'fd73:7472:6f6e:67::1' }),
        ])
        expect(await show('-6', 'neighbour', 'show', 'dev', 'srt6')).toEqual([
          expect.objectContaining({ dst: '2001:db8:88::5', lladdr: '02:00:00:00:00:05', state: ['PERMANENT'] }),
        ])
      }
      for (const [name, value] of Object.entries({
        accept_ra: '0',
        autoconf: '0',
        forwarding: '1',
        accept_redirects: '0',
        proxy_ndp: '0',
      }))
        expect([name, readFileSync(`/proc/sys/net/ipv6/conf/srt6/${name}`, 'utf8').trim()]).toEqual([name, value])
      await run(['ip', '-6', 'route', 'delete', '2001:db8:88::5/128', 'dev', 'srt6'], bounds)
      expect(state('10.88.0.5')).toBe('unrouted')
      // Another tap has the same next hop beside it.
      const other = openTap('srt7')
      await configureTap({ ...shared, name: 'srt7', address: null, v6: { ...v6, address: '2001:db8:88::6' } })
      expect(tapState('srt7', { address: null, addressV6: '2001:db8:88::6' })).toBe('routed')
      tap.close()
      other.close()
    })

    test('goal: a tap is removed under its holder, and removing nothing is fine', async () => {
      const tap = openTap('srt2')
      await removeTap('srt2', limitMs)
      await removeTap('srt2', limitMs)
      expect(await listTaps('sr', limitMs)).toEqual([])
      tap.close()
      const gone = { name: 'srt2', nextHop: '169.254.88.1', address: '10.88.0.5', mtuBytes: 1400, timeoutMs: limitMs }
      expect((await failure(configureTap(gone))).code).toBe('host.command_failed')
    })

    test('goal: a tap of our own opens while QEMU holds another, and a signalled QEMU takes its tap along', async () => {
      const uuid = newUuid()
      const held = openTap('srt3')
      const qemu = [
        'qemu-system-x86_64',
        '-accel',
        'tcg',
        '-nodefaults',
        '-no-user-config',
        '-nographic',
        '-S',
        '-m',
        '32',
      ]
      const monitor = join(directory, 'qmp')
      const nic = [
        '-qmp',
        `unix:${monitor},server=on,wait=off`,
        '-netdev',
        'tap,id=n0,fd=3',
        '-device',
        'virtio-net-pci,netdev=n0,romfile=',
      ]
      const { identity } = spawnDetached([...qemu, ...nic, '-uuid', uuid], {
        uuid,
        stdoutFile: join(directory, `${uuid}.log`),
        extraFds: [held.fd],
        scope: 'x',
        systemd: false,
      })
      held.close()
      const other = openTap('srt4')
      const qmp = await connectQmp(monitor, { timeoutMs: limitMs, onEvent: () => {}, onClose: () => {} })
      expect(await qmp.command('query-status', limitMs)).toEqual({ running: false, status: 'prelaunch' })
      expect(await listTaps('srt', limitMs)).toEqual(['srt3', 'srt4'])
      expect(signalProcess(identity, 'SIGKILL')).toBe(true)
      expect(await waitGone(identity, limitMs)).toBe(true)
      await until('srt3 is gone', limitMs, async () => (await listTaps('srt', limitMs)).join() === 'srt4')
      other.close()
    })

    test('goal: a tap takes no segmentation headers, and its holder cannot change that', () => {
      const tap = openTap('srt5')
      const request = new Uint8Array(40)
      expect(ioctl(tap.fd, TUNGETIFF, request)).toMatchObject({ ok: true })
      const { tap: kind, noPacketInfo, vnetHeader } = IFF
      const flags = new DataView(request.buffer).getUint16(16, true)
      expect(flags & (kind | noPacketInfo | vnetHeader)).toBe(kind | noPacketInfo)
      request.set(Buffer.from('srt5'), 0)
      new DataView(request.buffer).setUint16(16, kind | noPacketInfo | vnetHeader, true)
      expect(ioctl(tap.fd, TUNSETIFF, request)).toEqual({ ok: false, errno: constants.errno.EEXIST })
      tap.close()
    })
  },
  { timeoutMs: 180_000 },
)
