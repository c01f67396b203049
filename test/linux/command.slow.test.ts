import { expect, setDefaultTimeout, test } from 'bun:test'
import { failure, until } from '../../scripts/rigs/until.ts'
import { newUuid } from '../../src/base/ids.ts'
import { run } from '../../src/linux/command.ts'
import { listWithUuid } from '../../src/linux/process.ts'

const findByUuid = (wanted: string) => listWithUuid().find(({ uuid }) => uuid === wanted) ?? null

setDefaultTimeout(120_000)

const bounds = { timeoutMs: 60_000, outputBytesMax: 1_000 }

test('goal: a command gets its stdin and gives back both outputs apart', async () => {
  expect(await run(['bash', '-c', 'cat; echo no >&2'], { stdin: 'yes', ...bounds })).toEqual({
    stdout: 'yes',
    stderr: 'no\n',
  })
})

test('goal: a command sees none of our environment but PATH and locale, unless told', async () => {
  const { stdout } = await run(['env'], bounds)
  expect(stdout.split('\n').map(line => line.split('=')[0])).toEqual(['PATH', 'LC_ALL', ''])
  expect((await run(['/usr/bin/env'], { ...bounds, env: { ONE: '1' } })).stdout).toBe('ONE=1\n')
})

test('goal: every way a command fails is a Fault that names it', async () => {
  const cases: [string[], string, string][] = [
    [['bash', '-c', 'echo why >&2; exit 3'], 'host.command_failed', 'bash: exit code 3: why'],
    [['bash', '-c', 'kill -9 $$'], 'host.command_failed', 'bash: SIGKILL: '],
    [['no-such-command'], 'host.command_failed', 'no-such-command: '],
    [['bash', '-c', 'yes'], 'host.command_failed', 'bash: wrote more than 1000 bytes'],
  ]
  for (const [argv, code, message] of cases) {
    const fault = await failure(run(argv, bounds))
    expect(fault.code).toBe(code)
    expect(fault.message).toStartWith(message)
  }
})

test('goal: a command over its time is killed with everything it started', async () => {
  const uuid = newUuid()
  const fault = await failure(
    run(['bash', '-c', 'bash -c "sleep 60; :" -- -uuid "$0" & wait', uuid], { timeoutMs: 300, outputBytesMax: 10 }),
  )
  expect(fault.code).toBe('host.command_timeout')
  await until('the grandchild is gone', 30_000, () => findByUuid(uuid) === null)
})
