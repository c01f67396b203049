// Goal: what a canary did is called what it is, with what to do.

import { expect, test } from 'bun:test'
import { canaryCheck } from '../../../src/cli/doctor/canary.plan.ts'

test('goal: a guest that runs passes; one that hangs under KVM leads away from KVM, and one under emulation does not', () => {
  expect(canaryCheck({ kind: 'ran', tookMs: 80 }, 'kvm')).toMatchObject({
    result: 'PASS',
    detail: 'a guest ran under KVM within 80 ms',
  })
  expect(canaryCheck({ kind: 'ran', tookMs: 80 }, 'snp').detail).toContain('the evidence of each VM shows')
  const hung = { kind: 'silent', tookMs: 5000, isGone: true } as const
  expect(canaryCheck(hung, 'kvm')).toMatchObject({
    result: 'FAIL',
    remedy: expect.stringContaining('platform = "tcg"'),
  })
  expect(canaryCheck(hung, 'tcg').remedy).not.toContain('tcg')
  const barred = { kind: 'failed', text: 'bwrap: No permissions to create new namespace' } as const
  expect(canaryCheck(barred, 'tcg').remedy).toContain('user.max_user_namespaces')
  expect(canaryCheck({ ...hung, isGone: false }, 'snp').detail).toEndWith('its QEMU does not even die')
})

test('goal: a refusal is told in the words of QEMU; one that was not started says why', () => {
  expect(canaryCheck({ kind: 'failed', text: 'no accel' }, 'tcg')).toMatchObject({
    result: 'FAIL',
    detail: expect.stringContaining('no accel'),
  })
  expect(canaryCheck({ kind: 'none', reason: 'needs root' }, 'kvm')).toMatchObject({
    result: 'SKIP',
    detail: 'needs root',
  })
})
