// Goal: each command line and environment that a build runs with is deliberate: an option that goes or gets weaker
// shows up in the golden text.

import { expect, test } from 'bun:test'
import {
  cargoBuildArgv,
  cargoBuildEnvironment,
  cargoEnvironment,
  cargoFetchArgv,
  cargoFetchEnvironment,
  cargoMetadataArgv,
  cargoResolveConfig,
  cargoResolveEnvironment,
  cargoRootArgv,
  cargoTargetsArgv,
  lockOption,
  rustDownloadArgv,
  rustUnpackArgv,
} from '../../src/builder/cargo/cargo.plan.ts'
import { launchArgv, ownEtc, type RootPlan, rootArgv, systemDirs } from '../../src/builder/confined/root.plan.ts'
import {
  flakeReference,
  type NixFetch,
  nixBuildArgv,
  nixDeleteArgv,
  nixEnvironment,
  nixFetchArgv,
  nixFetchEnvironment,
  nixHashArgv,
  nixPlace,
  nixShowArgv,
  nixVerifyArgv,
} from '../../src/builder/nix/nix.plan.ts'
import {
  installScriptsArgv,
  nodeEnvironment,
  nodeFetchArgv,
  npmEnvironment,
  npmInstallArgv,
  packArgv,
  pnpmEnvironment,
  pnpmInstallArgv,
  runBuildArgv,
} from '../../src/builder/node/node.plan.ts'
import { places } from '../../src/builder/phase.ts'
import {
  attributes,
  checkoutArgv,
  fetchArgv,
  gitEnvironment,
  gitPlaces,
  idsArgv,
  initArgv,
} from '../../src/builder/source/clone.plan.ts'
import { expectGolden } from '../rigs/golden.ts'

const proxy = 'http://10.0.0.1:8444'
const mirror = 'sparse+https://mirror.example/index/'
const lock = lockOption('cargo 1.97.0', 'Cargo.lock')
const plan: RootPlan = {
  uid: 65_001,
  network: false,
  nestedNamespaces: false,
  binds: [
    { from: '/usr', to: '/usr', writable: false },
    { from: '/s/a', to: '/build/source', writable: true },
  ],
  etcDir: '/s/etc',
  env: { A: '-b' },
  cwd: '/build/source',
  argv: ['cargo', '--x'],
}

/** An option that begins with a hyphen begins a line. */
const shown = (argv: readonly string[]) =>
  argv.map(word => JSON.stringify(word)).reduce((text, word) => `${text}${word.startsWith('"-') ? '\n  ' : ' '}${word}`)
const selected = {
  ...{ package: 'cli', bin: 'tool', features: ['a', 'dep/b'], noDefaultFeatures: true },
  ...{ profile: 'dist', target: 'wasm32-wasip1' },
}

const fixedOutput = (outputHashMode: 'flat' | 'recursive'): NixFetch => ({
  ...{ kind: 'nix-fetch', name: 'a', drvPath: 'a.drv', outputHashMode, url: null, urls: [] },
  ...{ hash: { algorithm: 'sha512', hex: '' }, outPath: `/nix/store/${outputHashMode}` },
})

const environment = (env: object) =>
  Object.entries(env)
    .map(([name, value]) => `${name}=${JSON.stringify(value)}`)
    .join('\n')

test('goal: what a program is confined by, and what git, cargo, npm, pnpm and Nix are run with', () => {
  const url = new URL('https://git.example/a.git')
  const parts: Readonly<Record<string, string>> = {
    'a program of a build': shown(rootArgv(plan)),
    'a program that fetches': shown(rootArgv({ ...plan, network: true })),
    'Nix, which makes a sandbox of its own': shown(rootArgv({ ...plan, nestedNamespaces: true })),
    'how each of them starts': shown(launchArgv('/cg/a', 65_001, { processesMax: 7, fileBytesMax: 9 }, ['bwrap'])),
    'directories of the system': shown(systemDirs),
    'files of /etc': ownEtc.map(({ name, textOf }) => `${name}: ${JSON.stringify(textOf(65_001))}`).join('\n'),
    'places of a build': environment({ ...places, nix: nixPlace }),
    'git init': shown(initArgv()),
    'git fetch': shown(fetchArgv(url, 'main')),
    'git checkout': shown(checkoutArgv()),
    'git rev-parse': shown(idsArgv()),
    'git: environment': environment(gitEnvironment(proxy)),
    'git: places and attributes': environment({ ...gitPlaces, attributes }),
    'cargo fetch': shown(cargoFetchArgv('/build/source/Cargo.toml', { mirror: null, lock: [], options: null })),
    'cargo fetch by a mirror': shown(cargoFetchArgv('/build/source/Cargo.toml', { mirror, lock, options: null })),
    'cargo locate-project': shown(cargoRootArgv()),
    'cargo metadata': shown(cargoMetadataArgv({ mirror: null, lock: [], options: null })),
    'cargo metadata by a mirror': shown(cargoMetadataArgv({ mirror, lock, options: null })),
    'cargo build': shown(cargoBuildArgv({ mirror: null, lock: [], options: null })),
    'cargo metadata of a selection': shown(cargoMetadataArgv({ mirror: null, lock: [], options: selected })),
    'cargo build of a selection': shown(cargoBuildArgv({ mirror: null, lock: [], options: selected })),
    'cargo fetch of a selection': shown(cargoFetchArgv('/s/Cargo.toml', { mirror: null, lock: [], options: selected })),
    'cargo targets': shown(cargoTargetsArgv()),
    'cargo build by a mirror': shown(cargoBuildArgv({ mirror, lock, options: null })),
    'a file of a mirror of Rust': shown(rustDownloadArgv('https://rust.example/a', { proxy, bytesMax: 7 })),
    'a component of Rust': shown(rustUnpackArgv()),
    'cargo: environment': environment(cargoEnvironment('/bin')),
    'cargo: environment of a build': environment(cargoBuildEnvironment('/bin', { hasSettings: true })),
    'cargo: environment of a build without settings': environment(
      cargoBuildEnvironment('/bin', { hasSettings: false }),
    ),
    'cargo: environment of a resolve': environment(cargoResolveEnvironment('/bin', { hasSettings: true })),
    'cargo: settings of a resolve': cargoResolveConfig('/bin').trimEnd(),
    'cargo: environment of a fetch': environment(cargoFetchEnvironment('/bin', proxy)),
    'npm ci': shown(npmInstallArgv({ legacyPeerDeps: true })),
    'npm run': shown(runBuildArgv('npm')),
    'npm pack': shown(packArgv('npm')),
    'npm: environment': environment(npmEnvironment('/bin')),
    'pnpm install': shown(pnpmInstallArgv({ shamefullyHoist: true })),
    'pnpm: environment': environment(pnpmEnvironment('/bin')),
    'install scripts': shown(installScriptsArgv(['/build/source/node_modules/a', 'postinstall'])),
    'node: fetch of package files': shown(nodeFetchArgv()),
    'node: environment of a fetch': environment(nodeEnvironment('/bin')),
    'nix build': shown(nixBuildArgv(flakeReference('/build/source', null))),
    'nix build of an output': shown(nixBuildArgv(flakeReference('/build/source', 'packages.x86_64-linux.app'))),
    'nix flake archive': shown(nixFetchArgv('/build/source')),
    'nix derivation show': shown(
      nixShowArgv(['/nix/store/a.drv', '/nix/store/b.drv'], { name: 'new', recursive: true }),
    ),
    'nix show-derivation': shown(nixShowArgv(['/nix/store/a.drv'], { name: 'old', recursive: false })),
    'nix store verify': shown(nixVerifyArgv()),
    'nix-store --delete': shown(nixDeleteArgv(['/nix/store/a-source'])),
    'nix-hash of files': shown(nixHashArgv([fixedOutput('flat'), fixedOutput('flat')])),
    'nix-hash of directories': shown(nixHashArgv([fixedOutput('recursive')])),
    'nix: environment': environment(nixEnvironment('/bin')),
    'nix: environment of a fetch': environment(nixFetchEnvironment('/bin', proxy)),
  }
  const text = Object.entries(parts).map(([name, part]) => `# ${name}\n${part}\n`)
  expectGolden('builder-argv.txt', text.join('\n'))
})

test('goal: no program of a build has the network but one that fetches, and none but Nix makes namespaces', () => {
  const has = (changes: Partial<RootPlan>) =>
    ['--unshare-net', '--disable-userns'].filter(option => rootArgv({ ...plan, ...changes }).includes(option))
  expect(has({})).toEqual(['--unshare-net', '--disable-userns'])
  expect(has({ network: true })).toEqual(['--disable-userns'])
  expect(has({ nestedNamespaces: true })).toEqual(['--unshare-net'])
})
