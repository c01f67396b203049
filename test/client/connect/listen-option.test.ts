// Where `strongroom connect` may listen.

import { expect, test } from 'bun:test'
import { listenOption, listenText } from '../../../src/client/connect/listen-option.ts'
import { expectUsageError } from '../../rigs/program.ts'

// Goal: a port alone, and every loopback address with one.
test.each([
  ['8080', '127.0.0.1:8080'],
  ['127.0.0.1:0', '127.0.0.1:0'],
  ['localhost:65535', '127.0.0.1:65535'],
  ['127.1.2.3:1', '127.1.2.3:1'],
  ['[::1]:18442', '[::1]:18442'],
])('%s is %s', (text, shown) => {
  expect(listenText(listenOption(text))).toBe(shown)
})

// Goal: no address that another machine could reach, and the error says what to name.
test.each([
  ...['0.0.0.0:80', '10.0.0.1:80', '192.168.0.2:80', '[::]:80', '[fe80::1]:80', 'example:80', '127.0.0.256:80'],
  ...['1127.0.0.1:80', ':80', '127.1:80', '*:80'],
])('%s is refused', text => {
  expect(() => listenOption(text)).toThrow(/is not a loopback address\..* name 127\.0\.0\.1 or \[::1\]/)
})

// Goal: what is no address with a port is refused with an example.
test.each(['', '127.0.0.1', 'localhost', '127.0.0.1:', '127.0.0.1:x', '127.0.0.1:65536', '-1', '80 ', '::1:80'])(
  '%p is no address',
  text => {
    expect(() => listenOption(text)).toThrow('It must be a loopback address and a port, like 127.0.0.1:18442.')
  },
)

// Goal: the command says the same, and what a policy lacks, before it opens a connection or a port.
test('on the command line', async () => {
  const url = 'https://127.0.0.1:9'
  await expectUsageError(['connect', url, '--listen', '0.0.0.0:80'], '0.0.0.0 is not a loopback address')
  await expectUsageError(['connect', url], 'no measurement is expected: name yours in a --policy')
  await expectUsageError(['connect', url, '--any-measurement'], 'no allowlist and no operator key is expected')
  await expectUsageError(['connect', 'http://127.0.0.1:9'], 'It must be https://HOST:PORT')
  await expectUsageError(['connect', url, '--ca', '/nonexistent', '--any-measurement', '--any-allowlist'], '--ca')
})
