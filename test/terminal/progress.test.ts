// Goal: progress is a line per change without a terminal, one moving line with it, and nothing in a document.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { createProgress } from '../../src/terminal/progress.ts'
import { paintFor } from '../../src/terminal/render.ts'

async function printed(options: { isTerminal?: boolean; isQuiet?: boolean; isFailed?: boolean }): Promise<string> {
  let text = ''
  const { isTerminal = false, isQuiet = false, isFailed = false } = options
  const stderr = async (more: string) => {
    text += more
  }
  const io = { stderr, stderrIsTerminal: isTerminal, env: {} }
  const { monotonicMs } = createManualClock()
  const progress = createProgress({ io, paint: paintFor(false), isQuiet, monotonicMs })
  await progress.phase('create', 'work')
  await progress.note('a remark')
  await progress.phase('boot', 'x is provisioning')
  await progress.stop(isFailed)
  await progress.stop(!isFailed)
  return text
}

test('goal: each form shows phases, remarks and the end', async () => {
  expect(await printed({})).toBe('create: work\na remark\nboot: x is provisioning\n')
  expect(await printed({ isQuiet: true })).toBe('')
  const moving = await printed({ isTerminal: true })
  expect(moving).toContain('\r\u001b[Ka remark\n')
  expect([moving.split('✓').length, moving.split('✗').length]).toEqual([3, 1])
  const failed = await printed({ isTerminal: true, isFailed: true })
  expect(failed).toMatch(/✓ create[^✓✗]*✗ boot +0\.0 s\n$/)
})
