// Goal: on any machine the facts are collected without a failure, and what is missing says why.

import { expect, test } from 'bun:test'
import { collectMachineReport } from '../../../../src/cli/doctor/machine/report.driver.ts'

// Goal: each fact is there or has a reason; nothing of this machine makes it throw.
test('the facts of this machine', async () => {
  const facts = await collectMachineReport()
  expect(facts.kernel).toMatch(/^\d+\./)
  expect(facts.processor['model name']).toMatch(/\w/)
  const leaves = Object.entries(facts.cpuid)
  expect(leaves.length).toBeGreaterThan(10)
  for (const [leaf, text] of leaves) {
    expect(leaf).toMatch(/^[0-9a-f]{8}$/)
    expect(text).toMatch(/^([0-9a-f]{8} ){3}[0-9a-f]{8}$|\/dev\/cpu\/0\/cpuid/)
  }
  if (Bun.which('qemu-system-x86_64') === '/usr/bin/qemu-system-x86_64')
    expect(facts.packages).toContainEqual(expect.stringMatching(/^qemu-system-x86 \S+$/))
  for (const text of Object.values(facts.devices)) expect(text).toMatch(/^mode [0-7]+, uid \d+, gid \d+$|ENOENT/)
  expect(typeof facts.firmware === 'object' || String(facts.firmware).length > 5).toBe(true)
})
