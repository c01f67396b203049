// Goal: which requests a browser may have sent for a page of the console: another site's page changes and reads
// nothing.

import { expect, test } from 'bun:test'
import { crossSiteFault, hostOf, hostsOf } from '../../../src/console/http/origin.ts'

test('goal: this machine by its own names, and the names of the configuration, in the form of a Host header', () => {
  expect([...hostsOf(['Console.Example', '192.0.2.1', '2001:DB8:0::1'])]).toEqual([
    ...['localhost', '127.0.0.1', '[::1]', 'console.example', '192.0.2.1', '[2001:db8::1]'],
  ])
})

// Goal: a Host header is read as a browser writes it, and the port of https belongs to no origin.
test.each([
  ['console.example', { name: 'console.example', authority: 'console.example' }],
  ['Console.Example:8444', { name: 'console.example', authority: 'console.example:8444' }],
  ['console.example:443', { name: 'console.example', authority: 'console.example' }],
  ['127.0.0.1:8444', { name: '127.0.0.1', authority: '127.0.0.1:8444' }],
  ['[0:0::1]:8444', { name: '[::1]', authority: '[0:0::1]:8444' }],
  ['[::1]:443', { name: '[::1]', authority: '[::1]' }],
  ['a'.repeat(253), { name: 'a'.repeat(253), authority: 'a'.repeat(253) }],
  ['a'.repeat(254), null],
  [null, null],
  ['', null],
  [':8444', null],
  ['console.example:', null],
  ['console.example:123456', null],
  ['user@console.example', null],
  ['console.example/', null],
  ['console_example', null],
  ['[console.example]', null],
  ['a b', null],
] as const)('%p', (header, host) => {
  expect(hostOf(header)).toEqual(host)
})

test('goal: every pair of Sec-Fetch-Site and Origin, of a read and of a change', () => {
  const origin = 'https://console.example:8444'
  const answered = (isChange: boolean) =>
    [null, 'same-origin', 'none', 'same-site', 'cross-site', 'of-tomorrow'].flatMap(site =>
      [null, origin, 'https://console.example', 'http://console.example:8444', 'null'].flatMap(from => {
        const headers = new Headers()
        if (site !== null) headers.set('sec-fetch-site', site)
        if (from !== null) headers.set('origin', from)
        return crossSiteFault(headers, { origin, isChange }) === null ? [`${site} ${from}`] : []
      }),
    )
  expect(answered(false)).toEqual([
    'null null',
    `null ${origin}`,
    'same-origin null',
    `same-origin ${origin}`,
    'none null',
    `none ${origin}`,
  ])
  expect(answered(true)).toEqual([`null ${origin}`, `same-origin ${origin}`])
  expect(crossSiteFault(new Headers({ origin: 'null' }), { origin, isChange: true })).toMatchObject({
    code: 'forbidden',
    message: 'The request does not come from a page of this console; open the console and try there.',
  })
})
