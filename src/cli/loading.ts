// Commands by name, each with the code that it alone needs. Pure.

import type { Command } from './cli.ts'

export type AddCommand = (parent: Command) => void

/** Loads one command. `words`: what follows its name on the command line, by which a group loads one of its own. */
export type Load = (words: readonly string[]) => Promise<AddCommand>

export type Loaders = Readonly<Record<string, Load>>

/** The commands that these words need. All of them where they name none, or one that shows the others. */
export function namedIn(loaders: Loaders, words: readonly string[]): readonly string[] {
  const [first = ''] = words
  return Object.hasOwn(loaders, first) && first !== 'help' ? [first] : Object.keys(loaders)
}

/** In the order of the help. */
export function loadNamed(loaders: Loaders, words: readonly string[]): Promise<AddCommand[]> {
  return Promise.all(namedIn(loaders, words).flatMap(name => loaders[name]?.(words.slice(1)) ?? []))
}
