// Commands by name, each with the code that it alone needs. Pure.

import type { Command, Run } from './command.ts'

export type AddCommand<R extends Run = Run> = (parent: Command<R>) => void

/** Loads one command. `words`: what follows its name on the command line, by which a group loads one of its own. */
export type Load<R extends Run = Run> = (words: readonly string[]) => Promise<AddCommand<R>>

export type Loaders<R extends Run = Run> = Readonly<Record<string, Load<R>>>

/** The commands that these words need. All of them where they name none, or one that shows the others. */
export function namedIn<R extends Run>(loaders: Loaders<R>, words: readonly string[]): readonly string[] {
  const [first = ''] = words
  return Object.hasOwn(loaders, first) && first !== 'help' ? [first] : Object.keys(loaders)
}

/** In the order of the help. */
export function loadNamed<R extends Run>(loaders: Loaders<R>, words: readonly string[]): Promise<AddCommand<R>[]> {
  return Promise.all(namedIn(loaders, words).flatMap(name => loaders[name]?.(words.slice(1)) ?? []))
}
