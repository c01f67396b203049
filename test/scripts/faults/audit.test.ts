import { Database } from 'bun:sqlite'
import { expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { databaseFindings, filesOf, strayFiles } from '../../../scripts/faults/audit.ts'
import { openStore } from '../../../src/store/db.ts'

/** A state directory with a database in which nothing has happened. */
function stateDirectory(): Disposable & { readonly stateDir: string; readonly db: Database } {
  const stateDir = mkdtempSync(join(tmpdir(), 'srt-audit-'))
  openStore(join(stateDir, 'strongroom.db')).close()
  const db = new Database(join(stateDir, 'strongroom.db'))
  return {
    stateDir,
    db,
    [Symbol.dispose]: () => {
      db.close()
      rmSync(stateDir, { recursive: true, force: true })
    },
  }
}

test('Goal: the audit of the records finds what is double, dangling or left, and nothing in a sound database', () => {
  using state = stateDirectory()
  expect(databaseFindings(state)).toEqual([])
  const event = "INSERT INTO events (at_ms, kind, subject, detail) VALUES (1, 'vm.gone', 'vm-1', '{}')"
  state.db.run(event)
  expect(databaseFindings(state)).toEqual([])
  state.db.run(event)
  expect(databaseFindings(state)).toEqual(['an event is on record twice: vm.gone vm-1'])
  state.db.run('PRAGMA foreign_keys = OFF')
  const resource = "INSERT INTO resources (vm_id, kind, name, created_at_ms) VALUES ('vm-1', 'tap', 'sr1', 1)"
  state.db.run(resource)
  expect(databaseFindings(state)).toContain('a row of resources refers to none')
  const columns = 'id, host_id, image, desired, state, vcpus, memory_mib, created_at_ms, changed_at_ms'
  state.db.run(`INSERT INTO vms (${columns}) VALUES ('vm-1', 'h', 'instance', 'gone', 'gone', 1, 512, 1, 1)`)
  expect(databaseFindings(state)).toContain('a VM that is gone has a resource: tap sr1')
})

test('Goal: a file that no undisturbed run leaves is found, whatever VM it is of', () => {
  using state = stateDirectory()
  const id = '0f8fad5b-d9cb-469f-a165-70867728950e'
  mkdirSync(join(state.stateDir, 'builds', id), { recursive: true })
  writeFileSync(join(state.stateDir, 'builds', id, 'events.jsonl'), '')
  const usual = filesOf(state)
  expect(usual).toContain('builds/ID/events.jsonl')
  writeFileSync(join(state.stateDir, 'builds', id, 'result.tar.gz.tmp'), '')
  expect(strayFiles(state, usual)).toEqual(['the file builds/ID/result.tar.gz.tmp was left'])
})
