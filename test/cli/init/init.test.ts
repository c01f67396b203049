// Goal: options of `strongroom init` that contradict each other, or that need a person where there is none, are refused
// before anything is looked at.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runHere } from '../../rigs/program.ts'

const directory = mkdtempSync(join(tmpdir(), 'strongroom-init-'))
const file = join(directory, 'strongroom.toml')
writeFileSync(file, '')
afterAll(() => rmSync(directory, { recursive: true }))

const init = (...words: string[]) =>
  runHere(['--config', file, '--state-dir', join(directory, 'state'), 'init', ...words])

test('goal: a host of a fleet gets no organization', async () => {
  const { code, stderr } = await init('--for-fleet', '--organization', 'acme', '--preseed', file)
  expect([code, stderr]).toEqual([2, expect.stringContaining('--for-fleet contradicts --organization')])
})

test('goal: without a terminal there are no questions, and an organization needs a good name', async () => {
  const { code, stderr } = await init()
  expect([code, stderr]).toEqual([2, expect.stringContaining('--preseed')])
  const named = await init('--preseed', file, '--organization', 'Not Good')
  expect([named.code, named.stderr]).toEqual([2, expect.stringContaining('--organization "Not Good"')])
})

test('goal: its requests do not go through a proxy that the environment names', async () => {
  try {
    Object.assign(process.env, { HTTPS_PROXY: 'http://proxy.example:1', no_proxy: '*' })
    await init('--for-fleet', '--organization', 'acme', '--preseed', file)
    expect([process.env.HTTPS_PROXY, process.env.no_proxy]).toEqual([undefined, undefined])
  } finally {
    for (const name of ['HTTPS_PROXY', 'no_proxy']) delete process.env[name]
  }
})
