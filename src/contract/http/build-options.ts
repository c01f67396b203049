// Options of a build that belong to one toolchain: their fields on the wire, and their form elsewhere. Pure. A new
// option is a field in ToolchainFields, a field in ToolchainOptions, and a row in OPTION_FIELDS of option-words.ts;
// everything else hands the whole value on.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'

export const TOOLCHAINS = ['cargo', 'nix', 'go', 'npm', 'pnpm', 'make'] as const
export const Toolchain = OneOf(TOOLCHAINS)
export type Toolchain = Static<typeof Toolchain>

/** Path of attributes in the outputs of a flake. `nix build` takes it behind `#`. */
const FlakeOutput = Type.String({
  pattern: "^[A-Za-z_][A-Za-z0-9_'-]*(\\.[A-Za-z0-9_'-]+)*$",
  maxLength: 256,
  description: 'Nix: output of the flake that is built, `packages.x86_64-linux.default` unless given.',
})

/** No query: a store of Nix takes settings there, and one of them switches off its signatures. */
const CacheUrl = Type.String({
  pattern: '^https://[a-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$',
  maxLength: 512,
})
/** The Ed25519 key of a cache as Nix writes it, `NAME:BASE64`. */
const CacheKey = Type.String({ pattern: '^[A-Za-z0-9._-]{1,128}:[A-Za-z0-9+/]{43}=$' })
const cachesMax = 8

const CratePackage = Type.String({
  pattern: '^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$',
  description: 'Cargo: package of the workspace that is built, its default members unless given.',
})
const CrateBin = Type.String({
  pattern: '^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}$',
  description: 'Cargo: the one program that is built, every target of the package unless given.',
})
/** `FEATURE`, or `DEPENDENCY/FEATURE` as cargo takes it. */
const CrateFeatures = Type.Array(
  Type.String({ pattern: '^[A-Za-z0-9_][A-Za-z0-9_+.-]{0,127}(\\??/[A-Za-z0-9_][A-Za-z0-9_+.-]{0,127})?$' }),
  {
    maxItems: 64,
    uniqueItems: true,
    description: 'Cargo: features that are switched on besides the default ones.',
  },
)
const CrateProfile = Type.String({
  pattern: '^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$',
  description: 'Cargo: profile that is built, `release` unless given.',
})
const CrateTarget = Type.String({
  pattern: '^[a-z0-9_][a-z0-9_.-]{0,63}$',
  description: "Cargo: target that is compiled for, the builder's own unless given.",
})

/** Without query, credentials and trailing slash. */
export const rustMirrorPattern = '^https://[a-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*$'
const RustMirror = Type.String({
  pattern: rustMirrorPattern,
  maxLength: 512,
  description:
    "Cargo: the service's own mirror of Rust's distribution, from which a fetch takes the exact version that rust-toolchain.toml pins. None without it.",
})

/** Without query and credentials. */
const GoProxy = Type.String({
  pattern: '^https://[a-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$',
  maxLength: 512,
  description:
    'Go: proxy that modules are fetched from; its host must be among those that the service fetches from. None without it.',
})

/** Without query and credentials. */
const registryField = (title: string) =>
  Type.String({
    pattern: '^https://[a-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$',
    maxLength: 512,
    description: `${title}: registry that packages are fetched from; its host must be among those that the service fetches from. None without it.`,
  })
const NpmRegistry = registryField('npm')
const PnpmRegistry = registryField('pnpm')

/** Members of `POST /build`. */
export const ToolchainFields = {
  package: Type.Optional(CratePackage),
  bin: Type.Optional(CrateBin),
  features: Type.Optional(CrateFeatures),
  no_default_features: Type.Optional(
    Type.Boolean({ description: 'Cargo: the default features of the packages are not switched on.' }),
  ),
  profile: Type.Optional(CrateProfile),
  target: Type.Optional(CrateTarget),
  rust_mirror: Type.Optional(RustMirror),
  output: Type.Optional(FlakeOutput),
  nix_caches: Type.Optional(
    Type.Array(Closed({ url: CacheUrl, public_key: CacheKey }), {
      maxItems: cachesMax,
      description:
        'Binary caches of Nix that this build may fetch from, each with its public key; hosts must be among those that the service fetches from. None without it.',
    }),
  ),
  go_proxy: Type.Optional(GoProxy),
  npm_registry: Type.Optional(NpmRegistry),
  pnpm_registry: Type.Optional(PnpmRegistry),
} as const

/** Options for Cargo alone. Null and empty: as cargo does without the option. */
export const CargoOptions = Closed({
  package: OrNull(CratePackage),
  bin: OrNull(CrateBin),
  features: CrateFeatures,
  noDefaultFeatures: Type.Boolean(),
  profile: OrNull(CrateProfile),
  target: OrNull(CrateTarget),
  /** Absent without one, as in orders of earlier versions. */
  rustMirror: Type.Optional(RustMirror),
})
export type CargoOptions = Static<typeof CargoOptions>

/** Options for Nix alone. */
export const NixOptions = Closed({
  /** Null for the flake's default package. */
  output: OrNull(FlakeOutput),
  /** Binary caches that the fetch may use, each with the key that signs its paths. */
  caches: Type.Array(Closed({ url: CacheUrl, publicKey: CacheKey }), { maxItems: cachesMax }),
})
export type NixOptions = Static<typeof NixOptions>

/** Options for Go alone. */
export const GoOptions = Closed({ proxy: GoProxy })
export type GoOptions = Static<typeof GoOptions>

/** Options for npm alone. */
export const NpmOptions = Closed({ registry: NpmRegistry })
export type NpmOptions = Static<typeof NpmOptions>

/** Options for pnpm alone. */
export const PnpmOptions = Closed({ registry: PnpmRegistry })
export type PnpmOptions = Static<typeof PnpmOptions>

/** The options of the one toolchain that a request names any for. */
export const ToolchainOptions = Type.Union([
  Closed({ cargo: CargoOptions }),
  Closed({ nix: NixOptions }),
  Closed({ go: GoOptions }),
  Closed({ npm: NpmOptions }),
  Closed({ pnpm: PnpmOptions }),
])
export type ToolchainOptions = Static<typeof ToolchainOptions>

const RequestFields = Type.Object(ToolchainFields)
export type RequestFields = Static<typeof RequestFields>
export type ToolchainField = keyof typeof ToolchainFields
