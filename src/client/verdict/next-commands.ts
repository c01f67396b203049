// Commands to try after FAIL: the given command line with the missing options. Pure.
//
// A host chooses names of upstreams, and a person pastes these lines into a shell. Each word is quoted. A command is
// left out if it is too long, or has a character that a terminal would not show unchanged.

import { harmlessLine } from '../../base/harmless.ts'
import { shellWord } from '../../base/shell-word.ts'
import type { Failure } from '../../terminal/verdict-exit.ts'

/** Options with their values, such as `['--allow-outside', 'far=https://far.example']`. */
export type Added = readonly string[]

/** Longest command that is printed; a shell accepts far longer ones. */
export const commandCharsMax = 8_192

/** Returns the words of a command line without --json and --verbose, with `added` before what a `--` separates. */
export function commandWords(argv: readonly string[], added: Added = []): string[] {
  const end = argv.indexOf('--')
  const own = (end === -1 ? argv : argv.slice(0, end)).filter(word => word !== '--json' && word !== '--verbose')
  return ['strongroom', ...own, ...added, ...(end === -1 ? [] : argv.slice(end))]
}

/**
 * Returns the command as text; null if it cannot be printed completely and unchanged. `file`: where its output goes.
 */
export function commandText(words: readonly string[], file?: string): string | null {
  const text = words.map(shellWord).join(' ') + (file === undefined ? '' : ` > ${shellWord(file)}`)
  const isShownAsItIs = harmlessLine(text) === text && !/\s{2}/.test(text)
  return isShownAsItIs && text.length <= commandCharsMax ? text : null
}

export type NextCommands = {
  readonly argv: readonly string[]
  /** Options that complete the input, such as the authority of a certificate. */
  readonly missing?: Added
  /** Commands that create the files in `expected`; null for each that cannot be printed. */
  readonly prepared?: readonly (string | null)[]
  /** Options that state what is expected or accepted. They help if the evidence is genuine. */
  readonly expected?: Added
}

/** Returns complete commands in the order in which they help. The last one prints every check. */
export function nextCommands(next: NextCommands, failure: Failure | null): string[] {
  const { argv, missing = [], prepared = [], expected = [] } = next
  const isGenuine = failure !== 'evidence'
  const added = [...missing, ...(isGenuine ? expected : [])]
  const again = added.length > 0 || failure === 'connection' ? commandText(commandWords(argv, added)) : null
  const found = [
    ...(again === null ? [] : [...(isGenuine ? prepared : []), again]),
    // For the operator, who looks for the reason.
    ...(isGenuine ? [] : [commandText(commandWords(argv, ['--json']), 'verdict.json')]),
    commandText(commandWords(argv, ['--verbose'])) ?? 'strongroom help pass',
  ]
  return found.filter(text => text !== null)
}

/** Reports whether the command line has this option, with its value in the same word or in the next. */
export function hasOption(argv: readonly string[], option: string): boolean {
  const end = argv.indexOf('--')
  return argv.slice(0, end === -1 ? argv.length : end).some(word => word === option || word.startsWith(`${option}=`))
}
