// Text for people: aligned tables, field lists, colour. Pure.

export type Paint = {
  readonly good: (text: string) => string
  readonly bad: (text: string) => string
  readonly weak: (text: string) => string
  readonly strong: (text: string) => string
  /** In the colour that suits a status or verdict word; others stay plain. */
  readonly word: (text: string) => string
}

/** SGR sequences (ECMA-48 8.3.117), or none where there is no terminal to understand them. */
export function paintFor(coloured: boolean): Paint {
  const sgr = (code: number) => (text: string) => (coloured ? `\u001b[${code}m${text}\u001b[0m` : text)
  const [good, bad, waiting, weak, strong] = [sgr(32), sgr(31), sgr(33), sgr(2), sgr(1)]
  const paints = { good, bad, waiting, weak }
  return { good, bad, weak, strong, word: text => paints[WORDS[text] ?? 'waiting'](text) }
}

const WORDS: { readonly [word: string]: 'good' | 'bad' | 'waiting' | 'weak' } = {
  ready: 'good',
  active: 'good',
  running: 'good',
  PASS: 'good',
  failed: 'bad',
  suspended: 'bad',
  revoked: 'bad',
  FAIL: 'bad',
  terminated: 'weak',
}

/** Colour only for a terminal, and never against the wish that NO_COLOR states. */
export function wantsColour({ isTerminal, env }: { isTerminal: boolean; env: { [name: string]: string | undefined } }) {
  return isTerminal && (env.NO_COLOR ?? '') === '' && env.TERM !== 'dumb'
}

/** Columns as wide as their widest cell; the last one as long as it is. Widths are those of the text without colour. */
export function table(head: readonly string[], rows: readonly (readonly string[])[], paint: Paint): string {
  const all = [head, ...rows]
  const widths = head.map((_, column) => Math.max(...all.map(row => visibleLength(row[column] ?? ''))))
  const line = (row: readonly string[]) =>
    row
      .map((cell, column) => pad(cell, widths[column] ?? 0))
      .join('  ')
      .trimEnd()
  return [paint.strong(line(head)), ...rows.map(line)].map(text => `${text}\n`).join('')
}

/** `name: value` lines with the values aligned; a value of several lines goes on under itself. */
export function fields(entries: readonly (readonly [name: string, value: string])[], paint: Paint): string {
  const width = Math.max(...entries.map(([name]) => name.length)) + 2
  return entries
    .map(([name, value]) => {
      const indented = value.replaceAll('\n', `\n${' '.repeat(width)}`)
      return `${paint.weak(`${name}:`.padEnd(width))}${indented}\n`
    })
    .join('')
}

export function dash(value: string | number | null | undefined): string {
  return value === null || value === undefined || value === '' ? '-' : String(value)
}

/** `1.5 GiB`; the exact number is in --json. */
export function bytesText(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  const index = Math.min(units.length - 1, bytes < 1 ? 0 : Math.floor(Math.log2(bytes) / 10))
  const value = bytes / 1024 ** index
  return `${index === 0 ? value : value.toFixed(1)} ${units[index]}`
}

/** ISO time to the second, for tables. */
export function timeText(iso: string | null): string {
  return iso === null ? '-' : `${iso.slice(0, 19)}Z`
}

export function json(document: unknown): string {
  return `${JSON.stringify(document, null, 2)}\n`
}

/** A guest's output for a terminal: what could move the cursor, retitle the window or worse becomes visible instead. */
export function harmless(text: string): string {
  return text.replace(CONTROL, char => `\\x${(char.codePointAt(0) ?? 0).toString(16).padStart(2, '0')}`)
}

/** C0 but tab, LF and a CR that an LF follows; DEL; C1 (ECMA-48 5.2, 5.3). */
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)/g
const SGR = /\u001b\[[0-9;]*m/g

function visibleLength(text: string): number {
  return text.replace(SGR, '').length
}

function pad(cell: string, width: number): string {
  return cell + ' '.repeat(Math.max(0, width - visibleLength(cell)))
}
