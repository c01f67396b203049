// Goal: the metrics of builds show each count under its own name and label.

import { expect, test } from 'bun:test'
import { createBuildMetrics } from '../../src/builds/metrics.ts'
import { openStore } from '../../src/store/db.ts'
import { buildById, moveBuild } from '../../src/store/directory/build.query.ts'
import { addQueuedBuild } from '../rigs/build/queued-build.ts'

test('goal: each sample has its own number', () => {
  const store = openStore(':memory:')
  const { db } = store.directory
  const add = () => addQueuedBuild(store, { slug: null, kind: 'git', nowMs: 1 })
  const [first = ''] = [add(), add(), add()]
  moveBuild(db, { id: first, from: 'queued', to: 'starting' })
  expect(buildById(db, first)?.state).toBe('starting')
  const status = { warm: 4, booting: 5, reserved: 6, wanted: 7 }
  const text = createBuildMetrics({ db, hostId: store.hostId }, {
    vms: { status: () => status },
    reconciler: { counts: () => ({ ok: 8, failed: 9, cancelled: 10 }) },
  } as never).render()
  expect(text.split('\n').filter(line => line !== '' && !line.startsWith('# HELP'))).toEqual([
    '# TYPE strongroom_builds gauge',
    'strongroom_builds{state="queued"} 2',
    'strongroom_builds{state="starting"} 1',
    'strongroom_builds{state="running"} 0',
    '# TYPE strongroom_builds_ended_total counter',
    'strongroom_builds_ended_total{state="ok"} 8',
    'strongroom_builds_ended_total{state="failed"} 9',
    'strongroom_builds_ended_total{state="cancelled"} 10',
    '# TYPE strongroom_build_vms gauge',
    'strongroom_build_vms{state="warm"} 4',
    'strongroom_build_vms{state="booting"} 5',
    'strongroom_build_vms{state="reserved"} 6',
    '# TYPE strongroom_build_vms_wanted gauge',
    'strongroom_build_vms_wanted 7',
    '# TYPE strongroom_build_files_bytes gauge',
    'strongroom_build_files_bytes 0',
  ])
})

test('goal: a host without builds has none in each state', () => {
  const store = openStore(':memory:')
  const none = { warm: 0, booting: 0, reserved: 0, wanted: 0 }
  const text = createBuildMetrics({ db: store.directory.db, hostId: store.hostId }, {
    vms: { status: () => none },
    reconciler: { counts: () => ({ ok: 0, failed: 0, cancelled: 0 }) },
  } as never).render()
  const samples = text.split('\n').filter(line => line !== '' && !line.startsWith('#'))
  expect(samples.map(line => line.split(' ')[1])).toEqual(Array(11).fill('0'))
})
