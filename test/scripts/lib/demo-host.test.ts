import { expect, test } from 'bun:test'
import { run } from '../../../scripts/lib/demo-host.ts'

// Goal: a command that reaches its limit is reported with that limit, not with the exit status that its signal caused.
test('a command that takes too long', async () => {
  const late = run(['sh', '-c', 'trap "echo ended; exit 255" TERM; while :; do sleep 0.05; done'], {}, 300)
  await expect(late).rejects.toThrow(/: stopped at its limit of 0\.3 s\n.*ended/s)
})

// Goal: a command that fails by itself is reported with its exit status and how long it ran.
test('a command that fails', async () => {
  await expect(run(['sh', '-c', 'echo no >&2; exit 3'])).rejects.toThrow(/: exit 3 after \d+\.\d s\nno/)
})
