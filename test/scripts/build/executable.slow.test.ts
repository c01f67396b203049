import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { join, resolve } from 'node:path'
import { buildExecutable, compileArguments, type Recipe } from '../../../scripts/build/executable.ts'
import { provenanceOf } from '../../../scripts/build/provenance.ts'
import { applianceRecipe, builderRecipe, enclaveRecipe, guestRecipe } from '../../../scripts/build/recipes.ts'
import { MEASURED } from '../../../scripts/lib/measured-inputs.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { version } from '../../../src/base/version.ts'
import { MIGRATIONS, schemaVersionOf } from '../../../src/store/db.ts'

/** A test here builds up to three executables. */
setDefaultTimeout(300_000)

const repo = resolve(import.meta.dir, '../../..')
/** Inputs of a measured executable besides our sources; test/meta/measured-inputs.test.ts checks the lists. */
function packagesOf(name: keyof typeof MEASURED): string[] {
  return Object.keys(JSON.parse(fs.readFileSync(join(repo, MEASURED[name].file), 'utf8')).packages)
}

/** A copy of what executables are made of, without packages. */
function checkOut(checkout: string): void {
  fs.mkdirSync(checkout, { recursive: true })
  for (const name of ['src', 'scripts', 'package.json', 'bun.lock', 'tsconfig.json']) {
    fs.cpSync(join(repo, name), join(checkout, name), { recursive: true })
  }
}

const inDist = (recipe: Recipe) => buildExecutable(recipe, { repo, outDir: join(repo, 'dist'), force: false })

describe('the measured executables', () => {
  // Goal: the same sources give the same bytes, also in another checkout.
  test.each([
    { recipe: guestRecipe, packages: packagesOf('strongroom-guest') },
    { recipe: builderRecipe, packages: packagesOf('strongroom-builder') },
    { recipe: enclaveRecipe, packages: packagesOf('strongroom-enclave') },
  ])('$recipe.name is reproducible', async ({ recipe, packages }) => {
    await using dir = makeDirectory()
    const first = await inDist(recipe)
    const checkout = join(dir.path, 'elsewhere', 'checkout')
    checkOut(checkout)
    for (const name of packages) {
      fs.cpSync(join(repo, 'node_modules', name), join(checkout, 'node_modules', name), { recursive: true })
    }
    const outDir = join(dir.path, 'second')
    const second = await buildExecutable(recipe, { repo: checkout, outDir, force: false })
    expect([second.sha256, second.fresh]).toEqual([first.sha256, true])
  })

  // Goal: its arguments alone decide: no file of the working directory, no runtime option.
  test.each([guestRecipe, builderRecipe, enclaveRecipe])(
    '$name has its roles and ignores its surroundings',
    async recipe => {
      await using dir = makeDirectory()
      const { path } = await inDist(recipe)
      fs.writeFileSync(join(dir.path, '.env'), 'BUN_OPTIONS=--preload=./planted.ts\n')
      fs.writeFileSync(join(dir.path, 'bunfig.toml'), 'preload = ["./planted.ts"]\n')
      fs.writeFileSync(join(dir.path, 'planted.ts'), 'process.stdout.write("planted")\n')
      const run = (...argv: string[]) => {
        const { exitCode, stdout, stderr } = Bun.spawnSync([path, ...argv], { cwd: dir.path, env: {} })
        return { exitCode, stdout: stdout.toString(), usage: stderr.toString().startsWith(`usage: ${recipe.name}`) }
      }
      expect(run('--version')).toEqual({ exitCode: 0, stdout: `${recipe.name} ${version}\n`, usage: false })
      for (const argv of [
        [],
        ['help'],
        ['agent', 'x'],
        ['init', 'x'],
        ['serve', 'x'],
        ['--version', 'x'],
        ['--preload', './planted.ts'],
        ['run', './planted.ts'],
      ]) {
        expect(run(...argv)).toEqual({ exitCode: 2, stdout: '', usage: true })
      }
    },
  )
})

// Goal: unchanged inputs are not built again; a changed source, or another executable in its place, are.
test('an executable is built anew where it must be, and only there', async () => {
  await using dir = makeDirectory()
  const [checkout, outDir] = [join(dir.path, 'checkout'), join(dir.path, 'out')]
  for (const name of ['src', 'scripts/build', 'scripts/lib']) fs.mkdirSync(join(checkout, name), { recursive: true })
  for (const name of ['package.json', 'bun.lock', 'tsconfig.json', 'scripts/lib/bun.lock.json'])
    fs.cpSync(join(repo, name), join(checkout, name))
  fs.writeFileSync(join(checkout, 'src/tiny.ts'), 'process.stdout.write("tiny")\n')
  const recipe: Recipe = { ...guestRecipe, name: 'tiny', entry: 'src/tiny.ts', sources: ['src'], threads: [] }
  const build = () => buildExecutable(recipe, { repo: checkout, outDir, force: false })
  const first = await build()
  expect(first.fresh).toBe(true)
  expect(await build()).toEqual({ ...first, fresh: false })
  fs.appendFileSync(join(checkout, 'src/tiny.ts'), '// changed\n')
  expect((await build()).fresh).toBe(true)
  fs.appendFileSync(first.path, 'x')
  expect((await build()).fresh).toBe(true)
})

// Goal: it names what it was made of, as anyone can work it out from the sources.
test('the appliance tells its provenance', async () => {
  const { path } = await inDist(applianceRecipe)
  expect(statementOf(path)).toEqual(await stated((await provenanceOf(applianceRecipe.sources, repo)).commit))
})

// Goal: two checkouts of the same sources give the same appliance.
test.skipIf(skipUnless(runsAll, 'the appliance is built twice only by scripts/test --all'))(
  'the appliance is reproducible',
  async () => {
    await using dir = makeDirectory()
    const build = async (...names: string[]) => {
      const checkout = join(dir.path, ...names)
      checkOut(checkout)
      // Hard links: the bundler sees another place, the disk holds no second copy.
      Bun.spawnSync(['cp', '--archive', '--link', join(repo, 'node_modules'), checkout])
      return buildExecutable(applianceRecipe, { repo: checkout, outDir: join(checkout, 'dist'), force: false })
    }
    const [first, second] = [await build('one'), await build('a', 'deeper', 'two')]
    expect(second.sha256).toBe(first.sha256)
    expect(statementOf(first.path)).toEqual(await stated(null))
  },
)

const statementOf = (path: string): unknown =>
  JSON.parse(Bun.spawnSync([path, 'version', '--json'], { env: {} }).stdout.toString())

async function stated(commit: string | null): Promise<unknown> {
  const sha256 = (path: string) => createHash('sha256').update(fs.readFileSync(path)).digest('hex')
  const find = 'find src scripts/build bun.lock package.json tsconfig.json -type f'
  const listed = Bun.spawnSync(['sh', '-c', `${find} | LC_ALL=C sort | xargs sha256sum | sha256sum`], { cwd: repo })
  return {
    version,
    schema: schemaVersionOf(MIGRATIONS),
    bun: Bun.version,
    provenance: {
      bun_sha256: sha256(process.execPath),
      lock_sha256: sha256(join(repo, 'bun.lock')),
      source_sha256: listed.stdout.toString().slice(0, 64),
      commit,
    },
  }
}

// Goal: no executable tells where it was built, which would also make its bytes depend on it.
test.each([guestRecipe, builderRecipe, enclaveRecipe, applianceRecipe])(
  'no path of the checkout is in $name',
  async recipe => {
    const { path } = await inDist(recipe)
    expect(fs.readFileSync(path).includes(`${repo}/`)).toBe(false)
  },
)

// Goal: these flags and no others decide what an executable is.
test('the compiler is called with these arguments', () => {
  const recipe = { name: 'x', entry: 'src/x.ts', sources: [], externals: ['optional'], tellsProvenance: true }
  const provenance = { bunSha256: 'b', lockSha256: 'l', sourceSha256: 's', commit: null }
  expect(compileArguments(recipe, { runtime: '/bun', outfile: '/out/x', provenance })).toEqual([
    'build',
    '--compile',
    '--target=bun-linux-x64',
    '--compile-executable-path=/bun',
    '--format=esm',
    '--bytecode',
    '--minify-whitespace',
    '--minify-syntax',
    '--env=disable',
    '--define=process.env.NODE_ENV="production"',
    '--define=__dirname="/"',
    '--define=__filename="/"',
    '--no-compile-autoload-dotenv',
    '--no-compile-autoload-bunfig',
    '--no-compile-autoload-tsconfig',
    '--no-compile-autoload-package-json',
    '--define=STRONGROOM_PROVENANCE={"bunSha256":"b","lockSha256":"l","sourceSha256":"s","commit":null}',
    '--external=optional',
    '--outfile=/out/x',
    'src/x.ts',
  ])
})

// Goal: commands do not pay for a compiler that they end before, and what serves does not wait for it.
test('the appliance starts with a compiler that waits, and what runs for long turns that off', () => {
  const provenance = { bunSha256: 'b', lockSha256: 'l', sourceSha256: 's', commit: null }
  const waits = (recipe: Recipe) =>
    compileArguments(recipe, { runtime: '/bun', outfile: '/out/x', provenance }).filter(flag => /jit/.test(flag))
  expect([guestRecipe, enclaveRecipe, applianceRecipe].map(waits)).toEqual([[], [], ['--compile-jit-policy=8']])
  const callsIn = (path: string) => fs.readFileSync(join(repo, path), 'utf8').split('compileAsUsual()').length - 1
  const longLived = [...(applianceRecipe.threads ?? []), 'src/cli/serve.ts']
  expect(longLived.map(path => [path, callsIn(path)])).toEqual(longLived.map(path => [path, 1]))
  // The relay and the child that checks schemas.
  expect(callsIn('src/main.ts')).toBe(2)
})

function makeDirectory(): AsyncDisposable & { path: string } {
  const path = fs.mkdtempSync('/tmp/strongroom-executables-')
  return { path, [Symbol.asyncDispose]: async () => fs.rmSync(path, { recursive: true, force: true }) }
}
