// The roots that this library trusts unless its caller says otherwise: AMD's, for every product that it knows. Data.

import { GENOA_ROOT } from './genoa.ts'
import { MILAN_ROOT } from './milan.ts'
import type { TrustedRoot } from './trusted-root.ts'
import { TURIN_ROOT } from './turin.ts'

export const AMD_ROOTS: readonly TrustedRoot[] = [MILAN_ROOT, GENOA_ROOT, TURIN_ROOT]
