// The package's cryptography: the runtime's if every supported runtime has it, otherwise JavaScript. Pure.

import { encapsulate } from '../../attest/receipt/encapsulate-portable.ts'
import { nativeVerifiers } from '../../attest/receipt/verifiers.ts'
import type { ClientCrypto } from './attested-fetch.ts'

export const portableCrypto: ClientCrypto = { verifiers: nativeVerifiers, sealing: { encapsulate } }
