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

test('goal: that a VM has signed a snapshot which was not kept is known until one is kept, also after a start', async () => {
  const first = await open().begin(owner)
  first.noteSigned()
  // Killed before it kept it.
  const killed = open()
  expect([killed.isLost(owner.instanceId), killed.isLost(other.instanceId), names()]).toEqual([true, false, ['signed']])
  await first.drop()
  const failed = await killed.begin(owner)
  await failed.drop()
  expect(open().isLost(owner.instanceId)).toBe(true)
  await keep(killed, 1, 10)
  expect([killed.isLost(owner.instanceId), names()]).toEqual([false, ['1.age', '1.json']])
  expect(open().isLost(owner.instanceId)).toBe(false)
  // It goes with the record of its instance.
  const last = await killed.begin(other)
  last.noteSigned()
  await last.drop()
  expect(killed.instances()).toContain(other.instanceId)
  killed.removeAll(other.instanceId)
  expect([killed.isLost(other.instanceId), existsSync(join(directory, other.instanceId))]).toEqual([false, false])
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

const changeRecord = (number: number, change: (record: object) => string) => {
  const path = join(directory, owner.instanceId, `${number}.json`)
  writeFileSync(path, change(JSON.parse(readFileSync(path, 'utf8'))))
}

// Goal: what cannot be read hides nothing else and is removed by nothing else.
test.each([
  ['a ciphertext of another size', () => truncateSync(join(directory, owner.instanceId, '2.age'), 9), 9],
  ['a ciphertext that is missing', () => rmSync(join(directory, owner.instanceId, '2.age')), 0],
  ['a cut record', () => changeRecord(2, () => '{'), 20],
  ['a record of another instance', () => changeRecord(2, record => JSON.stringify({ ...record, ...other })), 20],
])('goal: %s is not shown, counts, and stays; the others of its instance are shown', async (_, damage, bytes) => {
  const first = open()
  for (const number of [1, 2, 3]) await keep(first, number, number * 10)
  damage()
  const before = names()
  const files = open()
  expect([files.of(owner.instanceId).map(({ number }) => number), files.unreadable()]).toEqual([
    [1, 3],
    [owner.instanceId],
  ])
  expect([files.bytes(null), files.bytes('org-1'), names()]).toEqual([40 + bytes, 40, before])
  for (const record of files.of(owner.instanceId)) files.remove(record)
  await (await files.begin(owner)).drop()
  const left = before.filter(name => name.startsWith('2.'))
  expect([names(), files.instances(), files.bytes(null)]).toEqual([left, [owner.instanceId], bytes])
  // Its number is not taken again.
  const again = await files.begin(owner)
  await expect(again.keep(facts(2))).rejects.toThrow('not newer')
  await again.drop()
  files.removeAll(owner.instanceId)
  expect([existsSync(join(directory, owner.instanceId)), files.instances(), files.bytes(null)]).toEqual([false, [], 0])
})

test('goal: a record with a field of a later release is read', async () => {
  await keep(open(), 1, 10)
  changeRecord(1, record => JSON.stringify({ ...record, later: true }))
  expect(open().of(owner.instanceId).length).toBe(1)
})

test('goal: what is not of an instance stays, as in a file system that is mounted here', () => {
  mkdirSync(join(directory, 'lost+found/x'), { recursive: true })
  expect(open().instances()).toEqual([])
  expect(existsSync(join(directory, 'lost+found/x'))).toBeTrue()
})

test('goal: a record that cannot be written leaves no ciphertext and no bytes', async () => {
  const files = open()
  await keep(files, 1, 10)
  const arriving = await files.begin(owner)
  await arriving.write(new Uint8Array(20))
  const inTheWay = join(directory, owner.instanceId, '2.json')
  mkdirSync(join(inTheWay, 'x'), { recursive: true })
  await expect(arriving.keep(facts(2))).rejects.toThrow()
  rmSync(inTheWay, { recursive: true })
  await arriving.drop()
  expect([names(), files.bytes(null)]).toEqual([['1.age', '1.json'], 10])
})

test('goal: bytes stay right over every way of an end', async () => {
  const files = open()
  const first = await keep(files, 1, 10)
  await keep(files, 1, 7, other)
  const dropped = await files.begin(owner)
  await dropped.write(new Uint8Array(5))
  await dropped.write(new Uint8Array(6))
  expect([files.bytes(null), files.bytes('org-1'), files.bytes('org-1', owner.instanceId)]).toEqual([28, 21, 0])
  await dropped.drop()
  files.remove(first)
  expect([files.bytes(null), files.bytes('org-1'), files.bytes(null, other.instanceId)]).toEqual([7, 0, 0])
  expect(open().bytes(null)).toBe(7)
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
