// A recipe: what goes into one image, as JSON under guest-image/recipes/<name>/. Reads only.

import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { readChecked } from './checked-json.ts'

const closed = { additionalProperties: false } as const
const PackageName = Type.String({ pattern: '^[a-z0-9][a-z0-9+.-]+$' })

const common = {
  schemaVersion: Type.Literal(1),
  name: Type.String({ pattern: '^[a-z][a-z0-9-]{0,31}$' }),
  suite: Type.String({ pattern: '^[a-z]+$' }),
  architecture: Type.Literal('amd64'),
  /** Seconds; every timestamp in the image. */
  sourceDateEpoch: Type.Integer({ minimum: 1 }),
  /** Firmware that checks kernel hashes: the file, and for --relock its package and suite. */
  firmware: Type.Object(
    {
      package: PackageName,
      suite: Type.String({ pattern: '^[a-z]+$' }),
      file: Type.String({ pattern: '^usr/[A-Za-z0-9/._-]+$' }),
    },
    closed,
  ),
  /** vCPU types and counts whose launch digests the manifest gives. */
  launch: Type.Object(
    {
      vcpuTypes: Type.Array(Type.String(), { minItems: 1, maxItems: 16 }),
      vcpus: Type.Array(Type.Integer({ minimum: 1, maximum: 255 }), { minItems: 1, maxItems: 16 }),
    },
    closed,
  ),
  /** Kernel command line before the verity parameters. */
  kernelArguments: Type.Array(Type.String({ pattern: '^[!-~]+$' }), { maxItems: 64 }),
} as const

/** Our executable in a machine, and the argument that init starts it with. */
export const MACHINE_PROGRAMS = {
  agent: { executable: 'strongroom-guest', role: 'agent' },
  builder: { executable: 'strongroom-builder', role: 'serve' },
} as const

/** A Debian that init sets up: packages are installed, with all they depend on, and the root can be written to. */
export const MachineRecipe = Type.Object(
  {
    ...common,
    kind: Type.Literal('machine'),
    /** Names, and what apt may resolve further; used by --relock only. */
    packages: Type.Array(PackageName, { minItems: 1, maxItems: 256 }),
    /** Packages that come from the suite's backports; used by --relock only. */
    backports: Type.Optional(Type.Array(PackageName, { maxItems: 64 })),
    /** Metapackage that names the kernel; used by --relock only. */
    kernelMetapackage: PackageName,
    /** Path globs, relative to the root, that are left out. */
    exclude: Type.Array(Type.String(), { maxItems: 256 }),
    /** A row of MACHINE_PROGRAMS. */
    program: Type.Union([Type.Literal('agent'), Type.Literal('builder')]),
    /** The login, who has the packaged coding agent; none where nobody logs in. */
    user: Type.Optional(
      Type.Object(
        { name: Type.String({ pattern: '^[a-z]+$' }), uid: Type.Integer({ minimum: 1000, maximum: 59_999 }) },
        closed,
      ),
    ),
    /** Users of the system: each is for one program, and none logs in. */
    services: Type.Optional(
      Type.Array(
        Type.Object(
          { name: Type.String({ pattern: '^[a-z]+$' }), uid: Type.Integer({ minimum: 100, maximum: 999 }) },
          closed,
        ),
        { maxItems: 8 },
      ),
    ),
  },
  closed,
)
export type MachineRecipe = Static<typeof MachineRecipe>

/** The gateway's VM: a read-only root of listed files of packages. No maintainer scripts, no dependencies. */
export const EnclaveRecipe = Type.Object(
  {
    ...common,
    kind: Type.Literal('enclave'),
    /** All of them. The build fails when a library is missing. */
    packages: Type.Array(PackageName, { minItems: 1, maxItems: 256 }),
    /** Unpacked for the initrd alone. */
    initrdPackages: Type.Array(PackageName, { minItems: 1, maxItems: 16 }),
    /** Metapackage that names the kernel, and the suite that has it; used by --relock only. */
    kernel: Type.Object({ metapackage: PackageName, suite: Type.String({ pattern: '^[a-z]+$' }) }, closed),
    /** Path globs below the root of files to take from packages. Each must match; needed libraries follow. */
    files: Type.Array(Type.String({ pattern: '^[a-z][A-Za-z0-9/._*+-]*$' }), { minItems: 1, maxItems: 64 }),
    /** The package whose version the manifest gives: the worker's. */
    program: PackageName,
  },
  closed,
)
export type EnclaveRecipe = Static<typeof EnclaveRecipe>

export const Recipe = Type.Union([MachineRecipe, EnclaveRecipe])
/** Contents of an image that a VM boots. */
export type Recipe = Static<typeof Recipe>

/** Name of our executable in an image of this recipe. */
export function executableOf(recipe: Recipe): string {
  return recipe.kind === 'machine' ? MACHINE_PROGRAMS[recipe.program].executable : 'strongroom-enclave'
}

const AnyRecipe = Type.Object({ kind: Type.Union([Type.Literal('machine'), Type.Literal('enclave')]) })

export const ModuleList = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    /** Loaded by the initrd before the root is mounted. */
    initrd: Type.Array(Type.String(), { minItems: 1, maxItems: 64 }),
    /** As `initrd`, where the root can be written to. */
    overlay: Type.Array(Type.String(), { maxItems: 64 }),
    /** In the root; loaded by the initrd for a scratch disk. */
    scratch: Type.Array(Type.String(), { maxItems: 64 }),
    /** In a machine's root, loaded by init; of the enclave in the initrd, and loaded there. */
    boot: Type.Array(Type.String(), { maxItems: 64 }),
    /** In a machine's root; loaded on demand. */
    demand: Type.Array(Type.String(), { maxItems: 256 }),
    /** In an instance's root; loaded by root's process once there is a policy, and never on demand. */
    reach: Type.Array(Type.String(), { maxItems: 64 }),
  },
  closed,
)
export type ModuleList = Static<typeof ModuleList>

/** An image of another recipe with more files laid over it, and its own name. */
export const Variant = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    name: Type.String({ pattern: '^[a-z][a-z0-9-]{0,31}$' }),
    of: Type.String({ pattern: '^[a-z][a-z0-9-]{0,31}$' }),
  },
  closed,
)
export type Variant = Static<typeof Variant>

/** Where the files of one recipe are. */
export type RecipePaths = {
  /** Folder of a variant; null for a plain recipe. */
  readonly variantDir: string | null
  readonly repo: string
  readonly recipeDir: string
  readonly commonDir: string
  readonly recipe: string
  readonly modules: string
  readonly packagesLock: string
  readonly agentLock: string
  /** Present if the image has programs from the npm registry. */
  readonly npmLock: string
}

export function recipePaths(repo: string, name: string): RecipePaths {
  const recipeDir = join(repo, 'guest-image', 'recipes', name)
  const commonDir = join(repo, 'guest-image', 'common')
  return {
    variantDir: null,
    repo,
    recipeDir,
    commonDir,
    recipe: join(recipeDir, 'recipe.json'),
    modules: join(commonDir, 'modules.json'),
    packagesLock: join(recipeDir, 'packages.lock.json'),
    agentLock: join(recipeDir, 'agent.lock.json'),
    npmLock: join(recipeDir, 'npm.lock.json'),
  }
}

export async function recipeNames(repo: string): Promise<string[]> {
  return (await readdir(join(repo, 'guest-image', 'recipes'))).sort()
}

export async function variantNames(repo: string): Promise<string[]> {
  return (await readdir(join(repo, 'guest-image', 'variants'))).sort()
}

/** Paths of the base recipe and of the variant's own folder. Throws recipe_invalid. */
export async function imagePaths(repo: string, name: string): Promise<RecipePaths> {
  if (!(await variantNames(repo)).includes(name)) return recipePaths(repo, name)
  const variantDir = join(repo, 'guest-image', 'variants', name)
  const variant = await readChecked(Variant, join(variantDir, 'variant.json'))
  return { ...recipePaths(repo, variant.of), variantDir }
}

/** Throws recipe_invalid. */
export async function readRecipe(paths: RecipePaths): Promise<Recipe> {
  // The kind first: of a union the first field at fault would be anybody's guess.
  const { kind } = await readChecked(AnyRecipe, paths.recipe)
  return kind === 'machine' ? readMachineRecipe(paths) : readEnclaveRecipe(paths)
}

/** Throws recipe_invalid. */
export function readEnclaveRecipe(paths: RecipePaths): Promise<EnclaveRecipe> {
  return readChecked(EnclaveRecipe, paths.recipe)
}

/** Throws recipe_invalid. */
export async function readMachineRecipe(paths: RecipePaths): Promise<MachineRecipe> {
  const recipe = await readChecked(MachineRecipe, paths.recipe)
  if (paths.variantDir === null) return recipe
  const { name } = await readChecked(Variant, join(paths.variantDir, 'variant.json'))
  return { ...recipe, name }
}

/** Throws recipe_invalid. */
export function readModuleList(paths: RecipePaths): Promise<ModuleList> {
  return readChecked(ModuleList, paths.modules)
}
