// Commands are loaded by name.

import { expect, test } from 'bun:test'
import { silentProgram } from '../../scripts/package/command-tree.ts'
import { commandNames, loadCommands, namedCommands } from '../../src/cli/commands.ts'
import { runHere } from '../rigs/program.ts'

// Goal: a command line loads the command that it names, which is there as in the whole program.
test.each(commandNames.filter(name => name !== 'help'))('%s is added by its loader, alone', async name => {
  const alone = silentProgram(await loadCommands([name]))
  expect(alone.commands.map(command => command.name())).toEqual([name])
  expect(silentProgram().commands.map(command => command.name())).toContain(name)
})

// Goal: whoever shows or guesses commands knows all of them.
test.each([
  [['verify', 'report'], ['verify']],
  [['version', '--json'], ['version']],
  [['help', 'verify'], commandNames],
  [['--json', 'status'], commandNames],
  [['verfy'], commandNames],
  [['constructor'], commandNames],
  [[], commandNames],
] as const)('%j loads what it names', (argv, names) => {
  expect(namedCommands(argv)).toEqual(names)
})

// Goal: so it is below `verify`, where evidence of one kind needs no code of the others; the help knows all of them.
test('the commands of verify are loaded by name', async () => {
  const namesBelow = async (...argv: string[]) =>
    silentProgram(await loadCommands(argv)).commands[0]?.commands.map(command => command.name())
  const all = (await namesBelow('verify')) ?? []
  expect(all.length).toBeGreaterThan(8)
  expect(await namesBelow('verify', '--help')).toEqual(all)
  for (const name of all) expect(await namesBelow('verify', name, '--json')).toEqual([name])
  const { code, stderr } = await runHere(['verify', 'reprot'])
  expect([code, stderr]).toEqual([2, expect.stringContaining('Did you mean report?')])
})

// Goal: a misspelt name is still corrected.
test('a command that is misspelt is answered with the one that was meant', async () => {
  const { code, stderr } = await runHere(['verfy'])
  expect([code, stderr]).toEqual([2, expect.stringContaining('Did you mean verify?')])
})
