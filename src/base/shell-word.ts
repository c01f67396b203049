// One word of a command line that is shown to people. Pure.

/**
 * Returns a word for a POSIX shell (XCU 2.2) or zsh: plain if no character is special, otherwise in single quotes. zsh
 * replaces `=NAME` by the path of a command at the start of a word, and after a colon of an assignment.
 */
export function shellWord(text: string): string {
  return /^(?!=|.*:=)[A-Za-z0-9_./:@%+,=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
