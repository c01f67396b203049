// Goal: of each line of conntrack(8) the right address is read, and what lets nobody in does not count.

import { expect, test } from 'bun:test'
import { addressOf } from '../../../src/host/network/connections.ts'

const answered =
  'tcp      6 431999 ESTABLISHED src=10.88.0.9 dst=192.0.2.1 sport=40000 dport=443 src=192.0.2.1 dst=198.51.100.7 sport=443 dport=40000 [ASSURED] mark=0 use=1'
const called =
  'udp      17 29 src=192.0.2.1 dst=10.88.0.9 sport=9 dport=9 [UNREPLIED] src=10.88.0.9 dst=192.0.2.1 sport=9 dport=9 mark=0 use=1'

test('goal: who began it, and who answered it', () => {
  expect(addressOf(answered, '--orig-src')).toBe('10.88.0.9')
  expect(addressOf(answered, '--reply-src')).toBe('192.0.2.1')
  expect(addressOf(called, '--orig-src')).toBe('192.0.2.1')
})

test('goal: a stranger who calls an address that nobody answers at makes no leak', () => {
  expect(addressOf(called, '--reply-src')).toBeNull()
  expect(addressOf(called.replace('[UNREPLIED] ', ''), '--reply-src')).toBe('10.88.0.9')
})

test('goal: a line of another form counts for nothing', () => {
  for (const line of ['', 'src=10.88.0.9', 'src=a src=b src=c', 'conntrack v1.4.7: 3 flow entries have been shown.']) {
    expect(addressOf(line, '--orig-src')).toBeNull()
  }
})
