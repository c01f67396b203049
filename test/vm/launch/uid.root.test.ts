// The user id of a VM while processes that have ended wait for their parent: they count for its limit of tasks.

import { afterAll, expect, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { firstOwnUid } from '../../../scripts/rigs/launch/own-uids.ts'
import { needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { newUuid } from '../../../src/base/ids.ts'
import { readProc } from '../../../src/linux/stat.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertVm, vmById } from '../../../src/store/ledger/vm.query.ts'
import { reserveUid } from '../../../src/vm/launch/uid.driver.ts'

const timeoutMs = 60_000
const first = firstOwnUid()

if (needsRoot(import.meta.path)) {
  const store = openStore(':memory:')
  const parents: Bun.Subprocess[] = []
  afterAll(() => {
    for (const parent of parents) parent.kill('SIGKILL')
    store.close()
  })
  const db = store.ledger.db
  const newVmId = () => {
    const id = newUuid()
    insertVm(db, { id, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs: 1 })
    return vmById(db, id)?.id ?? ''
  }
  const zombiesOf = (uid: number) =>
    readdirSync('/proc').filter(name => {
      const status = /^\d+$/.test(name) ? (readProc(Number(name), 'status') ?? '') : ''
      return /^State:\s+Z/m.test(status) && new RegExp(`^Uid:\\s+${uid}\\s`, 'm').test(status)
    }).length
  /** Four processes of this user that have ended, and a parent that does not look after them. */
  const neglected = async (uid: number) => {
    const script = 'for i in 1 2 3 4; do setpriv --reuid="$1" --clear-groups true & done; exec sleep 1000'
    const parent = Bun.spawn(['sh', '-euc', script, 'sh', String(uid)], { stdio: ['ignore', 'ignore', 'ignore'] })
    parents.push(parent)
    await until('they are zombies', timeoutMs, () => zombiesOf(uid) === 4)
    return parent
  }
  const deps = (min: number, max: number) => ({
    db,
    random: (count: number) => new Uint8Array(count),
    range: { min, max },
  })

  test(
    'goal: a new VM gets no id of processes that are not reaped',
    async () => {
      const parent = await neglected(first)
      expect(await reserveUid(deps(first, first + 1), { vmId: newVmId(), nowMs: 1 })).toBe(first + 1)
      parent.kill('SIGKILL')
      await parent.exited
    },
    timeoutMs,
  )

  test(
    'goal: a VM that is started again waits until those of its last start are reaped',
    async () => {
      const vmId = newVmId()
      const uid = await reserveUid(deps(first + 2, first + 3), { vmId, nowMs: 1 })
      const parent = await neglected(uid)
      const again = reserveUid(deps(first + 2, first + 3), { vmId, nowMs: 2 })
      setTimeout(() => parent.kill('SIGKILL'), 300)
      expect([await again, zombiesOf(uid)]).toEqual([uid, 0])
      await parent.exited
    },
    timeoutMs,
  )

  test(
    'goal: a parent that never reaps does not keep a VM from its start',
    async () => {
      const vmId = newVmId()
      const uid = await reserveUid(deps(first + 4, first + 5), { vmId, nowMs: 1 })
      const parent = await neglected(uid)
      expect(await reserveUid(deps(first + 4, first + 5), { vmId, nowMs: 2 })).toBe(uid)
      parent.kill('SIGKILL')
      await parent.exited
    },
    timeoutMs,
  )
}
