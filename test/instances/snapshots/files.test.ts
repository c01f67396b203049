// Goal: a snapshot is on the disk whole or not at all, also after a kill at any point; records, bytes and files agree.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { silentLogger } from '../../../src/base/log.ts'
import { SnapshotFiles } from '../../../src/instances/snapshots/files.ts'

const owner = { instanceId: '5b3f0a1c-0000-4000-8000-000000000001', organizationId: 'org-1' }
const other = { instanceId: '5b3f0a1c-0000-4000-8000-000000000002', organizationId: 'org-2' }
const facts = (number: number) => ({
  name: 'k3v9x2ma',
  number,
  createdAtMs: 1_000 + number,
  signed: { header: '{}', signature: 's' },
})

let root = ''
let directory = ''
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'srt-snapshots-'))
  directory = join(root, 'snapshots')
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

const open = () => new SnapshotFiles(directory, silentLogger)
async function keep(files: SnapshotFiles, number: number, bytes: number, of = owner) {
  const arriving = await files.begin(of)
  await arriving.write(new Uint8Array(bytes).fill(number))
  return await arriving.keep(facts(number))
}
const names = (of = owner) => readdirSync(join(directory, of.instanceId)).sort()

test('goal: kept snapshots are found by the next start, the oldest first, with their bytes', async () => {
  const files = open()
  await keep(files, 1, 10)
  await keep(files, 2, 20)
  await keep(files, 7, 5, other)
  const next = open()
  expect(next.of(owner.instanceId).map(({ number, bytes }) => [number, bytes])).toEqual([
    [1, 10],
    [2, 20],
  ])
  expect([next.bytes(null), next.bytes('org-1'), next.bytes(null, owner.instanceId)]).toEqual([35, 30, 5])
  expect(next.list('org-2').map(({ number }) => number)).toEqual([7])
  const [, second] = next.of(owner.instanceId)
  if (second === undefined) throw new Error('no second snapshot')
  expect([...readFileSync(next.path(second))]).toEqual(Array(20).fill(2))
})

test('goal: what arrives counts, and is gone after a start or when it is dropped; one of an instance at a time', async () => {
  const files = open()
  await keep(files, 1, 10)
  const arriving = await files.begin(owner)
  await arriving.write(new Uint8Array(100))
  expect([files.bytes('org-1'), files.arriving(null), files.arriving('org-2')]).toEqual([110, 1, 0])
  expect(files.begin(owner)).rejects.toThrow('under way')
  const killed = open()
  expect([killed.bytes('org-1'), names()]).toEqual([10, ['1.age', '1.json']])
  await arriving.drop()
  expect([files.bytes('org-1'), files.arriving(null)]).toEqual([10, 0])
  const first = await files.begin(other)
  await first.drop()
  expect(existsSync(join(directory, other.instanceId))).toBeFalse()
})

test('goal: a ciphertext without a record, as after a kill between the two, is removed', async () => {
  await keep(open(), 1, 10)
  for (const name of ['2.age', 'arriving.age', '3.json.tmp', 'x'])
    writeFileSync(join(directory, owner.instanceId, name), 'half')
  mkdirSync(join(directory, other.instanceId))
  writeFileSync(join(directory, other.instanceId, '1.age'), 'half')
  const files = open()
  expect(names()).toEqual(['1.age', '1.json'])
  expect([files.of(other.instanceId), existsSync(join(directory, other.instanceId))]).toEqual([[], false])
})

test('goal: a record whose ciphertext has another size, or that cannot be read, is not shown, and nothing is removed', async () => {
  await keep(open(), 1, 10)
  truncateSync(join(directory, owner.instanceId, '1.age'), 9)
  const files = open()
  expect([files.of(owner.instanceId), names()]).toEqual([[], ['1.age', '1.json']])
  writeFileSync(join(directory, owner.instanceId, '1.json'), '{')
  expect([open().of(owner.instanceId), names()]).toEqual([[], ['1.age', '1.json']])
})

test('goal: a number that is not newer is refused, and what arrived with it is dropped', async () => {
  const files = open()
  await keep(files, 3, 10)
  for (const number of [3, 2]) {
    const arriving = await files.begin(owner)
    await arriving.write(new Uint8Array(5))
    expect(arriving.keep(facts(number))).rejects.toThrow('not newer')
    await arriving.drop()
  }
  expect([files.bytes(null), names()]).toEqual([10, ['3.age', '3.json']])
})

test('goal: a removed snapshot is gone from the list and the disk, also for the next start', async () => {
  const files = open()
  const first = await keep(files, 1, 10)
  const second = await keep(files, 2, 10)
  files.remove(first)
  expect([files.of(owner.instanceId).map(({ number }) => number), names()]).toEqual([[2], ['2.age', '2.json']])
  files.remove(second)
  expect([files.instances(), existsSync(join(directory, owner.instanceId))]).toEqual([[], false])
  expect(open().list('org-1')).toEqual([])
})
