// Goal: the time of a request tells nothing about the schemas of other keys, and no key evicts another's schemas.

import { expect, test } from 'bun:test'
import { fileURLToPath } from 'node:url'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'
import type { StartSchemaProcess } from '../../../src/inference/schema-check/child.ts'
import { CompiledSchemas } from '../../../src/inference/schema-check/compiled.ts'
import { createSchemaChecks } from '../../../src/inference/schema-check/service.ts'

function setUp() {
  let compilations = 0
  const schemas = new CompiledSchemas(() => {
    compilations += 1
    return () => 'valid'
  })
  /** Whether it had to be compiled. */
  return (owner: string, schema: string, scope = owner) => {
    const before = compilations
    schemas.get({ owner, scope, schema })
    return compilations > before
  }
}

test('goal: a compiled schema is found in its own scope alone', () => {
  const isCompiled = setUp()
  expect([isCompiled('victim', 's'), isCompiled('victim', 's')]).toEqual([true, false])
  expect([isCompiled('host', 's'), isCompiled('host', 's'), isCompiled('victim', 's')]).toEqual([true, false, false])
  // A key with a scope for each request.
  expect([isCompiled('victim', 's', 'r1'), isCompiled('victim', 's', 'r1')]).toEqual([true, false])
  expect(isCompiled('victim', 's', 'r2')).toBe(true)
})

test('goal: a key with many schemas, or many scopes, loses its own oldest', () => {
  const isCompiled = setUp()
  for (const schema of ['a', 'b', 'c'.repeat(262_144)]) isCompiled('victim', schema)
  for (let at = 0; at < 1_000; at += 1) isCompiled('host', `h${at}`, `scope ${at % 2 === 0 ? 0 : at}`)
  for (const schema of ['a', 'b', 'c'.repeat(262_144)]) expect(isCompiled('victim', schema)).toBe(false)
  expect([isCompiled('host', 'h999', 'scope 999'), isCompiled('host', 'h0', 'scope 0')]).toEqual([false, true])
})

/** A child that refuses each schema by the owner and scope of its job. */
const startTeller: StartSchemaProcess = async fd => {
  const path = fileURLToPath(new URL('../../../src/inference/schema-check/wire.ts', import.meta.url))
  const code = `const { readSync, writeSync } = require('node:fs'); const wire = await import(${JSON.stringify(path)})
    const wait = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
    const read = length => { const bytes = Buffer.alloc(length)
      for (let at = 0; at < length; ) try {
        const count = readSync(0, bytes, at, length - at, null); if (count === 0) process.exit(); at += count
      } catch (error) { if (error.code !== 'EAGAIN') throw error; wait() }
      return bytes }
    writeSync(1, wire.encodeReply({ verdict: 'ready' }))
    for (;;) { const { owner, scope } = wire.decodeJob(read(read(4).readUInt32LE()))
      writeSync(1, wire.encodeReply({ verdict: 'refused', message: owner + ' ' + scope })) }`
  const child = Bun.spawn([process.execPath, '-e', code], { stdio: [fd, fd, 'inherit'] })
  return { pid: child.pid, exited: child.exited, kill: () => child.kill('SIGKILL') }
}

test('goal: the child gets the scope of each request, and neither prefix nor digest of its key', async () => {
  const deps = { clock: systemClock, deadlines: createDeadlines(systemClock), log: silentLogger, random: systemRandom }
  const checks = createSchemaChecks({ ...deps, startProcess: startTeller })
  const jobOf = async (key: string, scope?: string) => {
    const by = { key, signal: new AbortController().signal, ...(scope === undefined ? {} : { scope }) }
    const problem = await checks.prepare({ type: 'object' }, by).catch((error: Error) => error.message)
    return /^The schema of response_format (\S+) (\S+)\.$/.exec(String(problem))?.slice(1) ?? [String(problem)]
  }
  try {
    const [victim, again, host, fresh, fresher] = [
      await jobOf('victim00', 'digest 1'),
      await jobOf('victim00', 'digest 1'),
      await jobOf('hosthost', 'digest 2'),
      await jobOf('victim00'),
      await jobOf('victim00'),
    ]
    expect(again).toEqual(victim)
    // Another key shares neither, and a request without a scope shares with none.
    expect(new Set([...victim, ...host, fresh[1], fresher[1]]).size).toBe(6)
    expect([fresh[0], fresher[0]]).toEqual([victim[0], victim[0]])
    expect([...victim, ...host, ...fresh].join(' ')).not.toMatch(/victim|host|digest/)
  } finally {
    checks.close()
  }
}, 60_000)
