// Goal: scopes of VMs are found in every arrangement of control groups, and nothing else is taken for one.

import { afterAll, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { listVmScopes } from '../../src/host/vm-scopes.ts'

const root = mkdtempSync(join(tmpdir(), 'srt-scopes-'))
afterAll(() => rmSync(root, { recursive: true }))

const id = (n: number) => `0000000${n}-0000-4000-8000-000000000000`
function scope(tree: string, unit: string, procs: string | null) {
  const directory = join(root, tree, 'strongroom.slice', unit)
  mkdirSync(directory, { recursive: true })
  if (procs !== null) writeFileSync(join(directory, 'cgroup.procs'), procs)
}

test('goal: no control groups, no scopes', () => {
  expect(listVmScopes(join(root, 'nothing'))).toEqual([])
})

test('goal: QEMU and TPM of a VM, once each, with what runs in them', () => {
  scope('', `strongroom-${id(1)}.scope`, '17\n18\n')
  scope('unified', `strongroom-${id(1)}.scope`, '')
  scope('systemd', `strongroom-${id(2)}-tpm.scope`, '19\n')
  scope('', `strongroom-${id(3)}.scope`, null)
  for (const other of ['strongroom-worker.scope', `strongroom-${id(4)}.service`, 'strongroom-1.scope'])
    scope('', other, '1\n')
  expect(listVmScopes(root)).toEqual([
    { vmId: id(1), unit: `strongroom-${id(1)}.scope`, pids: [17, 18] },
    { vmId: id(2), unit: `strongroom-${id(2)}-tpm.scope`, pids: [19] },
    { vmId: id(3), unit: `strongroom-${id(3)}.scope`, pids: [] },
  ])
})
