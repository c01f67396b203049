// Goal: routes are read as the kernel prints them.

import { expect, test } from 'bun:test'
import { parseRoutes, parseRoutesV6 } from '../../../src/host/network/pool-routes.ts'

const text = `Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
sr0123456789\t0200580A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0
eth0\t0000580A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
*\t0900580A\t00000000\t0205\t0\t0\t0\tFFFFFFFF\t0\t0\t0
`

test('goal: destination, length and device of each route, the refusing ones too', () => {
  expect(parseRoutes(text)).toEqual([
    { address: '0.0.0.0', prefixLength: 0, device: 'eth0' },
    { address: '10.88.0.2', prefixLength: 32, device: 'sr0123456789' },
    { address: '10.88.0.0', prefixLength: 16, device: 'eth0' },
    { address: '10.88.0.9', prefixLength: 32, device: '*' },
  ])
})

test('goal: what is no route is left out', () => {
  expect(parseRoutes('')).toEqual([])
  expect(parseRoutes('Iface\neth0 zz 0 0 0 0 0 zz\n\n')).toEqual([])
})

/** As a kernel printed it: destination, length, source, length, next hop, metric, references, use, flags, device. */
const textV6 = `20010db8008800000000000000000002 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000400 00000001 00000000 00000001 sr0123456789
20010db8008800000000000000000009 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000400 00000001 00000000 00200200       lo
fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 2a0fffff000000000000000000000009 00000400 00000001 00000000 00000003     eth0
fd7374726f6e00670000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001 sr0123456789
ff000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000003 00000000 00000001     eth0
`

test('goal: routes of IPv6 without those that every interface has by itself', () => {
  expect(parseRoutesV6(textV6)).toEqual([
    { address: '2001:db8:88::2', prefixLength: 128, device: 'sr0123456789' },
    { address: '2001:db8:88::9', prefixLength: 128, device: 'lo' },
    { address: '::', prefixLength: 0, device: 'eth0' },
  ])
  expect(parseRoutesV6('')).toEqual([])
  expect(parseRoutesV6('zz 80\n')).toEqual([])
})
