// Goal: every difference between ledger and host has a name, an owner, and the command that removes it or what the
// daemon will do.

import { expect, test } from 'bun:test'
import type { PoolRoute } from '../../../src/host/network/pool-routes.ts'
import {
  connectionLeaks,
  connectionsUnread,
  idleQemu,
  missingResource,
  type Routed,
  routeLeaks,
  scopeLeak,
  unknownResource,
  unownedVm,
} from '../../../src/vm/machine/leaks.plan.ts'

const found = (name: string, vm: string | null = null) => ({ name, vm })

test('goal: the command for each kind of thing that no ledger knows, with odd names quoted', () => {
  const remedies = [
    unknownResource('directory', found("/s/vms/it's", 'v1'), 'strongroom'),
    unknownResource('disk', found('/s/vms/a/scratch.img'), 'strongroom'),
    unknownResource('tap', found('sr0123456789'), 'strongroom'),
    unknownResource('nft', found('sr0123456789'), 'strongroom'),
    unknownResource('qemu', found('17:4711', 'v1'), 'strongroom'),
    unknownResource('tpm', found('18:4711'), 'strongroom'),
    unknownResource('uid', found('70001'), 'strongroom'),
    scopeLeak({ unit: 'strongroom-v1.scope', vmId: 'v1' }),
  ].map(leak => [leak.kind, leak.detail, leak.vm, leak.remedy])
  expect(remedies).toEqual([
    ['directory', 'unknown', 'v1', `rm --recursive --one-file-system '/s/vms/it'\\''s'`],
    ['disk', 'unknown', null, 'rm /s/vms/a/scratch.img'],
    ['tap', 'unknown', null, 'ip -netns strongroom link delete dev sr0123456789'],
    [
      'nft',
      'unknown',
      null,
      'systemctl restart strongroom: its first ruleset leaves out what is in no ledger; VMs go on meanwhile',
    ],
    ['qemu', 'unknown', 'v1', 'kill -KILL 17'],
    ['tpm', 'unknown', null, 'kill -KILL 18'],
    ['uid', 'unknown', null, 'pkill -KILL --uid 70001'],
    ['scope', 'unknown', 'v1', 'systemctl stop strongroom-v1.scope'],
  ])
})

test('goal: what a running VM lacks says what becomes of it', () => {
  for (const kind of ['directory', 'disk', 'tap', 'nft', 'qemu', 'tpm', 'uid'] as const) {
    const leak = missingResource(kind, found('n', 'v1'))
    expect([leak.vm, leak.detail]).toEqual(['v1', 'missing'])
    expect(leak.remedy).toMatch(/^(the daemon|nothing: |delete the instance)/)
  }
})

const vm = (n: number, isRunning = true): Routed => ({ vm: `v${n}`, tap: `sr${n}`, address: `10.88.0.${n}`, isRunning })
/** As inside, where each VM has its tap. */
const leaksOf = (routes: readonly PoolRoute[], vms: readonly Routed[]) =>
  routeLeaks(routes, { vms, wayOf: ({ tap }) => tap, where: 'strongroom' })
const route = (n: number, device = `sr${n}`, prefixLength = 32) => ({ address: `10.88.0.${n}`, prefixLength, device })

test('goal: routes of VMs are no leak, whether they run yet or not', () => {
  expect(leaksOf([route(1)], [vm(1), vm(2, false)])).toEqual([])
  expect(leaksOf([], [])).toEqual([])
  const by = (link: string) => ({ wayOf: () => link, where: null })
  expect(routeLeaks([route(1, 'sr-vms')], { vms: [vm(1)], ...by('sr-vms') })).toEqual([])
  expect(routeLeaks([route(1, 'sr-vms')], { vms: [vm(1)], ...by('other') })).toMatchObject([
    { detail: 'unknown', remedy: 'ip route delete 10.88.0.1/32 dev sr-vms' },
    { detail: 'missing', name: '10.88.0.1/32 dev other' },
  ])
})

test('goal: routes that lead an address elsewhere, or to nobody, are told with their commands', () => {
  const said = leaksOf(
    [route(1), route(1, 'sr2'), route(7), route(8, 'eth0'), route(9, '*'), route(0, 'sr1', 24)],
    [vm(1), vm(2)],
  )
  expect(said.map(leak => [leak.detail, leak.vm, leak.name, leak.remedy])).toEqual([
    ['unknown', 'v2', '10.88.0.1/32 dev sr2', 'ip netns exec strongroom ip route delete 10.88.0.1/32 dev sr2'],
    ['unknown', null, '10.88.0.7/32 dev sr7', 'ip netns exec strongroom ip route delete 10.88.0.7/32 dev sr7'],
    ['unknown', null, '10.88.0.8/32 dev eth0', 'ip netns exec strongroom ip route delete 10.88.0.8/32 dev eth0'],
    ['unknown', null, '10.88.0.9/32 dev *', 'ip netns exec strongroom ip route delete 10.88.0.9/32'],
    ['unknown', 'v1', '10.88.0.0/24 dev sr1', 'ip netns exec strongroom ip route delete 10.88.0.0/24 dev sr1'],
    ['missing', 'v2', '10.88.0.2/32 dev sr2', 'the daemon puts it back at its next look at the VM'],
  ])
})

test('goal: an address of IPv6 has a route of 128 bits, and tools are told its family', () => {
  const six: Routed = { vm: 'v6', tap: 'sr6', address: '2001:db8:88::6', isRunning: true }
  const routed = (prefixLength: number) => leaksOf([{ address: six.address, prefixLength, device: 'sr6' }], [six])
  expect(routed(128)).toEqual([])
  expect(routed(64).map(({ name, detail }) => [name, detail])).toEqual([
    ['2001:db8:88::6/64 dev sr6', 'unknown'],
    ['2001:db8:88::6/128 dev sr6', 'missing'],
  ])
  expect(connectionLeaks([{ address: six.address, counts: { '--orig-src': 1 } }], null)[0]?.remedy).toBe(
    'conntrack --delete --family ipv6 --orig-src 2001:db8:88::6',
  )
  expect(connectionsUnread('2001:db8:88::/64', null).remedy).toBe('read them by hand: conntrack --dump --family ipv6')
  expect(connectionsUnread('10.88.0.0/24', null).remedy).toBe('read them by hand: conntrack --dump --family ipv4')
})

test('goal: connections of nobody are deleted on the sides on which they were seen', () => {
  const counts = [
    { address: '10.88.0.7', counts: { '--orig-src': 3 } },
    { address: '10.88.0.8', counts: { '--orig-src': 1, '--reply-src': 2 } },
  ] as const
  expect(connectionLeaks(counts, null).map(leak => [leak.name, leak.remedy])).toEqual([
    ['10.88.0.7', 'conntrack --delete --orig-src 10.88.0.7'],
    ['10.88.0.8', 'conntrack --delete --orig-src 10.88.0.8; conntrack --delete --reply-src 10.88.0.8'],
  ])
  expect(connectionLeaks(counts, 'strongroom')[0]?.remedy).toBe(
    'ip netns exec strongroom conntrack --delete --orig-src 10.88.0.7',
  )
  expect(connectionsUnread('10.88.0.0/24', null)).toMatchObject({ detail: 'unread', name: '10.88.0.0/24' })
})

test('goal: a stopped QEMU comes with the signal that wakes it; a deaf one with what the daemon does', () => {
  const stopped = idleQemu(found('17:4711', 'v1'), 'stopped')
  expect(stopped).toMatchObject({ kind: 'qemu', name: '17:4711', detail: 'stopped', vm: 'v1' })
  expect(stopped.remedy).toBe(
    'kill -CONT 17 lets it go on; else the daemon ends the VM as unanswered within two minutes',
  )
  expect(idleQemu(found('17:4711', 'v1'), 'unanswered').remedy).toStartWith(
    'nothing: it may go on by itself; else the daemon',
  )
})

test('goal: a claimed VM that nobody names is ended by hand alone', () => {
  expect(unownedVm('v1', '17:4711').remedy).toContain('then kill -KILL 17')
  expect(unownedVm('v1', null).remedy).toContain('the daemon clears it away')
})
