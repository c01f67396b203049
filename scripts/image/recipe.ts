// A recipe: what goes into one image, as JSON under guest-image/recipes/<name>/. Reads only.

import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { readChecked } from './checked-json.ts'

const closed = { additionalProperties: false } as const
const PackageName = Type.String({ pattern: '^[a-z0-9][a-z0-9+.-]+$' })

/** An image that a machine boots. */
export const Recipe = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    kind: Type.Literal('machine'),
    name: Type.String({ pattern: '^[a-z][a-z0-9-]{0,31}$' }),
    suite: Type.String({ pattern: '^[a-z]+$' }),
    architecture: Type.Literal('amd64'),
    /** Seconds; every timestamp in the image. */
    sourceDateEpoch: Type.Integer({ minimum: 1 }),
    /** Names, and what apt may resolve further; used by --relock only. */
    packages: Type.Array(PackageName, { minItems: 1, maxItems: 256 }),
    /** Those of `packages` that come from the suite's backports; used by --relock only. */
    backports: Type.Optional(Type.Array(PackageName, { maxItems: 64 })),
    /** Metapackage that names the kernel; used by --relock only. */
    kernelMetapackage: PackageName,
    /** Firmware that checks kernel hashes: package, the suite that has it, and the file in it. Package and suite are used by --relock only. */
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
    /** Path globs, relative to the root, that are left out. */
    exclude: Type.Array(Type.String(), { maxItems: 256 }),
    /** What `strongroom-guest` is there. */
    program: Type.Union([Type.Literal('agent'), Type.Literal('builder')]),
    /** The login, who has the packaged coding agent; none where nobody logs in. */
    user: Type.Optional(
      Type.Object(
        { name: Type.String({ pattern: '^[a-z]+$' }), uid: Type.Integer({ minimum: 1000, maximum: 59_999 }) },
        closed,
      ),
    ),
  },
  closed,
)
export type Recipe = Static<typeof Recipe>

/** A root without kernel and init: packages are unpacked, not installed, so that nothing but the listed ones comes in. */
export const TreeRecipe = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    kind: Type.Literal('tree'),
    name: Type.String({ pattern: '^[a-z][a-z0-9-]{0,31}$' }),
    suite: Type.String({ pattern: '^[a-z]+$' }),
    architecture: Type.Literal('amd64'),
    /** Seconds; every timestamp in the image. */
    sourceDateEpoch: Type.Integer({ minimum: 1 }),
    /** All of them: dependencies are not followed. The build fails when a library is missing. */
    packages: Type.Array(PackageName, { minItems: 1, maxItems: 256 }),
    /** The package whose version the manifest gives. */
    program: PackageName,
    /** Path globs, relative to the root, that are left out. */
    exclude: Type.Array(Type.String({ pattern: '^[a-z][A-Za-z0-9/._*+-]*$' }), { maxItems: 256 }),
  },
  closed,
)
export type TreeRecipe = Static<typeof TreeRecipe>

const AnyRecipe = Type.Object({ kind: Type.Union([Type.Literal('machine'), Type.Literal('tree')]) })

export const ModuleList = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    /** Loaded by the initrd before the root is mounted. */
    initrd: Type.Array(Type.String(), { minItems: 1, maxItems: 64 }),
    /** In the root; loaded by the initrd for a scratch disk. */
    scratch: Type.Array(Type.String(), { maxItems: 64 }),
    /** In the root; loaded by init. */
    boot: Type.Array(Type.String(), { maxItems: 64 }),
    /** In the root; loaded on demand. */
    demand: Type.Array(Type.String(), { maxItems: 256 }),
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
  /** Of a variant; null for a recipe as it stands. */
  readonly variantDir: string | null
  readonly repo: string
  readonly recipeDir: string
  readonly commonDir: string
  readonly recipe: string
  readonly modules: string
  readonly packagesLock: string
  readonly agentLock: string
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
  }
}

export async function recipeNames(repo: string): Promise<string[]> {
  return (await readdir(join(repo, 'guest-image', 'recipes'))).sort()
}

export async function variantNames(repo: string): Promise<string[]> {
  return (await readdir(join(repo, 'guest-image', 'variants'))).sort()
}

/** Those of the recipe that a variant is of, and the variant's own folder. Throws recipe_invalid. */
export async function imagePaths(repo: string, name: string): Promise<RecipePaths> {
  if (!(await variantNames(repo)).includes(name)) return recipePaths(repo, name)
  const variantDir = join(repo, 'guest-image', 'variants', name)
  const variant = await readChecked(Variant, join(variantDir, 'variant.json'))
  return { ...recipePaths(repo, variant.of), variantDir }
}

/** What kind of image a recipe makes. Throws recipe_invalid. */
export async function readRecipeKind(paths: RecipePaths): Promise<'machine' | 'tree'> {
  return (await readChecked(AnyRecipe, paths.recipe)).kind
}

/** Throws recipe_invalid. */
export function readTreeRecipe(paths: RecipePaths): Promise<TreeRecipe> {
  return readChecked(TreeRecipe, paths.recipe)
}

/** Throws recipe_invalid. */
export async function readRecipe(paths: RecipePaths): Promise<Recipe> {
  const recipe = await readChecked(Recipe, paths.recipe)
  if (paths.variantDir === null) return recipe
  const { name } = await readChecked(Variant, join(paths.variantDir, 'variant.json'))
  return { ...recipe, name }
}

/** Throws recipe_invalid. */
export function readModuleList(paths: RecipePaths): Promise<ModuleList> {
  return readChecked(ModuleList, paths.modules)
}
