// Goal: the firmware's status is read byte by byte as the kernel's header lays it out, and counts of ASIDs as the
// kernel prints them.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { asidUse, parseSnpStatus, snpStatus } from '../../src/host/sev.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-sev-'))
afterAll(() => rmSync(dir, { recursive: true }))

test('goal: each field stands where the header has it', () => {
  const hex = '01 37 01 01 0a000000 05000000 03000000 0400000000001ad8 0300000000001ad3'.replaceAll(' ', '')
  expect(parseSnpStatus(new Uint8Array(Buffer.from(hex, 'hex')))).toEqual({
    apiMajor: 1,
    apiMinor: 55,
    build: 10,
    isInitialized: true,
    isRmpInitialized: true,
    isChipMasked: true,
    guestCount: 3,
    currentTcb: 0xd81a_0000_0000_0004n,
    reportedTcb: 0xd31a_0000_0000_0003n,
  })
  const none = parseSnpStatus(new Uint8Array(32))
  expect([none.isInitialized, none.isRmpInitialized, none.isChipMasked]).toEqual([false, false, false])
  expect(() => parseSnpStatus(new Uint8Array(31))).toThrow('31 bytes')
})

test('goal: no device, and one that is none, are told in words', () => {
  expect(() => snpStatus(join(dir, 'absent'))).toThrow('open ')
  writeFileSync(join(dir, 'file'), '')
  expect(() => snpStatus(join(dir, 'file'))).toThrow('SNP_PLATFORM_STATUS: ENOTTY')
})

test('goal: ASIDs of SEV-ES and SNP, and nothing where the kernel does not count', () => {
  expect(asidUse(dir)).toBeNull()
  writeFileSync(join(dir, 'misc.capacity'), 'sev 410\nsev_es 99\n')
  expect(asidUse(dir)).toBeNull()
  writeFileSync(join(dir, 'misc.current'), 'sev 1\nsev_es 7\n')
  expect(asidUse(dir)).toEqual({ used: 7, total: 99 })
})
