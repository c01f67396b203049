// Which kind of policy a file is. Pure.

import { Malformed } from '../../attest/malformed.ts'

const FORMATS = {
  'strongroom/snp-policy/v1': { of: 'SNP reports', example: 'verify policy-example' },
  'strongroom/tdx-policy/v1': { of: 'TDX quotes', example: 'verify policy-example --tdx' },
  'strongroom/gpu-policy/v1': { of: 'GPUs', example: 'verify policy-example --gpu' },
} as const

/** Throws Malformed for a policy of another kind, before its fields are compared. */
export function requireFormat(document: unknown, expected: keyof typeof FORMATS): void {
  const found: unknown = Reflect.get(Object(document), 'format')
  if (typeof found !== 'string' || found === expected || !Object.hasOwn(FORMATS, found)) return
  const { of } = FORMATS[found as keyof typeof FORMATS]
  const { of: needed, example } = FORMATS[expected]
  throw new Malformed(
    `this is a policy for ${of}, and one for ${needed} is needed: \`${example}\` prints one to begin with`,
  )
}
