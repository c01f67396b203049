// The command line equivalent to a button, ready to copy. Pure.

/** Values by option name. Null and false omit an option; a list repeats it. */
export type CommandOptions = Readonly<Record<string, string | number | boolean | null | readonly string[]>>

/** Returns a command of `strongroom` with its words quoted for a POSIX shell. */
export function commandOf(words: readonly string[], options: CommandOptions = {}): string {
  const flags = Object.entries(options).flatMap(([name, value]) => {
    if (value === null || value === false) return []
    if (value === true) return [`--${name}`]
    return [value].flat().flatMap(text => [`--${name}`, quoted(String(text))])
  })
  return ['strongroom', ...words.map(quoted), ...flags].join(' ')
}

/** Quotes a word for a POSIX shell. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`
}
