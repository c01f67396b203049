// The command line that does what a button does, ready to copy. Pure.

/** A command of `strongroom` with its words quoted for a POSIX shell. Null and false leave an option out. */
export function commandOf(
  words: readonly string[],
  options: Readonly<Record<string, string | number | boolean | null>> = {},
): string {
  const flags = Object.entries(options).flatMap(([name, value]) => {
    if (value === null || value === false) return []
    return value === true ? [`--${name}`] : [`--${name}`, quoted(String(value))]
  })
  return ['strongroom', ...words.map(quoted), ...flags].join(' ')
}

/** For a POSIX shell. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`
}
