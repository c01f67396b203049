import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { failure } from '../../scripts/rigs/until.ts'
import { threadCpuMs } from '../../scripts/rigs/withheld.ts'
import { removeForeignTree } from '../../src/linux/tree.ts'

const dir = mkdtempSync(join(tmpdir(), 'tree-test-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))
const timeoutMs = 60_000
setDefaultTimeout(timeoutMs)

test('goal: a directory that somebody filled goes while everybody else is served, and nothing outside goes with it', async () => {
  const outside = join(dir, 'outside')
  mkdirSync(outside)
  writeFileSync(join(outside, 'kept'), '')
  const tree = join(dir, 'tree')
  mkdirSync(tree)
  symlinkSync(outside, join(tree, 'link'))
  Bun.spawnSync(['mkfifo', join(tree, 'fifo')])
  const fill = Bun.spawnSync(['bash', '-c', `cd ${tree}; seq 1500 | xargs touch; mkdir -p $(printf 'd/%.0s' {1..200})`])
  expect(fill.exitCode).toBe(0)
  let longestMs = 0
  let lastMs = performance.now()
  let used = threadCpuMs()
  const timer = setInterval(() => {
    const nowMs = performance.now()
    const cpuMs = threadCpuMs()
    // Without what other processes held this one up.
    longestMs = Math.max(longestMs, Math.min(nowMs - lastMs, cpuMs - used))
    lastMs = nowMs
    used = cpuMs
  }, 5)
  const startMs = performance.now()
  await removeForeignTree(tree, timeoutMs)
  const tookMs = performance.now() - startMs
  clearInterval(timer)
  expect(existsSync(tree)).toBe(false)
  expect(readdirSync(outside)).toEqual(['kept'])
  // Removed synchronously the longest hold-up would be all of it.
  expect(longestMs).toBeLessThan(Math.max(tookMs / 2, 100))
  await removeForeignTree(tree, timeoutMs)
})

test('goal: a removal that takes too long is a Fault, and the next one goes on', async () => {
  const tree = join(dir, 'large')
  mkdirSync(tree)
  Bun.spawnSync(['bash', '-c', `cd ${tree}; seq 1500 | xargs touch`])
  expect(await failure(removeForeignTree(tree, 1))).toMatchObject({ code: 'host.command_timeout' })
  await removeForeignTree(tree, timeoutMs)
  expect(existsSync(tree)).toBe(false)
})
