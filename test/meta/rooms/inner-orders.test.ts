// Goal: every large room has an order inside, and the page of the rooms draws each order as the table has it.

import { expect, test } from 'bun:test'
import { APART, LAYERS } from '../layers.ts'
import { lineCountOf } from '../source.ts'
import { readTree } from '../tree.ts'
import { INNER_ORDERS } from './inner-orders.ts'

const linesMax = 2_000

/** Rooms of more than `linesMax` lines. Lines of a room inside of another one count for both. */
function largeRooms(tree: ReadonlyMap<string, string>): string[] {
  return [...Object.keys(LAYERS), ...Object.keys(APART)].filter(room => {
    const texts = [...tree].filter(([path]) => path.startsWith(`${room}/`)).map(([, text]) => lineCountOf(text))
    return texts.reduce((sum, lines) => sum + lines, 0) > linesMax
  })
}

test('goal: a room of more than 2,000 lines has an inner order', () => {
  const large = largeRooms(readTree('src/**/*.{ts,tsx}'))
  expect(large.length).toBeGreaterThan(15)
  expect(large.filter(room => !Object.hasOwn(INNER_ORDERS, room))).toEqual([])
  expect(largeRooms(new Map([['src/http/a.ts', 'a\n'.repeat(linesMax)]]))).toEqual([])
  expect(largeRooms(new Map([['src/http/a.ts', 'a\n'.repeat(linesMax + 1)]]))).toEqual(['src/http'])
})

test('goal: src/README.md draws the orders of the table', () => {
  const readme = readTree('src/README.md').get('src/README.md') ?? ''
  const drawn = [...readme.matchAll(/^ {4}([a-z/-]+): +(.*)$/gm)].map(match => [
    `src/${match[1]}`,
    (match[2] ?? '').split(' > ').map(floor => floor.split(' | ')),
  ])
  // Folders end with a slash, and files have no ending.
  const asDrawn = (place: string) => (/\.tsx?$/.test(place) ? place.replace(/\.tsx?$/, '') : `${place}/`)
  const table = Object.entries<readonly (readonly string[])[]>(INNER_ORDERS)
  expect(drawn).toEqual(table.map(([room, floors]) => [room, floors.map(floor => floor.map(asDrawn))]))
})

test('goal: no place stands on two floors', () => {
  for (const floors of Object.values<readonly (readonly string[])[]>(INNER_ORDERS)) {
    const places = floors.flat()
    expect(new Set(places).size).toBe(places.length)
  }
})
