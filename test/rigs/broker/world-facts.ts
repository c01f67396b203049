// Addresses and names of the Internet of a test (world.ts).

export const WORLD = {
  resolver: '21.0.0.53',
  /** Only the test itself asks here. */
  control: '127.0.0.1',
  addresses: ['21.0.0.10', '21.0.0.11', '21.0.0.66', '10.9.9.9'],
  v6: '2600:1f18::10',
  vm: '21.1.0.2',
  vmV6: '2600:1f18:1::2',
} as const

export const PORTS = [22, 80, 443, 8443] as const

export const NAMES: Readonly<Record<string, readonly string[]>> = {
  'github.com': ['21.0.0.10'],
  'six.example.org': ['2600:1f18::10'],
  'raw.githubusercontent.com': ['21.0.0.11'],
  'gateway.example.net': ['10.9.9.9'],
  'private.example.org': ['10.9.9.9'],
  'loopback.example.org': ['127.0.0.1'],
  'evil.example.org': ['21.0.0.66'],
}
