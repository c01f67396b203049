// Goal: what a request names of a Cargo project is what cargo builds and what the evidence says, and a name that does
// not exist ends in a message with those that do. A real cargo in the builder.

import { describe, expect, test } from 'bun:test'
import { userInfo } from 'node:os'
import { archiveOf, lockedBy, type SourceFiles } from '../../scripts/rigs/build/sources.ts'
import { cgroup2Root, findRust, startBuildVm, testLimits } from '../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import type { CargoOptions } from '../../src/contract/http/build-options.ts'
import { filesOf } from '../rigs/build/built.ts'

const isRoot = userInfo().uid === 0
const noCargo = skipUnless(isRoot && findRust() !== null && cgroup2Root() !== null, 'needs root, a cargo and cgroup2')
const timeoutMs = 1_800_000

const manifest = (name: string, more: string) =>
  `[package]\nname = "${name}"\nversion = "0.1.0"\nedition = "2021"\n${more}`

/** Two programs in one package with an optional dependency, and a second package. */
const files: SourceFiles = {
  'Cargo.toml':
    '[workspace]\nresolver = "2"\nmembers = ["cli", "server", "extra"]\n[profile.dist]\ninherits = "release"\n',
  'cli/Cargo.toml': manifest(
    'cli',
    '[features]\ndefault = ["loud"]\nloud = []\nmore = ["dep:extra"]\n[dependencies]\nextra = { path = "../extra", optional = true }\n',
  ),
  'cli/src/main.rs': 'fn main() { println!("loud={} more={}", cfg!(feature = "loud"), cfg!(feature = "more")); }\n',
  'cli/src/bin/second.rs': 'fn main() {}\n',
  'server/Cargo.toml': manifest('server', ''),
  'server/src/main.rs': 'fn main() {}\n',
  'extra/Cargo.toml': manifest('extra', ''),
  'extra/src/lib.rs': '',
}

const none: CargoOptions = {
  ...{ package: null, bin: null, features: [], noDefaultFeatures: false, profile: null, target: null },
}

type Built = { artifacts: string[]; compiled: string[]; members: string[]; command: string; output: string }

async function built(changes: Partial<CargoOptions>, project = files): Promise<Built | string> {
  const source = { ...project, 'Cargo.lock': lockedBy(project) }
  await using vm = await startBuildVm()
  const options = { cargo: { ...none, ...changes } }
  const end = await vm.build({
    archive: archiveOf(source),
    options,
    limits: { ...testLimits, fetchSeconds: 900, buildSeconds: 900 },
  })
  if (end.result.status === 'failed') return `${end.result.errorType}: ${end.result.error}`
  const found = filesOf(end)
  const json = (path: string) => JSON.parse(Buffer.from(found.get(path) ?? []).toString('utf8'))
  const { externalParameters, internalParameters, resolvedDependencies } =
    json('attestations/slsa.json').predicate.buildDefinition
  expect(externalParameters.options).toEqual(options)
  expect(internalParameters.order.options).toEqual(options)
  const sbom = json('attestations/sbom.cdx.json')
  expect(sbom.metadata.component.properties).toContainEqual({
    name: 'strongroom:options',
    value: expect.stringContaining(String(changes.package ?? changes.profile ?? changes.target)),
  })
  const artifacts = [...found.keys()].filter(path => path.startsWith('artifacts/'))
  const [program = ''] = artifacts
  type Descriptor = { name: string; uri?: string; annotations?: { compiled?: boolean } }
  return {
    artifacts: artifacts.map(path => path.slice('artifacts/'.length)).sort(),
    compiled: (resolvedDependencies as Descriptor[])
      .filter(({ annotations }) => annotations?.compiled === true)
      .map(({ name }) => name),
    members: sbom.dependencies.find(({ ref }: { ref: string }) => ref === 'project').dependsOn,
    command: internalParameters.command.join(' '),
    output: outputOf(found.get(program) ?? new Uint8Array(0)),
  }
}

function outputOf(program: Uint8Array): string {
  const path = `/tmp/strongroom-cargo-options-${crypto.randomUUID()}`
  try {
    Bun.spawnSync(['install', '--mode=0755', '/dev/stdin', path], { stdin: program })
    return Bun.spawnSync([path]).stdout.toString().trim()
  } finally {
    Bun.spawnSync(['rm', path])
  }
}

const member = (name: string) => `pkg:cargo/${name}@0.1.0?download_url=file:${name}`

describe.skipIf(noCargo)('options of Cargo', () => {
  // Goal: the selection is what cargo compiles, and every document says it.
  test(
    'a package, one of its programs, features and a profile',
    async () => {
      const first = await built({
        package: 'cli',
        bin: 'cli',
        features: ['more'],
        noDefaultFeatures: true,
        profile: 'dist',
      })
      expect(first).toMatchObject({
        artifacts: ['cli'],
        compiled: ['cli', 'extra'],
        members: [member('cli')],
        output: 'loud=false more=true',
        command: expect.stringContaining(
          'cargo build --profile dist --package cli --bin cli --features cli/more --no-default-features --locked',
        ),
      })
      const own = await built({ package: 'cli', target: 'x86_64-unknown-linux-gnu' })
      expect(own).toMatchObject({ artifacts: ['cli', 'second'], compiled: ['cli'], output: 'loud=true more=false' })
    },
    timeoutMs,
  )

  // Goal: with the first resolver cargo gives a bare feature to the package of the working directory, whatever
  // package is selected; a request's features are of the package that it names.
  test(
    'a feature of a package that is not in the working directory, with the first resolver',
    async () => {
      const root = {
        'Cargo.toml': `${manifest('root', '[features]\nmore = []\n[lib]\npath = "lib.rs"\n')}[workspace]\nresolver = "1"\nmembers = ["cli", "extra"]\n`,
        'lib.rs': '',
        'cli/Cargo.toml': files['cli/Cargo.toml'] ?? '',
        'cli/src/main.rs': files['cli/src/main.rs'] ?? '',
        'extra/Cargo.toml': manifest('extra', ''),
        'extra/src/lib.rs': '',
      }
      expect(await built({ package: 'cli', features: ['more'] }, root)).toMatchObject({
        artifacts: ['cli'],
        compiled: ['cli', 'extra'],
        output: 'loud=true more=true',
      })
    },
    timeoutMs,
  )

  // Goal: the message names the field, the wrong name, and the names that exist.
  test.each<[Partial<CargoOptions>, string]>([
    [
      { package: 'nothing' },
      'source_invalid: package "nothing": not a package of the workspace; available: cli, extra, server',
    ],
    [
      { package: 'cli', bin: 'server' },
      'source_invalid: bin "server": the package cli has no such program; available: cli, second',
    ],
    [
      { bin: 'other' },
      'source_invalid: bin "other": the default members of the workspace have no such program; available: cli, second, server',
    ],
    [
      { target: 'wasm9-none' },
      'source_invalid: target "wasm9-none": this builder\'s compiler has no standard library for it; available: ',
    ],
  ])(
    'a name that does not exist: %o',
    async (options, start) => expect(await built(options)).toStartWith(start),
    timeoutMs,
  )

  // Goal: cargo's own message follows ours, which names the field.
  test.each<[Partial<CargoOptions>, string, RegExp]>([
    [
      { package: 'cli', features: ['nope'] },
      'source_invalid: features: Cargo.toml does not define a requested feature',
      /nope/,
    ],
    [{ features: ['nope'] }, 'source_invalid: features: Cargo.toml does not define a requested feature', /nope/],
    [
      { profile: 'nope' },
      'source_invalid: profile: this source does not define the profile "nope"; use',
      /not defined/,
    ],
  ])(
    'a name that cargo does not find: %o',
    async (options, start, cause) => {
      const why = await built(options)
      expect(why).toStartWith(start)
      expect(why).toMatch(cause)
    },
    timeoutMs,
  )
})
