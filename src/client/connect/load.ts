// `strongroom connect` is two commands: of a gateway by its address, and of an instance by --instance. Effects: loads
// modules.

import type { AddCommand } from '../../terminal/loading.ts'

/** Loads the command that these words mean. `words`: the arguments after `connect`. */
export async function loadConnect(words: readonly string[]): Promise<AddCommand> {
  const end = words.indexOf('--')
  const isOfInstance = words.slice(0, end === -1 ? words.length : end).some(word => /^--instance(?:=|$)/.test(word))
  return isOfInstance ? (await import('./forward.ts')).addForward : (await import('./connect.ts')).addConnect
}
