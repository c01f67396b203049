// Goal: the interface of the default route is found in what the kernel prints, and nothing that is not one is taken
// for it.

import { expect, test } from 'bun:test'
import { isIPv4 } from 'node:net'
import { defaultRouteAddress, defaultRouteInterface } from '../../../src/host/network/default-route.ts'

const HEADING = 'Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT      '
const route = (name: string, destination: string, flags: string, metric: number, mask: string) =>
  `${name}\t${destination}\t010200C0\t${flags}\t0\t0\t${metric}\t${mask}\t0\t0\t0   `

test('goal: it is the one up with the lowest metric', () => {
  const table: [string[], string | null][] = [
    [[], null],
    [[route('eth0', '000200C0', '0001', 0, '00FFFFFF')], null],
    [[route('eth0', '00000000', '0003', 0, '00000000')], 'eth0'],
    [[route('wlan0', '00000000', '0003', 600, '00000000'), route('eth0', '00000000', '0003', 100, '00000000')], 'eth0'],
    [[route('eth0', '00000000', '0002', 0, '00000000')], null],
    // 0.0.0.0/1, as VPNs set it.
    [[route('tun0', '00000000', '0003', 0, '00000080')], null],
  ]
  for (const [lines, expected] of table) {
    expect([lines, defaultRouteInterface(`${[HEADING, ...lines].join('\n')}\n`)]).toEqual([lines, expected])
  }
  expect(defaultRouteInterface('')).toBeNull()
})

test('goal: on this machine it is an IPv4 address or nothing', () => {
  const address = defaultRouteAddress()
  expect(address === null || isIPv4(address)).toBe(true)
})
