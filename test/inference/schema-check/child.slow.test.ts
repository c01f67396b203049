// The time that one job of a schema child may take, with a real process that never ends its work.

import { expect, test } from 'bun:test'
import { systemClock } from '../../../src/base/clock.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'
import { type StartSchemaProcess, startSchemaChild } from '../../../src/inference/schema-check/child.ts'
import { encodeReply } from '../../../src/inference/schema-check/wire.ts'

/** Says that it is ready, waits for the first byte of a job, and then computes for ever. */
const startEndless: StartSchemaProcess = async fd => {
  const ready = Buffer.from(encodeReply({ verdict: 'ready' })).toString('hex')
  const program = `
    const { writeSync } = require('node:fs')
    writeSync(1, Buffer.from('${ready}', 'hex'))
    process.stdin.once('data', () => { for (;;); })
  `
  const child = Bun.spawn([process.execPath, '-e', program], { stdio: [fd, fd, 'ignore'] })
  return { pid: child.pid, exited: child.exited, kill: () => child.kill('SIGKILL') }
}

// Goal: a job that computes for ever ends as too slow, after two seconds of processor time and not before, and its
// process is gone.
test('a job without an end', async () => {
  const child = await startSchemaChild(createDeadlines(systemClock), startEndless)
  const startedAtMs = performance.now()
  const failure = await child.run({ owner: 'a', scope: 'a', schema: '{}', contents: [] }).catch(error => error)
  expect(failure).toMatchObject({ failure: 'too_slow' })
  expect(performance.now() - startedAtMs).toBeGreaterThan(1_900)
  expect(child.isAlive()).toBe(false)
})
