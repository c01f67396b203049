// Goal: every lock is complete and exact, and names no mirror: addresses come from the machine's own apt sources.

import { describe, expect, test } from 'bun:test'
import { existsSync } from 'node:fs'
import { readAgentLock } from '../../../scripts/image/agent-lock.ts'
import { enclaveLockProblem } from '../../../scripts/image/enclave-build.ts'
import { ImageFault } from '../../../scripts/image/image-fault.ts'
import { mirrorsOf, packageAddresses } from '../../../scripts/image/mirror.ts'
import {
  type LockedPackage,
  lockProblem,
  type PackagesLock,
  packageOf,
  readPackagesLock,
} from '../../../scripts/image/packages-lock.ts'
import {
  readEnclaveRecipe,
  readMachineRecipe,
  readModuleList,
  readRecipe,
  recipeNames,
  recipePaths,
} from '../../../scripts/image/recipe.ts'
import { lockChanges } from '../../../scripts/image/relock.ts'
import { uuidOf } from '../../../scripts/image/tree/verity.ts'
import { repo } from '../../../scripts/rigs/build/image-build.ts'

const entry = (name: string, fields: Partial<LockedPackage> = {}): LockedPackage => ({
  name,
  version: '1:1.0+b1~x',
  role: 'root',
  archive: 'debian',
  file: `pool/main/${name.slice(0, 1)}/${name}/${name}_1.0+b1~x_amd64.deb`,
  sizeBytes: 1,
  sha256: '0'.repeat(64),
  ...fields,
})
const kernel = entry('linux-image-1', { role: 'kernel', archive: 'debian-security' })
const firmware = entry('ovmf-1', { role: 'firmware' })
const lockOf = (...packages: LockedPackage[]): PackagesLock => ({
  schemaVersion: 1,
  suite: 'trixie',
  architecture: 'amd64',
  releases: [{ archive: 'debian', suite: 'trixie', codename: 'trixie', date: '2026-09-12T07:55:41Z' }],
  packages,
})

const recipes = await Promise.all(
  (await recipeNames(repo)).map(async name => {
    const paths = recipePaths(repo, name)
    return { name, paths, kind: (await readRecipe(paths)).kind }
  }),
)

// Goal: both kinds are there, so that neither half of this file passes for want of recipes.
test('the recipes', () => {
  expect(recipes.map(({ name, kind }) => `${name} ${kind}`)).toEqual([
    'builder machine',
    'inference enclave',
    'instance machine',
  ])
})

for (const { name, paths } of recipes.filter(({ kind }) => kind === 'enclave')) {
  describe(name, () => {
    // Goal: what is committed can be built from, and nothing comes in that the recipe does not name.
    test('the lock holds the packages of the recipe and no other', async () => {
      const recipe = await readEnclaveRecipe(paths)
      const lock = await readPackagesLock(paths.packagesLock)
      await readModuleList(paths)
      expect(recipe.name).toBe(name)
      expect(recipe.packages).toContain(recipe.program)
      expect(packageOf(lock, 'kernel').name).toStartWith('linux-image-')
      const problem = (changed: Partial<typeof recipe>) => enclaveLockProblem({ ...recipe, ...changed }, lock)
      expect(problem({})).toBeNull()
      expect(problem({ suite: 'trixie' })).toContain('of suite testing')
      expect(problem({ packages: recipe.packages.slice(1) })).toContain('for the root are not')
      expect(problem({ packages: [...recipe.packages, 'bash'] })).toContain('for the root are not')
      expect(problem({ initrdPackages: [] })).toContain('for the initrd are not')
      expect(problem({ firmware: { ...recipe.firmware, package: 'ovmf' } })).toContain('for the firmware are not')
    })

    // Goal: whatever could be a shell for somebody inside, or install one, is in no package of the root.
    test('the root has no package of a shell, a login or a package manager', async () => {
      const { packages } = await readEnclaveRecipe(paths)
      const unwanted =
        /^(?:bash|dash|busybox.*|zsh|perl.*|python.*|dpkg|apt|openssh.*|login.*|passwd|sudo|systemd.*|coreutils)$/
      expect(packages.filter(pkg => unwanted.test(pkg))).toEqual([])
    })

    // Goal: mirrors come from the machine that builds.
    test('no file of the recipe names a host', async () => {
      for (const path of [paths.recipe, paths.packagesLock]) {
        expect(await Bun.file(path).text()).not.toMatch(/https?:|\.(org|com|net)\b/)
      }
    })
  })
}

for (const { name, paths } of recipes.filter(({ kind }) => kind === 'machine')) {
  describe(name, () => {
    // Goal: what is committed can be built from.
    test('recipe, module list and locks are of their schemas', async () => {
      const recipe = await readMachineRecipe(paths)
      const lock = await readPackagesLock(paths.packagesLock)
      expect(recipe.name).toBe(name)
      expect(lock.suite).toBe(recipe.suite)
      await readModuleList(paths)
      // A login user finds the packaged agent; without a login there is none.
      if (recipe.user !== undefined) await readAgentLock(paths.agentLock)
      else expect(existsSync(paths.agentLock)).toBe(false)
    })

    // Goal: the closure is complete and brings neither systemd nor a way to become root.
    test('the lock holds every package that the recipe names, one kernel and no other init', async () => {
      const [recipe, lock] = [await readMachineRecipe(paths), await readPackagesLock(paths.packagesLock)]
      const names = new Set(lock.packages.map(locked => locked.name))
      for (const wanted of recipe.packages) expect(names).toContain(wanted)
      expect(packageOf(lock, 'kernel').name).toStartWith('linux-image-')
      expect(packageOf(lock, 'firmware').name).toBe(recipe.firmware.package)
      // libtss2-dev of the builder depends on the package udev. Nothing starts its program: init is ours.
      const unwanted = ['systemd', 'systemd-sysv', 'sudo', 'uidmap', ...(name === 'builder' ? [] : ['udev'])]
      for (const each of unwanted) expect(names).not.toContain(each)
    })

    // Goal: mirrors come from the machine that builds.
    test('no file of the recipe names a host', async () => {
      for (const path of [paths.recipe, paths.packagesLock, paths.agentLock, paths.modules].filter(existsSync)) {
        expect(await Bun.file(path).text()).not.toMatch(/https?:|\.(org|com|net)\b/)
      }
    })
  })
}

// Goal: a damaged lock stops the build instead of changing the image.
test('locks that cannot be meant are refused', () => {
  expect(lockProblem(lockOf(entry('bash'), kernel, firmware))).toBeNull()
  expect(lockProblem(lockOf(entry('bash'), kernel))).toBe('there must be exactly one firmware')
  expect(lockProblem(lockOf(entry('bash'), entry('bash'), kernel))).toBe('a package is listed twice')
  expect(lockProblem(lockOf(kernel, entry('bash')))).toBe('packages are not sorted')
  expect(lockProblem(lockOf(entry('a'), entry('bash')))).toBe('there must be exactly one kernel')
  expect(lockProblem(lockOf(entry('bash', { file: 'pool/../x.deb' }), kernel))).toBe('a file leaves the archive')
})

// Goal: a lock says from which state of which suites it was made, so that a relock can tell an older one.
test.each(recipes)('the releases of $name', async ({ paths }) => {
  const [recipe, lock] = [await readRecipe(paths), await readPackagesLock(paths.packagesLock)]
  const suites = lock.releases.map(({ archive, suite }) => `${archive} ${suite}`)
  const updated = ['debian trixie', 'debian trixie-updates', 'debian-security trixie-security']
  if (recipe.kind === 'enclave') return expect(suites).toEqual(['debian testing', ...updated])
  const more = recipe.backports === undefined ? [] : ['debian trixie-backports']
  expect(suites).toEqual([...updated, ...more, 'debian testing'])
})

// Goal: nobody relocks without seeing which versions move.
test('a new lock says what it changes', () => {
  const before = lockOf(entry('bash'), entry('curl'), kernel)
  const after = lockOf(entry('bash', { version: '2' }), entry('dash'), kernel)
  expect(lockChanges(before, after)).toEqual(['bash: 1:1.0+b1~x -> 2', 'dash: none -> 1:1.0+b1~x', 'curl: removed'])
  expect(lockChanges(after, after)).toEqual([])
})

// Goal: packages are fetched from where this machine fetches its own.
test('mirrors are those of apt that carry Debian, others are left alone', () => {
  const listing = [
    'http://other.test/cloud/\tcloud-bookworm\tmain',
    'http://mirror.test/debian/\tbookworm-backports\tmain',
    'http://security.test/debian-security/\tbookworm-security\tmain',
    'http://third.test/\tnodistro\tmain',
  ].join('\n')
  const mirrors = mirrorsOf(listing, 'http://old.test/{archive}/20261101T000000Z/')
  expect(mirrors).toEqual({
    debian: 'http://mirror.test/debian',
    'debian-security': 'http://security.test/debian-security',
    snapshot: 'http://old.test/{archive}/20261101T000000Z',
  })
  expect(packageAddresses(mirrors, entry('bash'))).toEqual([
    'http://mirror.test/debian/pool/main/b/bash/bash_1.0%2Bb1~x_amd64.deb',
    'http://old.test/debian/20261101T000000Z/pool/main/b/bash/bash_1.0%2Bb1~x_amd64.deb',
  ])
  expect(() => packageAddresses(mirrorsOf('', null), entry('bash'))).toThrow(ImageFault)
})

// Goal: identifiers in the image follow from its contents.
test('a digest gives a well-formed version 8 UUID', () => {
  expect(uuidOf('0123456789abcdef'.repeat(4))).toBe('01234567-89ab-8def-a123-456789abcdef')
})
