// Goal: a released step of the directory's schema never changes: hosts have applied it. A new step is a new row here.

import { expect, test } from 'bun:test'
import { FLEET_MIGRATIONS, newestOf } from '../../../src/fleet/migrations.ts'

const digestOf = (sql: string) => new Bun.CryptoHasher('sha256').update(sql).digest('hex').slice(0, 16)

test('goal: number, release, name and text of each step', () => {
  expect(FLEET_MIGRATIONS.map(({ to, release, name, sql }) => `${to} ${release} ${name} ${digestOf(sql)}`)).toEqual([
    '1 1 hosts c9ceaa3794997c1f',
    '2 1 directory ee5e6e12535666ce',
    '3 1 attempts 3fa28809fe435b26',
    '4 1 peers 7cb0813d8f8ec912',
    '5 1 books bdb16e61676a5c79',
    '6 1 shares 0627d38ec5f2a5b2',
    '7 1 builds 454f432199f0ad9f',
    '8 1 recorded-rows 436201b981f61645',
    '9 1 client-made-keys 3f705b168e980d7c',
    '10 1 own-rows eec114fdfca97ff6',
    '11 1 guards 98b4d4cc54d3b937',
    '12 1 short-budgets 8cd9747fd2ec39bb',
    '13 1 build-nix 5e9c9ec70929de9f',
    '14 1 build-options b925afcdb0ef68e2',
    '15 1 build-waivers 02a13c4379e753f1',
    '16 1 build-claims 8e14b55bd5945e31',
    '17 1 egress-policy f93a8ca81f794c92',
    '18 1 key-names-and-quotas 8f95ea87b8b23f20',
    '19 1 usage-generations dc10ce8ba418be61',
    '20 1 one-process 378af49be83418f2',
    '21 1 stuck-changes 4336542b2ee30f01',
    '22 1 samples eb80bb04025b1f68',
    '23 1 sums e296308c7643551c',
  ])
  expect([newestOf(), newestOf([])]).toEqual([23, 0])
})
