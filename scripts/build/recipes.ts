// The two executables of this repository.

import type { Recipe } from './executable.ts'

/** Measured: nothing of the host may be among its inputs. */
export const guestRecipe: Recipe = {
  name: 'strongroom-guest',
  entry: 'src/guest/main.ts',
  sources: ['src/guest', 'src/base', 'src/contract', 'src/attest', 'src/linux', 'src/verifier'],
  externals: [],
  tellsProvenance: false,
}

export const applianceRecipe: Recipe = {
  name: 'strongroom',
  entry: 'src/main.ts',
  threads: ['src/instances/dns/thread.ts'],
  sources: ['src'],
  // ssh2 goes on without them.
  externals: ['cpu-features', './crypto/build/Release/sshcrypto.node'],
  tellsProvenance: true,
}
