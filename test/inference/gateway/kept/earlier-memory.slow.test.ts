// The memory that a gateway takes for small requests that name large earlier responses, as the
// kernel counts it.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { KEY, MODEL } from '../../../../scripts/rigs/gateway/server.ts'
import { postTo } from '../../../../scripts/rigs/gateway/test-gateway.ts'
import { until } from '../../../../scripts/rigs/until.ts'

const mib = 1_048_576
const waitMs = 120_000
/** The gateway's process gives memory back as an installed one does, unlike those of the tests (MEMORY_KEPT). */
const { MIMALLOC_PURGE_DELAY: _kept, ...plainEnv } = process.env
const program = join(import.meta.dir, '../../../rigs/gateway/earlier-program.ts')

/** Most memory that the process ever had, and what it has, in MiB: proc_pid_status(5). */
function memoryMib(pid: number): { readonly most: number; readonly now: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const of = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) / 1024
  return { most: of('VmHWM'), now: of('VmRSS') }
}

/**
 * Four MiB of long texts together with what stands around them, and nearly as many values as a body
 * may have.
 */
const INPUTS = [
  ['long texts', 4, 'y'.repeat(1_040_000)],
  [
    'many values',
    1,
    [
      { type: 'reasoning', junk: Array(120_000).fill([]) },
      { role: 'user', content: 'x' },
    ],
  ],
] as const

// Goal: 32 requests of 120 bytes at once that name kept responses of 4 MiB took 350 MiB; they take
// a bounded part.
test.each(INPUTS)(
  '%s',
  async (_name, count, input) => {
    let isHeld = false
    let held = 0
    const upstream = Bun.serve({
      hostname: '127.0.0.1',
      port: 0,
      idleTimeout: 0,
      maxRequestBodySize: 64 * mib,
      fetch: async request => {
        for await (const _bytes of request.body ?? []) {
        }
        held += 1
        await until('the test lets responses go', waitMs, () => !isHeld)
        const message = { role: 'assistant', content: 'x' }
        return Response.json({ choices: [{ index: 0, finish_reason: 'stop', message }] })
      },
    })
    const child = Bun.spawn([process.execPath, program, `http://127.0.0.1:${upstream.port}/v1`], {
      env: plainEnv,
      stdout: 'pipe',
      stderr: 'inherit',
    })
    await using undo = new AsyncDisposableStack()
    undo.defer(() => upstream.stop(true))
    undo.defer(async () => {
      child.kill('SIGKILL')
      await child.exited
    })
    const { value } = await child.stdout.getReader().read()
    const { url } = JSON.parse(new TextDecoder().decode(value)) as { url: string }
    const post = (body: object) => postTo(`${url}/v1/responses`, KEY, body)
    let previous: string | null = null
    for (let at = 0; at < count; at += 1) {
      const answer: Response = await post({ model: MODEL, input, previous_response_id: previous })
      expect(answer.status).toBe(200)
      previous = ((await answer.json()) as { id: string }).id
    }
    const before = memoryMib(child.pid)
    isHeld = true
    held = 0
    let refused = 0
    const answers = Array.from({ length: 32 }, async () => {
      const { status } = await post({ model: MODEL, input: 'x', previous_response_id: previous })
      if (status !== 200) refused += 1
      return status
    })
    await until('each waits or is refused', waitMs, () => held + refused === 32)
    const after = memoryMib(child.pid)
    isHeld = false
    const statuses = new Set(await Promise.all(answers))
    process.stderr.write(`${JSON.stringify({ before, after, held: 32 - refused, refused })}\n`)
    expect([...statuses].toSorted()).toEqual([200, 429])
    expect(after.most - before.now).toBeLessThan(160)
  },
  waitMs,
)
