// Cargo in an instance without the Internet: its packages, which the builder image's lock names, go by scp into the
// private root. Effects: downloads into the images' cache, scp and ssh processes, files in the instance.

import { expect } from 'bun:test'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { fetchPackages, linkPackages } from '../../../scripts/image/downloads.ts'
import { openCacheDirs } from '../../../scripts/image/image-cache.ts'
import { machineMirrors } from '../../../scripts/image/mirror.ts'
import { readPackagesLock } from '../../../scripts/image/packages-lock.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import type { Inside } from '../instances/inside.ts'

const recipes = join(import.meta.dir, '../../../guest-image/recipes')
/** Cargo and what it depends on. */
const ofCargo =
  /^(cargo|rustc|libstd-rust-.+|libllvm\d+|libgit2-\d.*|libhttp-parser\d.*|libmbed\w+-?\d+|libssh2-1t64|libxml2|libz3-4)$/

/** A program is built and run in the private root. `options`: those of a shared connection. */
export async function theCargo(inside: Inside, options: readonly string[]): Promise<void> {
  if (skipUnless(runsAll, 'Cargo in an instance is tried only by scripts/test --all')) return
  const { appliance, hostname, prints, begins } = inside
  const [has, chosen] = await Promise.all([packagesOf('instance'), packagesOf('builder')])
  const lacking = chosen.filter(({ name }) => ofCargo.test(name) && !has.some(own => own.name === name))
  const { downloads } = await openCacheDirs(null)
  await fetchPackages(downloads, lacking, machineMirrors)
  const directory = join(appliance.directory, 'debs')
  mkdirSync(directory)
  await linkPackages(downloads, lacking, directory)
  const target = `agent@${(await appliance.resolve(hostname)) ?? ''}:`
  const settings = [...options, '-o', `HostKeyAlias=${hostname}`, '-o', 'BatchMode=yes']
  expect(await Bun.spawn(['scp', '-q', '-r', ...settings, directory, target], { stdin: 'ignore' }).exited).toBe(0)
  const installing = await begins('private-root sh -c "apt-get install --yes ./debs/*.deb"; echo status $?')
  expect(await installing()).toContain('status 0')
  await prints(
    'mkdir -p trial/src && printf \'[package]\\nname = "trial"\\nedition = "2024"\\n\' >trial/Cargo.toml && echo \'fn main() { println!("{} by cargo", 6 * 7) }\' >trial/src/main.rs',
  )
  const building = await begins('cd trial && private-root cargo run --quiet --offline')
  expect(await building()).toBe('42 by cargo')
  await prints('rm -r debs trial')
}

async function packagesOf(image: 'instance' | 'builder') {
  const { packages } = await readPackagesLock(join(recipes, image, 'packages.lock.json'))
  return packages.filter(({ role }) => role === 'root')
}
