// Which platform a host may run VMs on, by what it has run before.

import { expect, test } from 'bun:test'
import { Fault } from '../../../src/base/fault.ts'
import { openStore } from '../../../src/store/db.ts'
import { choosePlatform, rememberPlatform } from '../../../src/vm/launch/platform.driver.ts'

const without = { platform: 'kvm', reasons: ['/dev/sev is missing'] } as const
const withSnp = { platform: 'snp', reasons: ['/dev/sev is there'] } as const

function faultOf(work: () => unknown): string {
  try {
    work()
  } catch (error) {
    if (error instanceof Fault && error.code === 'host.unsupported') return error.message
    throw error
  }
  throw new Error('no fault')
}

test('a host that has run snp starts as nothing else by itself', () => {
  // Goal: issue 9: with SNP off after a reboot, tenants' VMs ran unencrypted, silently.
  const { ledger } = openStore(':memory:')
  const start = (pinned: Parameters<typeof choosePlatform>[0], detected: typeof without | typeof withSnp) =>
    rememberPlatform(ledger.db, { ...choosePlatform(pinned, detected), isPinned: pinned !== 'auto' })
  expect(start('auto', without)).toEqual({ kind: 'same' })
  expect(start('auto', withSnp)).toEqual({ kind: 'same' })
  expect(start('auto', withSnp)).toEqual({ kind: 'same' })
  const message = faultOf(() => start('auto', without))
  expect(message).toContain('/dev/sev is missing')
  expect(message).toContain('platform = "kvm"')
  // Refused again, and not only once: what it has run is not forgotten by being refused.
  faultOf(() => start('auto', without))
  expect(start('kvm', without)).toEqual({ kind: 'below_snp' })
  expect(start('tcg', withSnp)).toEqual({ kind: 'below_snp' })
  faultOf(() => start('auto', without))
  expect(start('auto', withSnp)).toEqual({ kind: 'same' })
})

test('a pinned platform that the host lacks is refused, whatever it has run before', () => {
  // Goal: the explicit word allows less protection, never a pretended one.
  faultOf(() => choosePlatform('snp', without))
  expect(choosePlatform('tcg', without).platform).toBe('tcg')
  expect(choosePlatform('kvm', withSnp).platform).toBe('kvm')
})
