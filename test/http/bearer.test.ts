// Bearer keys: their form, and how they are drawn and compared.

import { expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { systemRandom } from '../../src/base/ids.ts'
import { createKeyFormat, type MintedKey, mintUnused, secretMatches } from '../../src/http/bearer.ts'

const keys = createKeyFormat({ tag: 'xy', secretLength: 20 })

// Goal: what is minted is parsed again, and only with the scheme in any case, spaces, and the exact key behind them.
test('minting and parsing agree, and nothing else is parsed', () => {
  const { key, prefix } = keys.mint(systemRandom)
  expect(key).toMatch(/^xy_[a-z0-9]{8}_[a-z0-9]{20}$/)
  const secret = key.slice('xy_'.length + 'prefix_8_'.length)
  for (const good of [`Bearer ${key}`, `bearer  ${key}`, `BEARER ${key}`]) {
    expect([good, keys.parse(good)]).toEqual([good, { prefix, secret }])
  }
  const bad = [
    ...[
      '',
      key,
      `Bearer${key}`,
      `Bearer\t${key}`,
      ` Bearer ${key}`,
      `Basic ${key}`,
      `Bearer ${key} `,
      `Bearer ${key}a`,
    ],
    ...[`Bearer ${key.slice(0, -1)}`, `Bearer ${key.toUpperCase()}`, `Bearer ${key}, Bearer ${key}`, `Bearer ${key}\n`],
    ...[`Bearer ${key.replace('xy', 'xz')}`, `Bearer x${key}`, `Bearer "${key}"`],
  ]
  for (const header of bad) expect([header, keys.parse(header)]).toEqual([header, null])
  expect(keys.parse(null)).toBeNull()
})

// Goal: the store gets the SHA-256 of the secret; only the secret matches it, and an unknown key matches nothing.
test('a secret matches its own hash only', () => {
  const { key, secretSha256 } = keys.mint(systemRandom)
  const secret = key.split('_')[2] ?? ''
  expect(secretSha256.toHex()).toBe(createHash('sha256').update(secret).digest('hex'))
  expect(secretMatches(secret, secretSha256)).toBe(true)
  expect(secretMatches(`${secret.slice(0, -1)}_`, secretSha256)).toBe(false)
  expect(secretMatches(secret, secretSha256.subarray(1))).toBe(false)
  expect(secretMatches(secret, null)).toBe(false)
})

// Goal: a taken prefix is drawn again, eight times at most.
test('a free prefix is looked for, and not for ever', () => {
  const tried: MintedKey[] = []
  const insert = (free: number) => (minted: MintedKey) => tried.push(minted) === free
  const draw = () => keys.mint(systemRandom)
  expect(mintUnused(draw, insert(3))).toBe(tried[2] as MintedKey)
  tried.length = 0
  expect(() => mintUnused(draw, insert(9))).toThrow(expect.objectContaining({ code: 'internal' }))
  expect(tried).toHaveLength(8)
})
