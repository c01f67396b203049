// Goal: an own key that logs in passes, whether claim or order let it in; keys beside the expected ones fail only where
// the caller names all of them.

import { expect, test } from 'bun:test'
import { parsed } from '../../../src/attest/malformed.ts'
import { loginKeyChecks } from '../../../src/verifier/ordered/login-keys.ts'
import { readSshKey } from '../../../src/verifier/ssh-key.ts'

function line(fill: number): string {
  const head = Buffer.from('0000000b7373682d6564323535313900000020', 'hex')
  return `ssh-ed25519 ${Buffer.concat([head, Buffer.alloc(32, fill)]).toString('base64')}`
}
const print = (fill: number) => readSshKey(line(fill)).fingerprint

type Given = { stated?: string[] | null; own?: string | string[] | 'any'; only?: string[]; claim?: string }

function outcomes({ stated = null, own = line(1), only, claim = line(1) }: Given) {
  const claimed = parsed(() => readSshKey(claim))
  return loginKeyChecks({ claimed, stated, own, only }).map(({ name, outcome }) => `${name} ${outcome}`)
}

test('goal: the key of the claim alone', () => {
  expect(outcomes({})).toEqual(['own-key pass', 'login-keys pass'])
  expect(outcomes({ own: line(2) })).toEqual(['own-key fail', 'login-keys pass'])
  expect(outcomes({ own: [line(2), line(1)] })).toEqual(['own-key pass', 'login-keys pass'])
  expect(outcomes({ own: 'any' })).toEqual(['own-key not-checked', 'login-keys pass'])
  expect(outcomes({ own: [] })).toEqual(['own-key fail', 'login-keys pass'])
  expect(outcomes({ only: [line(1)] })).toEqual(['own-key pass', 'login-keys pass'])
  expect(outcomes({ only: [line(2)] })).toEqual(['own-key pass', 'login-keys fail'])
})

test('goal: keys of orders', () => {
  const stated = [print(1), print(2)]
  expect(outcomes({ stated, own: line(2) })).toEqual(['own-key pass', 'login-keys pass'])
  expect(outcomes({ stated, own: line(3) })).toEqual(['own-key fail', 'login-keys pass'])
  expect(outcomes({ stated, only: [line(1), line(2), line(3)] })).toEqual(['own-key pass', 'login-keys pass'])
  expect(outcomes({ stated, only: [line(1)] })).toEqual(['own-key pass', 'login-keys fail'])
  // An order has removed the key of the claim.
  expect(outcomes({ stated: [print(2)] })).toEqual(['own-key fail', 'login-keys pass'])
})

test('goal: what is no fingerprint fails, and lets nobody in', () => {
  for (const odd of ['', print(2).slice(0, 20), ` ${print(2)}`, 'x']) {
    expect(outcomes({ stated: [print(1), odd] })).toEqual(['login-keys-form fail'])
    expect(outcomes({ stated: [print(1), odd], own: 'any' })).toEqual(['login-keys-form fail'])
  }
})

test('goal: an unreadable key of the claim', () => {
  expect(outcomes({ claim: 'x' })).toEqual(['own-key not-checked', 'login-keys not-checked'])
})

test('goal: the reasons name the keys', () => {
  const claimed = parsed(() => readSshKey(line(1)))
  const [own, all] = loginKeyChecks({ claimed, stated: [print(1), print(2)], own: line(3), only: [line(1)] })
  expect(own?.reason).toBe(`the instance lets in 2 keys, yours is ${print(3)}`)
  expect(all?.reason).toBe(`it lets in ${print(2)} too, which you do not expect`)
})
