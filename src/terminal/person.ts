// A person at the terminal who answers questions. Effects: reads standard input, writes to standard error, so that
// standard output stays the command's result.

/** Input that was typed before its prompt, such as a paste: complete lines, and the beginning of the next. */
const early = { lines: [] as string[], rest: '' }

/**
 * The answer; null at the end of input. Between questions the terminal is as it was, so that Ctrl-C ends the program;
 * within one it does as well.
 */
export async function askPerson(prompt: string): Promise<string | null> {
  const typed = early.lines.shift()
  if (typed !== undefined) {
    process.stderr.write(`${prompt}${typed}\n`)
    return typed
  }
  // Few commands ask, and loading it takes each some milliseconds.
  const { createInterface } = await import('node:readline')
  const lines = createInterface({ input: process.stdin, output: process.stderr, prompt })
  const answer = Promise.withResolvers<string | null>()
  let isAnswered = false
  lines.on('line', line => {
    if (isAnswered) early.lines.push(line)
    isAnswered = true
    answer.resolve(line)
  })
  lines.once('close', () => answer.resolve(null))
  lines.once('SIGINT', () => {
    // Gives the terminal back first.
    lines.close()
    process.stderr.write('\n')
    process.kill(process.pid, 'SIGINT')
  })
  lines.prompt()
  if (early.rest !== '') lines.write(early.rest)
  try {
    return await answer.promise
  } finally {
    early.rest = lines.line
    lines.close()
  }
}
