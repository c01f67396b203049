import { expect, test } from 'bun:test'
import { inputsOf } from '../../../scripts/rigs/built/once.ts'

// Goal: a changed source is built again before a test starts the program: every kind of input is looked at.
test('what goes into a build', () => {
  const kinds = ['src/main.ts', 'src/client/verify/gateway.ts', 'src/cli/help/pass.md', 'scripts/build/executable.ts']
  expect(inputsOf()).toEqual(
    expect.arrayContaining([...kinds, 'scripts/rigs/built/once.ts', 'package.json', 'bun.lock']),
  )
  expect(inputsOf()).not.toContain('scripts/rigs/until.ts')
  expect(inputsOf('scripts/rigs/**/*.ts')).toContain('scripts/rigs/until.ts')
})
