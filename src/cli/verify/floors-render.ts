// The floors of the TCB that this program ships, for people and programs. Pure.

import { PRODUCTS } from '../../attest/amd/product.ts'
import { BULLETINS, type Floor, floorRows, floorsCompiledOn, OTHER_FLOORS } from '../../attest/policy/floors.ts'
import { fields, type Paint, table } from '../render.ts'

export function floorsText(paint: Paint): string {
  const rows = floorRows().map(({ product, processor, component, floor }) => [
    ...[product, processor, component],
    ...cells(floor),
  ])
  const sources = new Set(floorRows().flatMap(({ floor }) => (floor.kind === 'least' ? [floor.source] : [])))
  return [
    table(paint, ['PRODUCT', 'PROCESSOR', 'COMPONENT', 'LEAST', 'BULLETIN', 'PUBLISHED', 'ABOUT'], rows),
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
      least: floor.kind === 'least' ? floor.least : null,
      bulletin: floor.kind === 'least' ? floor.bulletin : null,
      source: floor.kind === 'least' ? floor.source : floor.note,
    })),
    not_compared: OTHER_FLOORS,
  }
}

function cells(floor: Floor): string[] {
  if (floor.kind === 'not-established') return ['-', '-', '-', floor.note]
  const { cve, about, published } = BULLETINS[floor.bulletin]
  return [`${floor.least} (0x${floor.least.toString(16)})`, floor.bulletin, published, `${about}, ${cve}`]
}
