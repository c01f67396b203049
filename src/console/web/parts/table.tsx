// Tables: a short one, and one of any length that draws only the rows in view. On phones each row is a card. Effects:
// measures its scroll area.

import { useSignal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { cardPixels, rowPixels, rowsInView } from './rows-in-view.ts'

export type Column<Row> = {
  readonly name: string
  readonly cell: (row: Row) => ComponentChildren
  /** Numbers are aligned right. */
  readonly isNumber?: boolean
  /** Holds the row's buttons, which stay in view while the table scrolls sideways. */
  readonly isActions?: boolean
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
                <Cell key={column.name} column={column} row={row} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

function Cell<Row>({ column, row }: { column: Column<Row>; row: Row }) {
  return (
    <td class={classOf(column)} data-label={column.name}>
      {column.cell(row)}
    </td>
  )
}

/** Matches the width below which rows are cards in style/tables.css. */
const phone = matchMedia('(max-width: 40rem)')

export function LongTable<Row>({ label, columns, rows, keyOf }: TableProps<Row>) {
  const area = useRef<HTMLElement>(null)
  const view = useSignal({ topPixels: 0, heightPixels: 800, isPhone: phone.matches })
  useEffect(() => {
    const { current } = area
    if (current === null) return
    const measure = () => {
      const { scrollTop: topPixels, clientHeight: heightPixels } = current
      view.value = { topPixels, heightPixels, isPhone: phone.matches }
    }
    measure()
    current.addEventListener('scroll', measure, { passive: true })
    const observer = new ResizeObserver(measure)
    observer.observe(current)
    phone.addEventListener('change', measure)
    return () => {
      current.removeEventListener('scroll', measure)
      phone.removeEventListener('change', measure)
      observer.disconnect()
    }
  }, [])
  const { isPhone, ...shown } = view.value
  const pixels = isPhone ? cardPixels(columns.length) : rowPixels
  const { from, to } = rowsInView({ ...shown, count: rows.length, rowPixels: pixels })
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, by keyboard too
    <section class="long-table" aria-label={label} ref={area} tabIndex={0}>
      <table aria-rowcount={rows.length + 1} style={{ '--columns': columns.length }}>
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
          <Spacer pixels={from * pixels} columns={columns.length} />
          {rows.slice(from, to).map((row, at) => (
            <tr key={keyOf(row)} aria-rowindex={from + at + 2} style={{ height: `${pixels}px` }}>
              {columns.map(column => (
                <Cell key={column.name} column={column} row={row} />
              ))}
            </tr>
          ))}
          <Spacer pixels={(rows.length - to) * pixels} columns={columns.length} />
        </tbody>
      </table>
    </section>
  )
}

function Spacer({ pixels, columns }: { pixels: number; columns: number }) {
  if (pixels <= 0) return null
  return (
    // biome-ignore lint/a11y/noAriaHiddenOnFocusable: nothing in it takes the focus
    <tr class="spacer" aria-hidden="true">
      <td colSpan={columns} style={{ height: `${pixels}px` }} />
    </tr>
  )
}

function widthOf<Row>({ share = 1 }: Column<Row>, columns: readonly Column<Row>[]) {
  const whole = columns.reduce((sum, column) => sum + (column.share ?? 1), 0)
  return { width: `${(share / whole) * 100}%` }
}

function classOf<Row>({ isNumber = false, isActions = false }: Column<Row>): string {
  return [isNumber ? 'number' : '', isActions ? 'row-end' : ''].filter(name => name !== '').join(' ')
}
