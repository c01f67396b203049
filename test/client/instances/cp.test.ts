// Goal: a copy has exactly one side in a verified instance; everything else is refused before anything runs.

import { expect, test } from 'bun:test'
import { expectUsageError, runHere } from '../../rigs/program.ts'

// Goal: each mistake has a message that names it, and exit code 2.
test.each<[string[], string]>([
  [['a', 'b'], 'neither source nor destination is in an instance'],
  [['./work:a', '/tmp/work:b'], 'neither source nor destination is in an instance'],
  [['work:a', 'other:b'], 'both source and destination are in an instance'],
  [['', 'work:'], 'It must be a path, or NAME:PATH.'],
  [['work:a\u0007b', '.'], 'The path has control characters.'],
  [['Work:a', '.'], 'It must be a name of `strongroom ls`'],
  [['-oProxyCommand=x:a', '.'], 'unknown option'],
  [['a b@work:a', '.'], 'The user before the @ is no user name.'],
  [['work:a', '.', '--recursive=x'], 'unknown option'],
  [['work:a', '.'], 'HOME is not set'],
])('cp %j', async (argv, message) => {
  await expectUsageError(['cp', ...argv], message)
})

test('goal: an instance that this machine does not know, or has not verified, is named with what to do', async () => {
  const variables = { HOME: '/nonexistent' }
  const unknown = await runHere(['cp', 'a', 'k3v9x2ma:'], { variables })
  expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('no instance is called k3v9x2ma')])
  const whole = await runHere(['cp', 'k3v9x2ma.acme.agents.example:a', '.'], { variables })
  expect([whole.code, whole.stderr]).toEqual([2, expect.stringContaining('`strongroom up k3v9x2ma --no-login`')])
})
