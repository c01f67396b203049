// Files of a VM that the driver leaves on this host: real files and a real ledger, no processes.

import { afterAll, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { newUuid } from '../../../src/base/ids.ts'
import { openStore } from '../../../src/store/db.ts'
import { recordResource, resourcesOf } from '../../../src/store/ledger/resource.query.ts'
import { insertVm, vmById } from '../../../src/store/ledger/vm.query.ts'
import type { Vm } from '../../../src/store/ledger/vm.table.ts'
import { vmPaths } from '../../../src/vm/launch.plan.ts'
import { VmDriver, type VmDriverDeps } from '../../../src/vm/machine/vm.driver.ts'

const stateDir = mkdtempSync(join(tmpdir(), 'srt-driver-'))
afterAll(() => rmSync(stateDir, { recursive: true, force: true }))

/** A VM with every file that launching and running it makes. */
function leftVm() {
  const { ledger, hostId } = openStore(':memory:')
  const { db } = ledger
  const id = newUuid()
  insertVm(db, { id, hostId, image: 'builder', vcpus: 1, memoryMib: 512, scratchGib: 1, exchangeGib: 1, nowMs: 1 })
  const paths = vmPaths(stateDir, id)
  mkdirSync(paths.directory, { recursive: true })
  recordResource(db, { vmId: id, kind: 'directory', name: paths.directory, nowMs: 1 })
  recordResource(db, { vmId: id, kind: 'disk', name: paths.scratch, nowMs: 1 })
  for (const path of Object.values(paths)) if (path !== paths.directory) writeFileSync(path, 'left')
  // Releasing files needs nothing else.
  const driver = new VmDriver({ db, stateDir } as VmDriverDeps)
  return { db, paths, driver, vm: vmById(db, id) as Vm }
}

test('a failed VM keeps the logs for its operator, and none of its disks', async () => {
  // Goal: source and result of a build do not outlive the VM on disk, nor do they hold room that is no longer counted.
  const { db, paths, driver, vm } = leftVm()
  await driver.release(vm, { keepDirectory: true })
  expect(readdirSync(paths.directory).sort()).toEqual([paths.qemuLog, paths.tpmLog].map(path => basename(path)).sort())
  expect(resourcesOf(db, vm.id).map(({ kind }) => kind)).toEqual(['directory'])
  // A release that was cut short is done again.
  await driver.release(vm, { keepDirectory: true })
  expect(existsSync(paths.qemuLog)).toBe(true)
})

test('a VM that is gone leaves nothing', async () => {
  // Goal: its directory goes with all that is in it, and the ledger has no row of it.
  const { db, paths, driver, vm } = leftVm()
  await driver.release(vm, { keepDirectory: false })
  expect([existsSync(paths.directory), resourcesOf(db, vm.id)]).toEqual([false, []])
})
