// The toolchains of the builder, in order of preference.

import type { Toolchain as ToolchainName } from '../contract/http/build-options.ts'
import { cargoToolchain } from './cargo/run.ts'
import { goToolchain } from './go/run.ts'
import { makeToolchain } from './make/run.ts'
import { nixToolchain } from './nix/run.ts'
import { npmToolchain, pnpmToolchain } from './node/run.ts'
import type { Toolchain } from './toolchain.ts'

export const TOOLCHAINS: Readonly<Record<ToolchainName, Toolchain>> = {
  // The file exists only for this service.
  make: makeToolchain,
  nix: nixToolchain,
  cargo: cargoToolchain,
  go: goToolchain,
  npm: npmToolchain,
  pnpm: pnpmToolchain,
}
