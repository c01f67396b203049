// The table of floors.ts as a policy, and for people. Pure.

import { PRODUCTS, type Product } from '../amd/product.ts'
import { type Floor, MICROCODE_FLOORS, SNP_FLOORS } from './floors.ts'
import { type Policy, strictPolicy } from './policy.ts'
import type { TcbMinimums } from './schema.ts'

/** For people, of what is not compared at all. */
export const OTHER_FLOORS: Readonly<Record<Product, string>> = {
  milan: 'bootloader: CCF of Microsoft requires 4, no bulletin that does was found; TEE: not established here',
  genoa: 'bootloader: AMD-SB-3030 requires a least value that is not established here; TEE: not established here',
  turin: 'TEE: AMD-SB-3030 requires a least value that is not established here; FMC, bootloader: not established here',
}

/** strictPolicy with the floors that a policy can state. Microcode depends on the processor: `floorChecks` has it. */
export function policyWithFloors(): Policy {
  const policy = strictPolicy()
  const minimums = minimumsOf()
  return {
    ...policy,
    platformInfo: { ...policy.platformInfo, aliasCheck: 'required' },
    minimumTcb: minimums,
    minimumLaunchTcb: minimums,
  }
}

function minimumsOf(): TcbMinimums {
  // Second-hand numbers do not fail, in a policy neither.
  const firstHand = (product: Product) =>
    Math.max(...SNP_FLOORS[product].filter(({ hand }) => hand === 'first').map(({ least }) => least))
  const minimum = (product: Product) =>
    ({ bootloader: 'any', tee: 'any', snp: firstHand(product), microcode: 'any' }) as const
  return { milan: minimum('milan'), genoa: minimum('genoa'), turin: { fmc: 'any', ...minimum('turin') } }
}

/** For people and programs: all of the data, flat. */
export function floorRows(): readonly {
  readonly product: Product
  readonly processor: string
  readonly component: 'snp' | 'microcode'
  readonly floor: Floor
}[] {
  return PRODUCTS.flatMap(product => [
    ...SNP_FLOORS[product].map(floor => ({ product, processor: 'all', component: 'snp' as const, floor })),
    ...MICROCODE_FLOORS.filter(silicon => silicon.product === product).flatMap(({ name, microcode }) =>
      microcode.map(floor => ({ product, processor: name, component: 'microcode' as const, floor })),
    ),
  ])
}
