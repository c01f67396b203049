// Goal: the text of a search never has the secret of a key, however the key was pasted.

import { expect, test } from 'bun:test'
import { searchTerm } from '../../../../src/contract/admin/views/search-term.ts'

const TEXTS = [
  ['  Acme ', 'acme'],
  ['', ''],
  ['ca_k3v9x2ab', 'ca_k3v9x2ab'],
  ['ca_k3v9x2ab_0123456789abcdefgh', 'ca_k3v9x2ab'],
  ['gw_k3v9x2ab_0123456789abcdefghijklmnopqrstuv', 'gw_k3v9x2ab'],
  ['Authorization: Bearer gw_k3v9x2ab_0123456789abcdefghijklmnopqrstuv', 'gw_k3v9x2ab'],
  ['KEY=CA_K3V9X2AB_0123', 'ca_k3v9x2ab'],
  [`_${'x'.repeat(80)}`, `_${'x'.repeat(63)}`],
] as const

test.each(TEXTS)('goal: the secret of a key is not part of the text: %s', (text, term) => {
  expect(searchTerm(text)).toBe(term)
})
