// The roots that this library trusts unless its caller says otherwise: AMD's, for every product that it knows. Data.

import type { TrustedRoot } from './root.ts'
import { GENOA_ROOT } from './root-genoa.ts'
import { MILAN_ROOT } from './root-milan.ts'
import { TURIN_ROOT } from './root-turin.ts'

export const AMD_ROOTS: readonly TrustedRoot[] = [MILAN_ROOT, GENOA_ROOT, TURIN_ROOT]
