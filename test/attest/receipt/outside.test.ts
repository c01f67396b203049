// Goal: an upstream outside is allowed where, and only where, the relying party has said so.

import { expect, test } from 'bun:test'
import { isAllowed, outsideEntry } from '../../../src/attest/receipt/outside.ts'

test('goal: a name with an origin allows that place alone; a name alone allows whatever the host leads it to', () => {
  const allowed = (entries: unknown, origin?: string | null) => isAllowed(entries as string[], 'far', origin)
  expect(outsideEntry('far', 'https://far.example:443/v1')).toBe('far=https://far.example')
  const pinned = ['near', 'far=https://far.example']
  expect(
    ['https://far.example', 'http://far.example', 'https://far.example:8443', null].map(text => allowed(pinned, text)),
  ).toEqual([...[true, false, false, false]])
  expect([allowed(pinned), allowed(['far'], 'http://198.51.100.7'), allowed(['far'], null)]).toEqual([true, true, true])
  for (const wrong of [[], ['fa'], ['far '], 'far', 'far=https://far.example', true, undefined, null, { far: true }]) {
    expect([wrong, allowed(wrong, 'https://far.example'), allowed(wrong)]).toEqual([wrong, false, false])
  }
})

test('goal: a host that calls its upstream by what somebody allowed, place and all, is not that upstream', () => {
  expect(isAllowed(['far=https://far.example'], 'far=https://far.example', 'http://198.51.100.7')).toBe(false)
  expect(isAllowed(['far'], 'far=https://far.example', 'https://far.example')).toBe(false)
})
