// Tables: a short one, and one of any length that draws only the rows in view. Effects: measures its scroll area.

import { useSignal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { rowPixels, rowsInView } from './rows-in-view.ts'

export type Column<Row> = {
  readonly name: string
  readonly cell: (row: Row) => ComponentChildren
  /** Numbers are aligned right. */
  readonly isNumber?: boolean
  /** Omitted on narrow screens. */
  readonly isWide?: boolean
  /** Share of the width in a long table. Default: 1. */
  readonly share?: number
}

type TableProps<Row> = {
  readonly label: string
  readonly columns: readonly Column<Row>[]
  readonly rows: readonly Row[]
  readonly keyOf: (row: Row) => string
}

export function Table<Row>({ label, columns, rows, keyOf }: TableProps<Row>) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls sideways on narrow screens, by keyboard too
    <section class="table-scroll" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map(column => (
              <th key={column.name} scope="col" class={classOf(column)}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(row => (
            <tr key={keyOf(row)}>
              {columns.map(column => (
                <td key={column.name} class={classOf(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

export function LongTable<Row>({ label, columns, rows, keyOf }: TableProps<Row>) {
  const area = useRef<HTMLElement>(null)
  const view = useSignal({ topPixels: 0, heightPixels: 800 })
  useEffect(() => {
    const { current } = area
    if (current === null) return
    const measure = () => {
      view.value = { topPixels: current.scrollTop, heightPixels: current.clientHeight }
    }
    measure()
    current.addEventListener('scroll', measure, { passive: true })
    const observer = new ResizeObserver(measure)
    observer.observe(current)
    return () => {
      current.removeEventListener('scroll', measure)
      observer.disconnect()
    }
  }, [])
  const { from, to } = rowsInView({ ...view.value, count: rows.length })
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, by keyboard too
    <section class="long-table" aria-label={label} ref={area} tabIndex={0}>
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map(column => (
              <th key={column.name} scope="col" class={classOf(column)} style={widthOf(column, columns)}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <Spacer rows={from} columns={columns.length} />
          {rows.slice(from, to).map((row, at) => (
            <tr key={keyOf(row)} aria-rowindex={from + at + 2}>
              {columns.map(column => (
                <td key={column.name} class={classOf(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          <Spacer rows={rows.length - to} columns={columns.length} />
        </tbody>
      </table>
    </section>
  )
}

function Spacer({ rows, columns }: { rows: number; columns: number }) {
  if (rows <= 0) return null
  return (
    // biome-ignore lint/a11y/noAriaHiddenOnFocusable: nothing in it takes the focus
    <tr class="spacer" aria-hidden="true">
      <td colSpan={columns} style={{ height: `${rows * rowPixels}px` }} />
    </tr>
  )
}

function widthOf<Row>({ share = 1 }: Column<Row>, columns: readonly Column<Row>[]) {
  const whole = columns.reduce((sum, column) => sum + (column.share ?? 1), 0)
  return { width: `${(share / whole) * 100}%` }
}

function classOf<Row>({ isNumber = false, isWide = false }: Column<Row>): string {
  return [isNumber ? 'number' : '', isWide ? 'wide-only' : ''].filter(name => name !== '').join(' ')
}
