// Options of one toolchain, in the words of requests, commands and people. Pure, and without schemas, since the
// console's page loads it.

import type {
  CargoOptions,
  GoOptions,
  NixOptions,
  NpmOptions,
  PnpmOptions,
  RequestFields,
  Toolchain,
  ToolchainField,
  ToolchainOptions,
} from './build-options.ts'

const TOOLCHAIN_TITLES = {
  cargo: 'Cargo',
  nix: 'Nix',
  go: 'Go',
  npm: 'npm',
  pnpm: 'pnpm',
  make: 'make',
} as const satisfies Record<Toolchain, string>

export function cargoOptionsOf(options: ToolchainOptions | null): CargoOptions | null {
  return options !== null && 'cargo' in options ? options.cargo : null
}

export function nixOptionsOf(options: ToolchainOptions | null): NixOptions | null {
  return options !== null && 'nix' in options ? options.nix : null
}

export function goOptionsOf(options: ToolchainOptions | null): GoOptions | null {
  return options !== null && 'go' in options ? options.go : null
}

export function npmOptionsOf(options: ToolchainOptions | null): NpmOptions | null {
  return options !== null && 'npm' in options ? options.npm : null
}

export function pnpmOptionsOf(options: ToolchainOptions | null): PnpmOptions | null {
  return options !== null && 'pnpm' in options ? options.pnpm : null
}

/** The toolchain that the options choose. Null without any, and for caches of Nix, which another project ignores. */
export function toolchainOfOptions(options: ToolchainOptions | null): Toolchain | null {
  if (cargoOptionsOf(options) !== null) return 'cargo'
  if (goOptionsOf(options) !== null) return 'go'
  if (npmOptionsOf(options) !== null) return 'npm'
  if (pnpmOptionsOf(options) !== null) return 'pnpm'
  return nixOptionsOf(options)?.output == null ? null : 'nix'
}

type OptionField = {
  readonly toolchain: Toolchain
  /** Option of the commands `build submit` and `verify build`. */
  readonly option: string
  /** Words of the option, one for each time that it stands; an option without a word has the word true. */
  readonly words: (options: ToolchainOptions) => readonly (string | true)[]
}

const cargoWords =
  (read: (options: CargoOptions) => readonly (string | boolean | null)[]): OptionField['words'] =>
  options => {
    const cargo = cargoOptionsOf(options)
    return cargo === null ? [] : read(cargo).filter(word => word !== null && word !== false)
  }

/** One row for each field. Options of one toolchain are equal if all their words are, and only then. */
export const OPTION_FIELDS = {
  package: { toolchain: 'cargo', option: 'package', words: cargoWords(cargo => [cargo.package]) },
  bin: { toolchain: 'cargo', option: 'bin', words: cargoWords(({ bin }) => [bin]) },
  features: { toolchain: 'cargo', option: 'features', words: cargoWords(({ features }) => features) },
  no_default_features: {
    toolchain: 'cargo',
    option: 'no-default-features',
    words: cargoWords(({ noDefaultFeatures }) => [noDefaultFeatures]),
  },
  profile: { toolchain: 'cargo', option: 'profile', words: cargoWords(({ profile }) => [profile]) },
  target: { toolchain: 'cargo', option: 'target', words: cargoWords(({ target }) => [target]) },
  rust_mirror: {
    toolchain: 'cargo',
    option: 'rust-mirror',
    words: cargoWords(({ rustMirror }) => [rustMirror ?? null]),
  },
  output: {
    toolchain: 'nix',
    option: 'flake-output',
    words: options => [nixOptionsOf(options)?.output ?? null].filter(word => word !== null),
  },
  nix_caches: {
    toolchain: 'nix',
    option: 'nix-cache',
    words: options => (nixOptionsOf(options)?.caches ?? []).map(({ url, publicKey }) => `${url}=${publicKey}`),
  },
  go_proxy: {
    toolchain: 'go',
    option: 'go-proxy',
    words: options => [goOptionsOf(options)?.proxy ?? null].filter(word => word !== null),
  },
  npm_registry: {
    toolchain: 'npm',
    option: 'npm-registry',
    words: options => [npmOptionsOf(options)?.registry ?? null].filter(word => word !== null),
  },
  pnpm_registry: {
    toolchain: 'pnpm',
    option: 'pnpm-registry',
    words: options => [pnpmOptionsOf(options)?.registry ?? null].filter(word => word !== null),
  },
} as const satisfies Record<ToolchainField, OptionField>

/** The fields that these options have, each with its words. */
export function optionWords(
  options: ToolchainOptions | null,
): { readonly field: ToolchainField; readonly option: string; readonly words: readonly (string | true)[] }[] {
  if (options === null) return []
  return Object.entries(OPTION_FIELDS)
    .map(([field, { option, words }]) => ({ field: field as ToolchainField, option, words: words(options) }))
    .filter(({ words }) => words.length > 0)
}

/** For people: `package cli, features a b`; '' without any. */
export function optionText(options: ToolchainOptions | null): string {
  return optionWords(options)
    .map(({ field, words }) => [field, ...words.filter(word => word !== true)].join(' '))
    .join(', ')
}

/** Members of a request body with these options. */
export function fieldsOfOptions(options: ToolchainOptions | null): RequestFields {
  const [cargo, nix, go] = [cargoOptionsOf(options), nixOptionsOf(options), goOptionsOf(options)]
  const [npm, pnpm] = [npmOptionsOf(options), pnpmOptionsOf(options)]
  return {
    ...(cargo?.package == null ? {} : { package: cargo.package }),
    ...(cargo?.bin == null ? {} : { bin: cargo.bin }),
    ...(cargo?.features.length ? { features: cargo.features } : {}),
    ...(cargo?.noDefaultFeatures ? { no_default_features: true } : {}),
    ...(cargo?.profile == null ? {} : { profile: cargo.profile }),
    ...(cargo?.target == null ? {} : { target: cargo.target }),
    ...(cargo?.rustMirror === undefined ? {} : { rust_mirror: cargo.rustMirror }),
    ...(nix?.output == null ? {} : { output: nix.output }),
    ...(nix?.caches.length
      ? { nix_caches: nix.caches.map(({ url, publicKey }) => ({ url, public_key: publicKey })) }
      : {}),
    ...(go === null ? {} : { go_proxy: go.proxy }),
    ...(npm === null ? {} : { npm_registry: npm.registry }),
    ...(pnpm === null ? {} : { pnpm_registry: pnpm.registry }),
  }
}

/**
 * The options that these members of a body name, or null without any. `clash`: two fields of different toolchains, or
 * a field and the toolchain that the request names.
 */
export function optionsOfFields(
  fields: RequestFields,
  toolchain: Toolchain | null,
): { readonly options: ToolchainOptions | null } | { readonly clash: OptionClash } {
  const given = (Object.keys(OPTION_FIELDS) as ToolchainField[]).filter(name => isGiven(fields[name]))
  const [first] = given
  if (first === undefined) return { options: null }
  const owner = OPTION_FIELDS[first].toolchain
  if (toolchain !== null && toolchain !== owner)
    return { clash: { field: first, owner, other: 'toolchain', toolchain } }
  const other = given.find(name => OPTION_FIELDS[name].toolchain !== owner)
  if (other !== undefined) return { clash: { field: first, owner, other, toolchain: OPTION_FIELDS[other].toolchain } }
  if (owner === 'go') return { options: { go: { proxy: fields.go_proxy ?? '' } } }
  if (owner === 'npm') return { options: { npm: { registry: fields.npm_registry ?? '' } } }
  if (owner === 'pnpm') return { options: { pnpm: { registry: fields.pnpm_registry ?? '' } } }
  if (owner === 'nix') {
    const { output = null, nix_caches: caches = [] } = fields
    return {
      options: { nix: { output, caches: caches.map(({ url, public_key }) => ({ url, publicKey: public_key })) } },
    }
  }
  const { package: pkg = null, bin = null, features = [], profile = null, target = null } = fields
  const noDefaultFeatures = fields.no_default_features ?? false
  const { rust_mirror: rustMirror } = fields
  const mirror = rustMirror === undefined ? {} : { rustMirror }
  const cargo = { package: pkg, bin, features: [...features], noDefaultFeatures, profile, target, ...mirror }
  return { options: { cargo } }
}

type OptionClash = {
  readonly field: ToolchainField
  readonly owner: Toolchain
  readonly other: ToolchainField | 'toolchain'
  readonly toolchain: Toolchain
}

export function clashText({ owner, other, toolchain }: OptionClash): string {
  const title = TOOLCHAIN_TITLES[owner]
  return other === 'toolchain'
    ? `is for ${title}, and toolchain is ${toolchain}: leave out one of them`
    : `is for ${title}, and ${other} is for ${TOOLCHAIN_TITLES[toolchain]}: leave out one of them`
}

/** An empty list and false say nothing. */
function isGiven(value: unknown): boolean {
  return value !== undefined && value !== false && !(Array.isArray(value) && value.length === 0)
}
