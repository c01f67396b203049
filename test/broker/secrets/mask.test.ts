// Goal: a response shows no secret in a usual form, wherever it is cut, and loses no other byte.

import { expect, test } from 'bun:test'
import { Mask, maskedForms, maskIn } from '../../../src/broker/secrets/mask.ts'

const value = 'tok/en"&<1>+ab cd'
const bearer = { value, format: 'Bearer {}' }
const basic = { value, format: 'Basic {basic:user}' }

const masked = (text: string, secrets = [bearer]) => {
  const bytes = Buffer.from(text, 'latin1')
  maskIn(bytes, maskedForms(secrets))
  return bytes.toString('latin1')
}

// Goal: every usual form of a secret is masked whole.
test.each([
  ['itself', value],
  ['percent-encoded', 'tok%2Fen%22%26%3C1%3E%2Bab%20cd'],
  ['JSON', 'tok/en\\"&<1>+ab cd'],
  ['JSON with escaped slashes', 'tok\\/en\\"&<1>+ab cd'],
  ['HTML', 'tok/en&quot;&amp;&lt;1&gt;+ab cd'],
  ['hexadecimal', '746f6b2f656e22263c313e2b6162206364'],
  ['hexadecimal in capitals', '746F6B2F656E22263C313E2B6162206364'],
])('goal: every byte of the secret as %s becomes an asterisk', (_, form) => {
  expect(masked(`<${form}>${form}`)).toBe(`<${'*'.repeat(form.length)}>${'*'.repeat(form.length)}`)
})

test('goal: base64 is found at every shift and in both alphabets, and nothing of the secret is left', () => {
  for (const before of ['', 'a', 'ab', 'abc', 'user:']) {
    for (const encoding of ['base64', 'base64url'] as const) {
      const encoded = Buffer.from(`${before}${value}!!!`, 'latin1').toString(encoding)
      const shown = masked(encoded)
      expect(shown.length).toBe(encoded.length)
      const left = Buffer.from(shown.replaceAll('*', 'A'), 'base64').toString('latin1').slice(before.length)
      // At most the characters at both ends, which share base64's characters with others.
      expect(left.slice(1, value.length - 1)).toBe('\0'.repeat(value.length - 2))
    }
  }
  expect(masked(`Basic ${btoa(`user:${value}`)}`, [basic])).toMatch(/^Basic \*+=*$/)
})

test('goal: however a stream is cut, the result is that of the whole', () => {
  const forms = maskedForms([bearer])
  const text = `${value.slice(0, 5)}${value}${value.slice(0, 9)} x ${btoa(value)} ${value.slice(1)} tok/e`
  const whole = masked(text)
  expect(whole).toContain('*'.repeat(value.length))
  for (let first = 0; first <= text.length; first += 1) {
    for (const second of [first, first + 1, first + 7, text.length]) {
      const mask = new Mask(forms)
      const parts = [text.slice(0, first), text.slice(first, second), text.slice(Math.max(first, second))]
      const out = parts.map(part => Buffer.from(mask.push(Buffer.from(part, 'latin1'))).toString('latin1'))
      expect(out.join('') + Buffer.from(mask.end()).toString('latin1')).toBe(whole)
    }
  }
})

test('goal: bytes that begin no secret are passed on at once', () => {
  const mask = new Mask(maskedForms([bearer]))
  expect(Buffer.from(mask.push(Buffer.from('data: one\n\n'))).toString()).toBe('data: one\n\n')
  expect(Buffer.from(mask.push(Buffer.from('data: tok'))).toString()).toBe('data: ')
  expect(Buffer.from(mask.push(Buffer.from('yo\n'))).toString()).toBe('tokyo\n')
  expect(mask.end().length).toBe(0)
})

test('goal: overlapping and repeating secrets leave nothing', () => {
  expect(masked('abababababab', [{ value: 'abababab', format: '{}' }])).toBe('*'.repeat(12))
  const two = [
    { value: 'abcdefgh', format: '{}' },
    { value: 'efghijkl', format: '{}' },
  ]
  expect(masked('-abcdefghijkl-', two)).toBe(`-${'*'.repeat(12)}-`)
})

test('goal: without secrets everything passes', () => {
  const mask = new Mask([])
  expect(Buffer.from(mask.push(Buffer.from('abc'))).toString()).toBe('abc')
  expect(mask.end().length).toBe(0)
})
