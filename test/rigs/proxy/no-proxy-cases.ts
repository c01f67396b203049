// Values of NO_PROXY, which Bun's fetch and the tunnel of node:tls read alike. Pure.

/** URL, NO_PROXY, and whether the request is direct. */
export const noProxyCases: [url: string, entries: string, isDirect: boolean][] = [
  ...[
    ...['far.example', '.example', 'x, FAR.example', '*.example', '*', 'a far.example', 'x,*', 'far.example.'],
    ...['.far.example.', 'far.example:443', '*.example:443', 'example.:443'],
  ].map((entry): [string, string, boolean] => ['https://far.example/', entry, true]),
  ...[
    '',
    'ar.example',
    'a.far.example',
    'example.org',
    '10.0.0.0/8',
    'far.example:8443',
    'far.example:',
    '.',
    ':443',
  ].map((entry): [string, string, boolean] => ['https://far.example/', entry, false]),
  ['https://far.example.:8443/', 'far.example:8443', true],
  ['https://127.1.2.3/', '127.0.0.0/8', true],
  ['https://127.1.2.3:8443/', '127.1.2.3:8443', true],
  ['https://127.1.2.3:8443/', '127.1.2.3:443', false],
  ...['[::1]', '::1', '[::1]:8443', '::/127'].map((entry): [string, string, boolean] => [
    'https://[::1]:8443/',
    entry,
    true,
  ]),
  ['https://[::1]:8443/', '[::1]:443', false],
  // No network: everything would match the first, and BlockList throws for the others.
  ...['127.0.0.0/', '127.0.0.0/33', '127.0.0.0/x', '127.0.0.0/8/8', '::1/129', 'localhost'].map(
    (entry): [string, string, boolean] => ['https://127.1.2.3/', entry, false],
  ),
  ['https://127.0.0.1:8441/', '', false],
]
