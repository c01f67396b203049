// The command line that does what a button does, ready to copy. Pure.

/** By name. Null and false leave an option out; a list repeats it. */
export type CommandOptions = Readonly<Record<string, string | number | boolean | null | readonly string[]>>

/** A command of `strongroom` with its words quoted for a POSIX shell. */
export function commandOf(words: readonly string[], options: CommandOptions = {}): string {
  const flags = Object.entries(options).flatMap(([name, value]) => {
    if (value === null || value === false) return []
    if (value === true) return [`--${name}`]
    return [value].flat().flatMap(text => [`--${name}`, quoted(String(text))])
  })
  return ['strongroom', ...words.map(quoted), ...flags].join(' ')
}

/** For a POSIX shell. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`
}
