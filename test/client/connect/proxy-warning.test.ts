// A proxy in the environment would read what agents send to loopback.

import { expect, test } from 'bun:test'
import { proxyWarning } from '../../../src/client/connect/proxy-warning.ts'

// Goal: each variable that agents follow for plain HTTP is named, with what to set.
test.each(['HTTP_PROXY', 'http_proxy', 'ALL_PROXY', 'all_proxy'])('%s', name => {
  expect(proxyWarning({ [name]: 'http://proxy.example:3128' }, '127.0.0.1')).toBe(
    `${name} is set: agents would send prompts and keys to that proxy unencrypted. Set NO_PROXY=127.0.0.1 for them, too.`,
  )
})

// Goal: nothing is said where no proxy gets requests to loopback.
test.each([
  {},
  { HTTP_PROXY: '' },
  { HTTPS_PROXY: 'http://proxy.example:3128' },
  { HTTP_PROXY: 'http://proxy.example:3128', NO_PROXY: 'localhost, 127.0.0.1' },
  { http_proxy: 'http://proxy.example:3128', no_proxy: '*' },
])('%j', env => {
  expect(proxyWarning(env, '127.0.0.1')).toBeNull()
})

// Goal: an exception for another name does not count.
test('another exception', () => {
  const env = { HTTP_PROXY: 'http://proxy.example:3128', NO_PROXY: 'localhost,127.0.0.10' }
  expect(proxyWarning(env, '127.0.0.1')).not.toBeNull()
})
