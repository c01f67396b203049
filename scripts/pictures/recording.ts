// A recording of a terminal as one SVG file, which pages show without a script. Pure.

export type RecordedLine = {
  readonly text: string
  /** Since the command started. */
  readonly atMs: number
}

type RecordingOptions = {
  /** The command line that the recording begins with. */
  readonly command: string
  /** Lines that are visible at once; earlier ones scroll away. */
  readonly rows: number
  /** Characters of a line; longer ones are cut, with an ellipsis. */
  readonly columns: number
  /** How long the picture plays, whatever the command took. */
  readonly playSeconds: number
}

const rowPx = 18
const charPx = 7.8
const paddingPx = 14
const barPx = 26
/** A wait of minutes becomes no more than this part of the whole. */
const longestWaitPart = 0.05

/**
 * Lines appear in the order and rhythm in which they came, faster. With reduced motion a reader sees the end alone.
 */
export function recordingSvg(lines: readonly RecordedLine[], options: RecordingOptions): string {
  const { command, rows, columns, playSeconds } = options
  const shown = [{ text: `$ ${command}`, atMs: 0 }, ...lines]
  const starts = startsOf(shown, playSeconds)
  const [width, height] = [columns * charPx + 2 * paddingPx, rows * rowPx + 2 * paddingPx + barPx]
  const texts = shown.map(({ text }, at) => {
    const y = barPx + paddingPx + (at + 1) * rowPx - 5
    const delay = `animation-delay:${starts[at]?.toFixed(2)}s`
    return `<text x="${paddingPx}" y="${y}" style="${delay}"${at === 0 ? ' class="command"' : ''}>${escaped(cut(text, columns))}</text>`
  })
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(command)}">`,
    '<style>',
    "text{font:13px 'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d6deeb;white-space:pre;opacity:0;animation:show 0s forwards}",
    'text.command{fill:#7fdbca;font-weight:bold}',
    '@keyframes show{to{opacity:1}}',
    `#lines{animation:scroll ${playSeconds}s forwards}`,
    scrollFrames(starts, rows, playSeconds),
    '@media (prefers-reduced-motion:reduce){text{animation:none;opacity:1}#lines{animation-duration:0s}}',
    '</style>',
    `<clipPath id="screen"><rect y="${barPx}" width="${width}" height="${height - barPx}"/></clipPath>`,
    `<rect width="${width}" height="${height}" rx="8" fill="#0b1622"/>`,
    ...['#ff5f57', '#febc2e', '#28c840'].map(
      (fill, at) => `<circle cx="${16 + at * 18}" cy="14" r="5" fill="${fill}"/>`,
    ),
    `<g clip-path="url(#screen)"><g id="lines">`,
    ...texts,
    '</g></g>',
    '</svg>',
    '',
  ].join('\n')
}

/** Seconds at which each line appears: in proportion to its wait, and no wait longer than its part of the whole. */
function startsOf(lines: readonly RecordedLine[], playSeconds: number): number[] {
  const waits = lines.map(({ atMs }, at) => Math.max(0, atMs - (lines[at - 1]?.atMs ?? 0)))
  const longest = waits.reduce((sum, wait) => sum + wait, 0) * longestWaitPart
  const bounded = waits.map(wait => Math.min(wait, longest))
  const total = bounded.reduce((sum, wait) => sum + wait, 0) || 1
  let passed = 0
  return bounded.map(wait => {
    passed += wait
    return (passed / total) * playSeconds * 0.9
  })
}

/** Moves the text up whenever a line appears below the last row, once for lines that appear together. */
function scrollFrames(starts: readonly number[], rows: number, playSeconds: number): string {
  const shifts = starts.map((start, at) => [((start / playSeconds) * 100).toFixed(2), (at - rows + 1) * rowPx] as const)
  const moves = [...new Map(shifts.slice(rows))].map(([at, px]) => `${at}%{transform:translateY(-${px}px)}`)
  const last = Math.max(0, starts.length - rows) * rowPx
  const held = moves.map(move => move.replace('{', '{animation-timing-function:step-end;'))
  return `@keyframes scroll{0%{transform:translateY(0);animation-timing-function:step-end}${held.join('')}100%{transform:translateY(-${last}px)}}`
}

function cut(text: string, columns: number): string {
  return text.length <= columns ? text : `${text.slice(0, columns - 1)}…`
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}
