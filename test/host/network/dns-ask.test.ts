// Goal: resolvers are read as resolv.conf(5) has them. Questions and answers: delegation.driver.test.ts.

import { expect, test } from 'bun:test'
import { parseResolvers, systemResolvers } from '../../../src/host/network/dns-ask.ts'

test('goal: the first three addresses, and no names', () => {
  const text =
    '# nameserver 9.9.9.9\nsearch x\nnameserver 127.0.0.53\nnameserver not-an-address\nnameserver ::1\noptions edns0\nnameserver 1.1.1.1\nnameserver 8.8.8.8\n'
  expect(parseResolvers(text)).toEqual(['127.0.0.53', '::1', '1.1.1.1'])
  expect(parseResolvers('')).toEqual([])
  expect(systemResolvers('/nonexistent/resolv.conf')).toEqual([])
})
