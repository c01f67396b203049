// Goal: listen addresses are read exactly, and what follows from them is said in one place.

import { expect, test } from 'bun:test'
import {
  guestGateway,
  hostAddresses,
  listenAddress,
  listenOverlap,
  listenV4,
  localUrl,
  parseListen,
} from '../../src/config/listen.ts'
import { parseConfig } from '../../src/config/parse.ts'

test('goal: listen addresses are split exactly', () => {
  const table: [string, ReturnType<typeof parseListen>][] = [
    ['0.0.0.0:8441', { hostname: '0.0.0.0', port: 8441 }],
    ['[::1]:53', { hostname: '::1', port: 53 }],
    ['::1:53', null],
    ['256.0.0.1:1', null],
    ['[::g]:1', null],
    ['1.2.3.4:65536', null],
    ['1.2.3.4', null],
  ]
  for (const [text, expected] of table) expect([text, parseListen(text)]).toEqual([text, expected])
})

test('goal: where IPv4 clients reach a listener, in whatever way its address is written', () => {
  const table: [string, ReturnType<typeof listenV4>][] = [
    ['0.0.0.0:8442', { address: '0.0.0.0', port: 8442 }],
    ['[::]:8442', { address: '0.0.0.0', port: 8442 }],
    ['127.0.0.1:8442', { address: '127.0.0.1', port: 8442 }],
    ['[::ffff:192.0.2.1]:8442', { address: '192.0.2.1', port: 8442 }],
    ['[2001:db8::1]:8442', { address: null, port: 8442 }],
    ['0.0.0.0:0', null],
    ['', null],
  ]
  for (const [text, expected] of table) expect([text, listenV4(text)]).toEqual([text, expected])
})

test('goal: two listeners overlap when one address takes the other, in whatever way it is written', () => {
  const table: [string, string, boolean][] = [
    ['127.0.0.1:1', '127.0.0.1:1', true],
    ['127.0.0.1:1', '127.0.0.1:2', false],
    ['127.0.0.1:0', '127.0.0.1:0', false],
    ['127.0.0.1:1', '127.0.0.2:1', false],
    ['0.0.0.0:1', '127.0.0.1:1', true],
    ['0.0.0.0:1', '[::1]:1', false],
    ['0.0.0.0:1', '[::]:1', true],
    ['[::]:1', '127.0.0.1:1', true],
    ['[::]:1', '[::1]:1', true],
    ['[0:0::0]:1', '[fd00::1]:1', true],
    ['[::1]:1', '[0:0:0:0:0:0:0:1]:1', true],
    ['[FD00::A]:1', '[fd00::a]:1', true],
    ['[fd00::a]:1', '[fd00::b]:1', false],
    ['[::ffff:192.0.2.1]:1', '192.0.2.1:1', true],
    ['[::ffff:192.0.2.1]:1', '0.0.0.0:1', true],
    ['[::ffff:192.0.2.1]:1', '192.0.2.2:1', false],
  ]
  for (const [a, b, expected] of table) {
    const overlaps = [
      listenOverlap(listenAddress(a), listenAddress(b)),
      listenOverlap(listenAddress(b), listenAddress(a)),
    ]
    expect([a, b, overlaps]).toEqual([a, b, [expected, expected]])
  }
})

test('goal: a client on this machine gets an address that it can connect to', () => {
  expect(localUrl('0.0.0.0:8441', 1)).toBe('https://127.0.0.1:1')
  expect(localUrl('[::]:8441', 1)).toBe('https://127.0.0.1:1')
  expect(localUrl('[fd00::1]:0', 2)).toBe('https://[fd00::1]:2')
  expect(localUrl('192.0.2.1:0', 3)).toBe('https://192.0.2.1:3')
})

test('goal: instances are told of the gateway where it listens', () => {
  const table: [text: string, baseUrl: string, ports: number[]][] = [
    ['', 'https://inference.strongroom.internal:8442/v1', [8442]],
    ['[listen]\ninference = "0.0.0.0:9000"', 'https://inference.strongroom.internal:9000/v1', [9000]],
    [
      '[listen]\ninference = "[::]:443"\n[network]\ngateway_v4 = "192.0.2.1"',
      'https://inference.strongroom.internal:443/v1',
      [443],
    ],
    ['[listen]\ninference = ""', 'https://inference.strongroom.internal/v1', []],
    [
      '[listen]\ninference = "0.0.0.0:0"\n[inference]\nplacement = "host"',
      'https://inference.strongroom.internal/v1',
      [],
    ],
    [
      '[listen]\ninference = "0.0.0.0:9000"\n[instances]\ninference_base_url = "https://gateway.example/v1"',
      'https://gateway.example/v1',
      [9000],
    ],
  ]
  for (const [text, baseUrl, ports] of table) {
    const verdict = parseConfig(text, 'f')
    const own = text.includes('192.0.2.1') ? '192.0.2.1' : '169.254.88.1'
    const address = text.includes('inference_base_url') ? null : own
    expect(verdict.ok && [text, guestGateway(verdict.config, 'inference.strongroom.internal')]).toEqual([
      text,
      { baseUrl, ports, address },
    ])
  }
})

test('goal: the host names have the configured address, else that of their listener, else that of the default route', () => {
  const table: [string, string | null, ReturnType<typeof hostAddresses>][] = [
    ['', '192.0.2.7', { ns: '192.0.2.7', instances: '192.0.2.7', inference: '192.0.2.7', builds: null }],
    ['', null, { ns: null, instances: null, inference: null, builds: null }],
    [
      '[network]\npublic_v4 = "203.0.113.5"\n[listen]\nbuilds = "0.0.0.0:8443"',
      '192.0.2.7',
      { ns: '203.0.113.5', instances: '203.0.113.5', inference: '203.0.113.5', builds: '203.0.113.5' },
    ],
    [
      '[listen]\ndns = "192.0.2.1:53"\ninstances = "[::ffff:192.0.2.2]:8441"\ninference = ""',
      '192.0.2.7',
      { ns: '192.0.2.1', instances: '192.0.2.2', inference: null, builds: null },
    ],
    [
      '[listen]\ndns = "[::]:53"\ninstances = "[fd00::1]:8441"',
      '192.0.2.7',
      { ns: '192.0.2.7', instances: null, inference: '192.0.2.7', builds: null },
    ],
  ]
  for (const [toml, route, expected] of table) {
    const verdict = parseConfig(toml, 'f')
    expect(verdict.ok && [toml, hostAddresses(verdict.config, route)]).toEqual([toml, expected])
  }
})
