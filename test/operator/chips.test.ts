// Goal: the operator's list has the chips of the host, or of each host of the fleet, and stands in the log before
// anyone has it; hosts without a chip are named, and none makes up another's.

import { expect, test } from 'bun:test'
import { sha256 } from '../../src/attest/hash.ts'
import { publicIdKey } from '../../src/attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../../src/attest/launch/id-block-verify.ts'
import { readChipList } from '../../src/attest/policy/chip-list.ts'
import { toHex, utf8 } from '../../src/base/bytes.ts'
import { silentLogger } from '../../src/base/log.ts'
import type { AdminChips, FleetHost } from '../../src/contract/admin/fleet.ts'
import { createAdmin } from '../../src/operator/api.ts'
import type { AdminDeps } from '../../src/operator/deps.ts'
import { openStore } from '../../src/store/db.ts'
import { asRoot, NO_ADMINISTRATORS } from '../rigs/admin.ts'

const nowMs = Date.parse('2026-11-30T12:00:00Z')
const [own, other] = ['0a'.repeat(64), '0b'.repeat(64)]
const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, ['sign', 'verify'])
const signer = await idKeyDigest(await publicIdKey(keys.publicKey))

async function exported(
  chipId: string | readonly string[] | null,
  hosts: readonly Partial<FleetHost>[] | null = null,
  [path, body]: readonly [string, string] = ['export', '{"add":[]}'],
) {
  using ended = new DisposableStack()
  const store = ended.adopt(openStore(':memory:'), opened => opened.close())
  const [logged, named]: [object[], string[]] = [[], []]
  const { transparency } = NO_ADMINISTRATORS
  const append = (...facts: readonly object[]) => void logged.push(...facts)
  const deps = {
    ...NO_ADMINISTRATORS,
    ...{ store, log: silentLogger, clock: { nowMs: () => nowMs, monotonicMs: () => 0, sleep: async () => {} } },
    ...{ gateway: 'off', collectors: [] },
    chips: {
      own: () => [chipId ?? []].flat(),
      name: (chip: string) => void named.push(chip),
      keys,
      digest: toHex(signer),
      isInFleet: hosts !== null,
    },
    fleet: { list: async () => hosts },
    transparency: { ...transparency, log: { ...transparency.log, append } },
  }
  const admin = asRoot(createAdmin(deps as unknown as AdminDeps))
  const headers = { 'content-type': 'application/json' }
  const response = await admin(new Request(`http://admin/chips/${path}`, { method: 'POST', body, headers }))
  const document = (await response.json()) as AdminChips & { error?: { code: string; message: string } }
  return { status: response.status, document, logged, named }
}

// Goal: the list is signed by the operator key, and its digest is in the log.
test('a host alone', async () => {
  const { status, document, logged } = await exported(own)
  expect([status, document.hosts]).toEqual([200, [{ host: 'this host', chip_id: own }]])
  const list = utf8(document.list)
  expect(await readChipList(list, [signer])).toEqual({ chipIds: [Uint8Array.fromHex(own)], issuedAtMs: nowMs, signer })
  expect(document.sha256).toBe(toHex(sha256(list)))
  expect(logged).toEqual([{ kind: 'chip-list', sha256: document.sha256 }])
})

const ours = { operator_key: toHex(signer) }

// Goal: only a chip_id becomes a chip. Hosts that were given up, or have another operator key, have none.
test('a fleet: each host that is not given up, this one as it knows itself', async () => {
  const { document } = await exported(own, [
    { name: 'rack-1', state: 'serving', is_this_host: true, chip_id: 'ff'.repeat(64) },
    { name: 'rack-2', state: 'silent', is_this_host: false, chip_id: other, ...ours },
    { name: 'rack-3', state: 'lost', is_this_host: false, chip_id: '0c'.repeat(64), ...ours },
    { name: 'rack-4', state: 'serving', is_this_host: false, chip_id: 'no chip', ...ours },
    { name: 'rack-5', state: 'serving', is_this_host: false, ...ours },
    { name: 'rack-6', state: 'serving', is_this_host: false, chip_id: '00'.repeat(64), ...ours },
    { name: 'rack-7', state: 'serving', is_this_host: false, chip_id: '0d'.repeat(64), operator_key: 'ab'.repeat(48) },
  ])
  expect(document.hosts).toEqual([
    { host: 'rack-1', chip_id: own },
    { host: 'rack-2', chip_id: other },
    ...['rack-4', 'rack-5', 'rack-6', 'rack-7'].map(host => ({ host, chip_id: null })),
  ])
  const { chipIds } = await readChipList(utf8(document.list), [signer])
  expect(chipIds.map(toHex)).toEqual([own, other])
})

// Goal: an empty list is never handed out.
test('without any chip nothing is signed and nothing logged', async () => {
  const { status, document, logged } = await exported(null)
  expect([status, document.error?.code, logged]).toEqual([409, 'conflict', []])
})

// Goal: of several chips the operator names one; a chip that no report has, both, or none is refused and logs nothing.
test('a host with reports of several chips', async () => {
  const adding = (...add: readonly string[]) => exported([own, other], null, ['export', JSON.stringify({ add })])
  for (const add of [[], ['0c'.repeat(64)], [own, other]]) {
    const { status, document, logged, named } = await adding(...add)
    const { message } = document.error ?? {}
    expect([status, message, logged, named]).toEqual([409, expect.stringContaining(`${own}, ${other}`), [], []])
  }
  const { status, document, named } = await adding('0c'.repeat(64), other)
  expect([status, document.hosts, named]).toEqual([200, [{ host: 'this host', chip_id: other }], [other]])
})

// Goal: a row of the directory adds no chip to a list that the operator has compared, unless the operator names it.
test('a fleet, with the list before', async () => {
  const rows = [
    { name: 'rack-1', state: 'serving', is_this_host: true },
    { name: 'rack-2', state: 'serving', is_this_host: false, chip_id: other, ...ours },
  ] as const
  const knowing = (...known: readonly string[]) => exported(own, rows, ['export', JSON.stringify({ add: [], known })])
  const { status, document, logged } = await knowing(own)
  expect([status, logged]).toEqual([409, []])
  expect(document.error?.message).toContain(`not in the previous list: rack-2: ${other};`)
  expect((await knowing(own, other)).status).toBe(200)
})

// Goal: a list of another host enters this host's log, by its digest and nothing else.
test('publish', async () => {
  const sha256 = 'ab'.repeat(32)
  const { status, logged } = await exported(own, null, ['publish', JSON.stringify({ sha256 })])
  expect([status, logged]).toEqual([200, [{ kind: 'chip-list', sha256 }]])
  const other = await exported(own, null, ['publish', JSON.stringify({ sha256: 'rack-1' })])
  expect([other.status, other.logged]).toEqual([400, []])
})
