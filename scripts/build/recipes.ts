// The executables of this repository.

import { writeEmbeddedPage } from './console-page.ts'
import type { Recipe } from './executable.ts'

/** Measured: nothing of the host may be among its inputs. */
export const guestRecipe: Recipe = {
  name: 'strongroom-guest',
  entry: 'src/guest-main.ts',
  sources: ['src/guest-main.ts', 'src/guest', 'src/base', 'src/contract', 'src/attest', 'src/linux', 'src/verifier'],
  externals: [],
  tellsProvenance: false,
}

/** Measured too: what runs a build in its VM. */
export const builderRecipe: Recipe = {
  name: 'strongroom-builder',
  entry: 'src/builder/main.ts',
  sources: ['src/builder', 'src/guest', 'src/base', 'src/contract', 'src/attest', 'src/linux', 'src/verifier'],
  externals: [],
  tellsProvenance: false,
}

/** Measured too: the gateway, and what of a guest and of a host it needs in its VM. */
export const enclaveRecipe: Recipe = {
  name: 'strongroom-enclave',
  entry: 'src/enclave/main.ts',
  threads: ['src/inference/attestation/signing-thread.ts', 'src/inference/gateway/bodies/thread.ts'],
  sources: [
    'src/enclave',
    'src/base',
    'src/contract',
    'src/config',
    'src/attest',
    'src/linux',
    'src/http',
    'src/host',
    'src/store',
    'src/inference',
    'src/guest',
    'src/verifier',
  ],
  externals: [],
  tellsProvenance: false,
}

export const applianceRecipe: Recipe = {
  name: 'strongroom',
  entry: 'src/main.ts',
  threads: [
    'src/instances/dns/thread.ts',
    'src/inference/metering/ledger-thread.ts',
    'src/inference/attestation/signing-thread.ts',
    'src/inference/gateway/bodies/thread.ts',
  ],
  splits: true,
  // Most commands end before compiled code has earned its cost. Programs that serve call `compileAsUsual`.
  compilesLater: 8,
  conditions: ['strongroom-executable'],
  prepare: writeEmbeddedPage,
  sources: ['src'],
  // ssh2 goes on without them.
  externals: ['cpu-features', './crypto/build/Release/sshcrypto.node'],
  tellsProvenance: true,
}
