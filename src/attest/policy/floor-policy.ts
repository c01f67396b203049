// The table of floors.ts as a policy, and in text for people. Pure.

import { PRODUCTS, type Product } from '../amd/product.ts'
import { type Floor, MICROCODE_FLOORS, SNP_FLOORS } from './floors.ts'
import { type Policy, strictPolicy } from './policy.ts'
import type { TcbMinimums } from './schema.ts'

/** Explains for people which components have no floor. */
export const OTHER_FLOORS: Readonly<Record<Product, string>> = {
  milan: 'bootloader: CCF of Microsoft requires 4, no bulletin that does was found; TEE: not established here',
  genoa: 'bootloader: AMD-SB-3030 requires a least value that is not established here; TEE: not established here',
  turin: 'TEE: AMD-SB-3030 requires a least value that is not established here; FMC, bootloader: not established here',
}

/**
 * Returns strictPolicy with the floors that a policy can express. Microcode depends on the processor: see
 * `floorChecks`.
 */
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
  // Second-hand numbers cause no failure, so the policy omits them too.
  const firstHand = (product: Product) =>
    Math.max(...SNP_FLOORS[product].filter(({ hand }) => hand === 'first').map(({ least }) => least))
  const minimum = (product: Product) =>
    ({ bootloader: 'any', tee: 'any', snp: firstHand(product), microcode: 'any' }) as const
  return { milan: minimum('milan'), genoa: minimum('genoa'), turin: { fmc: 'any', ...minimum('turin') } }
}

/** Returns all floors as a flat list, for people and programs. */
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
