// A benchmark's report, as text and as JSON. Pure.

import type { MachineFacts } from '../lib/machine.ts'
import { table } from '../lib/terminal.ts'

/** Where a figure should be. */
export type Aim = { readonly atMost: number } | { readonly atLeast: number }

export type Figure = {
  readonly value: number
  readonly unit: string
  /** Null if it is recorded without a limit. */
  readonly aim: Aim | null
  /** Key of the figure in the same run to compare with, such as the same request without the gateway. */
  readonly baseline?: string
}

/** By key, such as `create_ms_p50`. */
export type Figures = Readonly<Record<string, Figure>>

export type BenchReport = {
  readonly bench: string
  readonly machine: MachineFacts
  readonly figures: Readonly<
    Record<string, { readonly value: number; readonly unit: string; readonly aim: Aim | null }>
  >
}

/** Null without an aim. */
export function isMet(figure: Figure): boolean | null {
  if (figure.aim === null) return null
  return 'atMost' in figure.aim ? figure.value <= figure.aim.atMost : figure.value >= figure.aim.atLeast
}

export function reportOf(bench: string, machine: MachineFacts, figures: Figures): BenchReport {
  const plain = Object.entries(figures).map(([key, { value, unit, aim }]) => [key, { value, unit, aim }])
  return { bench, machine, figures: Object.fromEntries(plain) }
}

/** Figure, value, unit, aim, whether it is met, and the ratio to its baseline. */
export function reportLines(bench: string, machine: MachineFacts, figures: Figures): string[] {
  const { cpu, cores, memoryMiB, kernel, platform, bun } = machine
  const rows = Object.entries(figures).map(([key, figure]) => [
    key,
    digits(figure.value),
    figure.unit,
    aimText(figure.aim),
    { true: 'yes', false: 'NO', null: '' }[`${isMet(figure)}`],
    ratioText(figure, figures),
  ])
  return [
    `${bench} on ${cpu}, ${cores} cores, ${memoryMiB} MiB, Linux ${kernel}, platform ${platform}, Bun ${bun}`,
    ...table([['figure', 'value', 'unit', 'aim', 'met', 'ratio'], ...rows], [1]),
  ]
}

function aimText(aim: Aim | null): string {
  if (aim === null) return '-'
  return 'atMost' in aim ? `<= ${digits(aim.atMost)}` : `>= ${digits(aim.atLeast)}`
}

function ratioText(figure: Figure, figures: Figures): string {
  if (figure.baseline === undefined) return ''
  const base = figures[figure.baseline]
  if (base === undefined) return `no figure ${figure.baseline}`
  return base.value === 0 ? '' : `${(figure.value / base.value).toFixed(2)}x ${figure.baseline}`
}

/** Four significant digits are more than such figures hold. */
function digits(value: number): string {
  return Math.abs(value) >= 1000 ? String(Math.round(value)) : String(Number(value.toPrecision(4)))
}
