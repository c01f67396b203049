// Goal: a host's open request for secrets is kept for root alone, one at a time, and a damaged file opens nothing.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { asideDir, dropPending, keepPending, readPending } from '../../../src/fleet/shared-identity/pending.ts'
import { faultOf } from '../../rigs/fault-of.ts'

const directory = mkdtempSync(join(tmpdir(), 'strongroom-pending-'))
afterAll(() => rmSync(directory, { recursive: true }))

const asked = {
  host_id: 'h1',
  host_name: 'first',
  made_at: '2026-11-20T08:30:00.000Z',
  recipient: `age1pq1${'q'.repeat(40)}`,
}

test('goal: it is read as it was kept, the newest in place of the one before, until it is dropped', () => {
  expect(faultOf(() => readPending(directory))).toMatchObject({ code: 'not_found' })
  keepPending(directory, { asked, identity: 'AGE-SECRET-KEY-PQ-1' })
  expect(readPending(directory)).toEqual({ asked, identity: 'AGE-SECRET-KEY-PQ-1' })
  keepPending(directory, { asked: { ...asked, host_name: 'second' }, identity: 'AGE-SECRET-KEY-PQ-2' })
  expect(readPending(directory)).toMatchObject({ asked: { host_name: 'second' }, identity: 'AGE-SECRET-KEY-PQ-2' })
  const modes = ['share', 'share/request.json'].map(name => statSync(join(directory, name)).mode & 0o777)
  expect(modes).toEqual([0o700, 0o600])
  dropPending(directory)
  dropPending(directory)
  expect(faultOf(() => readPending(directory))).toMatchObject({
    code: 'not_found',
    message: expect.stringContaining('strongroom fleet share request'),
  })
})

test('goal: what is no request is refused, with the name of the file', () => {
  keepPending(directory, { asked, identity: 'x' })
  const file = join(directory, 'share/request.json')
  for (const text of ['{', 'null', '{}', JSON.stringify({ asked, identity: 7 }), JSON.stringify({ identity: 'x' })]) {
    writeFileSync(file, text)
    expect([text, faultOf(() => readPending(directory)).message]).toEqual([text, expect.stringContaining(file)])
  }
  writeFileSync(file, JSON.stringify({ asked: { ...asked, more: 1 }, identity: 'x' }))
  expect(faultOf(() => readPending(directory))).toMatchObject({ code: 'internal' })
})

test('goal: the secrets that are put aside have a directory for each request', () => {
  expect(asideDir('/state', 'ab'.repeat(32))).toBe('/state/share/before-abababababababab')
})
