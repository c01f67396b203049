// Output of scripts: results on standard output, everything else on standard error where a caller wants that.

/** Writes one line of text. */
export type Print = (line: string) => void

export const print: Print = line => void process.stdout.write(`${line}\n`)

export const printError: Print = line => void process.stderr.write(`${line}\n`)

/** `12.3 s`, right-aligned so that lines of steps form a column. */
export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1).padStart(6)} s`
}

/** Plain text table: the first row is the head; columns named in `right` are right-aligned. */
export function table(rows: readonly (readonly string[])[], right: readonly number[] = []): string[] {
  const widths = rows.reduce<number[]>((known, row) => row.map((cell, i) => Math.max(known[i] ?? 0, cell.length)), [])
  return rows.map(row =>
    row
      .map((cell, i) => (right.includes(i) ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0)))
      .join('  ')
      .trimEnd(),
  )
}
