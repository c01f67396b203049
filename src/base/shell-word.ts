// One word of a command line that is shown to people. Pure.

/** As a POSIX shell reads it (XCU 2.2): plain where nothing in it means anything to the shell, else in single quotes. */
export function shellWord(text: string): string {
  return /^[A-Za-z0-9_./:@%+,=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
