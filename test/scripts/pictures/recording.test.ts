import { describe, expect, test } from 'bun:test'
import { recordingSvg } from '../../../scripts/pictures/recording.ts'

const options = { command: './demo', rows: 2, columns: 12, playSeconds: 10 }

describe('a recording', () => {
  const svg = recordingSvg(
    [
      { text: 'a <b> & "c"', atMs: 1_000 },
      { text: 'a line that is too long', atMs: 2_000 },
      { text: 'late', atMs: 602_000 },
    ],
    options,
  )

  // Goal: what a command printed is text, never markup of the page that shows it.
  test('holds its lines as text', () => {
    expect(svg).toContain('>$ ./demo</text>')
    expect(svg).toContain('>a &lt;b&gt; &amp; &quot;c&quot;</text>')
    expect(svg).toContain('>a line that…</text>')
    expect(svg).not.toContain('<b>')
  })

  // Goal: lines appear in their order within the time of the picture, and ten minutes do not use it up.
  test('plays in order, within its time', () => {
    const delays = [...svg.matchAll(/animation-delay:([\d.]+)s/g)].map(([, delay]) => Number(delay))
    expect(delays).toHaveLength(4)
    expect(delays).toEqual(delays.toSorted((a, b) => a - b))
    expect(delays[0]).toBe(0)
    expect(delays[1]).toBeGreaterThan(0.2)
    expect(delays.at(-1)).toBeLessThanOrEqual(9)
  })

  // Goal: at the end the last two of four lines are on the screen.
  test('scrolls by what does not fit', () => {
    expect(svg).toMatch(/100%\{transform:translateY\(-36px\)\}/)
  })

  // Goal: without lines there is a picture of the command alone.
  test('of nothing', () => {
    expect(recordingSvg([], options)).toContain('>$ ./demo</text>')
  })
})
