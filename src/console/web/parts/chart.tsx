// A line chart over time with uPlot, which is loaded with the first chart. Effects: draws into its element.

import { useSignal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import type uPlot from 'uplot'
import { theme } from '../core/theme.ts'

export type Series = { readonly name: string; readonly values: readonly (number | null)[] }

const heightPixels = 180
/** Names of the colours in style/tokens.css, in the order of the series. */
const COLOURS = ['--line-1', '--line-2', '--line-3', '--line-4'] as const

/** Draws a chart. `times`: seconds since 1970. `summary`: the content in words, for screen readers. */
export function Chart({
  title,
  times,
  series,
  format,
  summary,
}: {
  title: string
  times: readonly number[]
  series: readonly Series[]
  format: (value: number) => string
  summary: string
}) {
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const isMissing = useSignal(false)
  const chosen = theme.value
  const names = series.map(({ name }) => name).join('\n')
  const data: uPlot.AlignedData = [[...times], ...series.map(({ values }) => [...values])]
  const latest = useRef(data)
  latest.current = data

  useEffect(() => {
    const { current } = place
    if (current === null) return
    let isGone = false
    let observer: ResizeObserver | undefined
    const draw = async () => {
      const loaded = await import('uplot').catch(() => null)
      if (isGone) return
      isMissing.value = loaded === null
      if (loaded === null) return
      const { default: Plot } = loaded
      const options = optionsOf({ element: current, names: names.split('\n'), format })
      plot.current = new Plot(options, latest.current, current)
      observer = new ResizeObserver(() => plot.current?.setSize({ width: current.clientWidth, height: heightPixels }))
      observer.observe(current)
    }
    void draw()
    return () => {
      isGone = true
      observer?.disconnect()
      plot.current?.destroy()
      plot.current = null
    }
  }, [names, chosen])
  useEffect(() => plot.current?.setData(data), [times.at(-1), times.length])

  return (
    <figure class="chart">
      <figcaption>
        <span>{title}</span>
        <span class="chart-summary">{summary}</span>
        {isMissing.value && <span class="chart-summary">The chart could not be loaded. Reload the page.</span>}
      </figcaption>
      {series.length > 1 && (
        <ul class="legend">
          {series.map(({ name }, at) => (
            <li key={name} class={`line-${(at % COLOURS.length) + 1}`}>
              {name}
            </li>
          ))}
        </ul>
      )}
      <div ref={place} class="plot" role="img" aria-label={`${title}: ${summary}`} />
    </figure>
  )
}

/** Formats the time of day, UTC. */
function clockText(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(11, 19)
}

function optionsOf({
  element,
  names,
  format,
}: {
  readonly element: HTMLElement
  readonly names: readonly string[]
  readonly format: (value: number) => string
}): uPlot.Options {
  const style = getComputedStyle(element)
  const colour = (name: string) => style.getPropertyValue(name).trim()
  const axis = {
    stroke: colour('--muted'),
    grid: { stroke: colour('--border'), width: 1 },
    ticks: { show: false },
    font: `11px ${style.fontFamily}`,
  }
  return {
    width: element.clientWidth,
    height: heightPixels,
    legend: { show: false },
    cursor: { show: false },
    axes: [
      { ...axis, space: 72, values: (_, ticks) => ticks.map(clockText) },
      { ...axis, size: 64, values: (_, ticks) => ticks.map(format) },
    ],
    scales: { y: { range: (_, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    series: [
      {},
      ...names.map((label, at) => ({
        label,
        stroke: colour(COLOURS[at % COLOURS.length] ?? COLOURS[0]),
        width: 2,
        points: { size: 4 },
      })),
    ],
  }
}
