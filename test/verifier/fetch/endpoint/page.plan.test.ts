// Which requests may come from a web page.

import { expect, test } from 'bun:test'
import { pageProblem } from '../../../../src/verifier/fetch/endpoint/page.plan.ts'

const problemOf = (headers: Record<string, string>) => pageProblem(new Headers(headers))

// Goal: programs that call loopback by any of its names pass.
test.each(['127.0.0.1', '127.0.0.1:18442', '127.255.0.9:1', 'localhost', 'LocalHost:80', '[::1]', '[::1]:18442'])(
  'Host %s passes',
  host => {
    expect(problemOf({ host })).toBeNull()
    // Node's fetch sends the mode; a person who types the address in a browser sends the site `none`.
    expect(problemOf({ host, 'sec-fetch-mode': 'cors', 'sec-fetch-site': 'none' })).toBeNull()
  },
)

// Goal: a name that DNS could lead to loopback, or an address of a network, does not pass.
test.each([
  ...['', 'evil.example', 'evil.example:18442', 'localhost.evil.example', '127.0.0.1.evil.example', '127.0.0.1@evil'],
  ...['localhost.', '0.0.0.0', '10.0.0.1', '127.0.0.1 evil', '127.0.0.1:', '127.0.0.1:x', '[::]', '[::2]:1', '127.1'],
  ...['2130706433', '0x7f.0.0.1', 'localhost, evil.example'],
])('Host %p is refused', host => {
  expect(problemOf({ host })).toContain('Host')
})

// Goal: each header that a browser adds, and no page can leave out, is enough.
test('headers of browsers', () => {
  const host = '127.0.0.1:18442'
  expect(problemOf({})).toContain('Host')
  for (const origin of ['https://evil.example', 'null', `http://${host}`, '']) {
    expect(problemOf({ host, origin })).toContain('Origin')
  }
  for (const site of ['cross-site', 'same-site', 'same-origin', '']) {
    expect(problemOf({ host, 'sec-fetch-site': site })).toContain('Sec-Fetch-Site')
  }
})
