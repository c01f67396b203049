import { expect, test } from 'bun:test'
import { readChangeSet } from '../../../src/fleet/directory/feed.ts'
import type { Sql } from '../../../src/fleet/postgres.ts'

const at = (version: number) => ({ version, timeline: 1, change: `${version} 1`, fleetId: 'f' })
const changeAt = (version: number) => ({
  ...{ now: 7, fleet: 'f', timeline: 1, trimmed: 0, is_same: true, change: `${version} 1`, at: version },
  ...{ table_name: 'build_reservations', row_key: { vm_id: `vm${version}` }, row: { vm_id: `vm${version}` } },
})

// Goal: a change that another way brought to this host while the read was under way is not applied again. Otherwise a
// reservation that this host had removed by then came back, and stayed.
test('changes that the copy has by the time they are read', async () => {
  let mark = at(4)
  const sql: Sql = {
    query: async () => {
      mark = at(6)
      return [changeAt(5), changeAt(6), changeAt(7)] as never
    },
  }
  const whole = await readChangeSet(sql, () => mark)
  expect(whole).toEqual({
    kind: 'changes',
    changes: [{ table: 'build_reservations', key: { vm_id: 'vm7' }, row: { vm_id: 'vm7' } }],
    to: { version: 7, timeline: 1, change: '7 1' },
    isWhole: true,
  })
  // Also if nothing is left to apply: the copy is ahead of the read, and not of another history.
  mark = at(4)
  const ahead: Sql = {
    query: async () => {
      mark = at(9)
      return [changeAt(5)] as never
    },
  }
  expect(await readChangeSet(ahead, () => mark)).toMatchObject({ kind: 'changes', changes: [] })
})
