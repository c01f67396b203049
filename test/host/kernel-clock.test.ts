// Goal: what the kernel says of its clock is read from where it stands.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { boardClockMs, kernelClock, parseTimex } from '../../src/host/kernel-clock.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-clock-'))
afterAll(() => rmSync(dir, { recursive: true }))

test('goal: synchronised or not, and by how much it may be wrong', () => {
  const timex = new DataView(new ArrayBuffer(208))
  timex.setBigInt64(24, 2_500n, true)
  timex.setInt32(40, 0x2001, true)
  expect(parseTimex(new Uint8Array(timex.buffer), 0)).toEqual({ isSynchronised: true, errorMaxMs: 2.5 })
  expect(parseTimex(new Uint8Array(timex.buffer), 5).isSynchronised).toBe(false)
  timex.setInt32(40, 0x40, true)
  expect(parseTimex(new Uint8Array(timex.buffer), 0).isSynchronised).toBe(false)
})

test('goal: the kernel of this machine answers, and nothing is set', () => {
  const aheadMs = () => Date.now() - performance.now()
  const beforeMs = aheadMs()
  const clock = kernelClock()
  expect(typeof clock?.isSynchronised).toBe('boolean')
  expect(clock?.errorMaxMs).toBeGreaterThanOrEqual(0)
  expect(Math.abs(aheadMs() - beforeMs)).toBeLessThan(5_000)
})

test('goal: the clock of the board, where there is one', () => {
  expect(boardClockMs(join(dir, 'absent'))).toBeNull()
  writeFileSync(join(dir, 'rtc'), '1795351360\n')
  expect(boardClockMs(join(dir, 'rtc'))).toBe(1_795_351_360_000)
  writeFileSync(join(dir, 'rtc'), 'soon\n')
  expect(boardClockMs(join(dir, 'rtc'))).toBeNull()
})
