// Goal: routes are read as the kernel prints them.

import { expect, test } from 'bun:test'
import { parseRoutes } from '../../../src/host/network/pool-routes.ts'

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
