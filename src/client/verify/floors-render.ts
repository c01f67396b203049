// Formats the built-in floors of the TCB for people and programs. Pure.

import { PRODUCTS } from '../../attest/amd/product.ts'
import { floorRows, OTHER_FLOORS } from '../../attest/policy/floor-policy.ts'
import { BULLETINS, type Floor, floorsCompiledOn } from '../../attest/policy/floors.ts'
import { fields, type Paint, table } from '../../terminal/render.ts'

export function floorsText(paint: Paint): string {
  const rows = floorRows().map(({ product, processor, component, floor }) => [
    ...[product, processor, component],
    ...cells(floor),
  ])
  const sources = new Set(
    floorRows().map(({ floor: { hand, source, readOn } }) => `${hand} hand: ${source}; ${readOn}`),
  )
  return [
    table(paint, ['PRODUCT', 'PROCESSOR', 'COMPONENT', 'LEAST', 'BELOW IT', 'BULLETIN', 'PUBLISHED', 'ABOUT'], rows),
    '\nEvery product: no memory aliases found (ALIAS_CHECK_COMPLETE), AMD-SB-3015.\n',
    ...PRODUCTS.map(product => `Not compared on ${product}: ${OTHER_FLOORS[product]}.\n`),
    '\n',
    fields(paint, [
      ['compiled on', floorsCompiledOn],
      ['read in', [...sources].join('\n')],
    ]),
  ].join('')
}

export function floorsDocument() {
  return {
    compiled_on: floorsCompiledOn,
    bulletins: BULLETINS,
    alias_check: { required: true, bulletin: 'AMD-SB-3015' },
    floors: floorRows().map(({ product, processor, component, floor }) => ({
      product,
      processor,
      component,
      least: floor.least,
      bulletin: floor.bulletin,
      hand: floor.hand,
      source: floor.source,
      read_on: floor.readOn,
    })),
    not_compared: OTHER_FLOORS,
  }
}

function cells({ least, hand, bulletin }: Floor): string[] {
  const { cve, about, published } = BULLETINS[bulletin]
  const below = hand === 'first' ? 'fails' : 'is named'
  return [`${least} (0x${least.toString(16)})`, below, bulletin, published, `${about}, ${cve}`]
}
