// Builds the projects of a corpus with the builder's own toolchain: `bun process.ts SETTINGS`, a file of
// JSON. The rest of a build, from its source's archive to its receipts, is left to the tests of whole builds. Effects.

import * as fs from 'node:fs'
import { join } from 'node:path'
import { orderOf, testLimits } from '../../../../scripts/rigs/build/vm.ts'
import type { LockedPackage } from '../../../../src/attest/provenance/record.ts'
import { systemClock } from '../../../../src/base/clock.ts'
import { cargoToolchain } from '../../../../src/builder/cargo/run.ts'
import { collect } from '../../../../src/builder/collect.ts'
import { failureOf } from '../../../../src/builder/failure.ts'
import { Job } from '../../../../src/builder/job.ts'
import type { Phase } from '../../../../src/builder/phase.ts'
import { findProject } from '../../../../src/builder/project.ts'
import { TOOLCHAINS } from '../../../../src/builder/toolchains.ts'
import type { CargoOptions } from '../../../../src/contract/http/build-options.ts'
import { run } from '../../../../src/linux/command.ts'
import { hashTree } from '../../../../src/linux/source/git-tree.ts'
import type { CorpusEnd, CorpusPackage, CorpusProject, CorpusSettings } from './corpus.ts'

const none: CargoOptions = {
  ...{ package: null, bin: null, features: [], noDefaultFeatures: false, profile: null, target: null },
}

if (import.meta.main) {
  const settings: CorpusSettings = JSON.parse(fs.readFileSync(process.argv[2] ?? '', 'utf8'))
  const ends: CorpusEnd[] = []
  for (const name of fs.readdirSync(settings.projects).sort()) {
    const directory = join(settings.projects, name)
    const project: Omit<CorpusProject, 'files'> = JSON.parse(fs.readFileSync(join(directory, 'project.json'), 'utf8'))
    const record = join(settings.record, 'compiled')
    fs.writeFileSync(record, '')
    fs.chmodSync(record, 0o666)
    const end = await built(settings, join(directory, 'source'), { name, project })
    const recorded = [...new Set(fs.readFileSync(record, 'utf8').split('\n').filter(Boolean).map(recordedAs))].sort()
    ends.push({ ...end, recorded })
  }
  fs.writeFileSync(settings.output, JSON.stringify(ends))
}

type Corpus = { readonly name: string; readonly project: Omit<CorpusProject, 'files'> }

async function built(
  settings: CorpusSettings,
  from: string,
  { name, project }: Corpus,
): Promise<Omit<CorpusEnd, 'recorded'>> {
  const { what, projectDir = null, options, fetches = false } = project
  const fetch = fetches ? settings.fetch : null
  const workDir = join(settings.scratch, name)
  fs.mkdirSync(workDir, { mode: 0o711 })
  const root = join(workDir, 'source')
  await run(['cp', '--archive', '--', from, root], { timeoutMs: 60_000, outputBytesMax: 65_536 })
  const caBundle = join(workDir, 'ca.pem')
  fs.writeFileSync(caBundle, fetch?.ca ?? '', { mode: 0o644 })
  const order = orderOf({
    projectDir,
    fetch,
    options: options === undefined ? null : { cargo: { ...none, ...options } },
    limits: { ...testLimits, fetchSeconds: 900, buildSeconds: 900 },
  })
  const phase: Phase = {
    site: { cgroups: { root: settings.cgroupRoot, needed: [] }, scratch: settings.scratch, clock: systemClock },
    job: new Job(),
    order,
    workDir,
    caBundle,
    tools: {
      path: '/opt/recorder:/opt/rust/bin:/usr/bin',
      binds: [
        { from: '/usr', to: '/usr', writable: false },
        { from: settings.rust, to: '/opt/rust', writable: false },
        { from: settings.recorder, to: '/opt/recorder', writable: false },
        { from: settings.record, to: '/opt/record', writable: true },
      ],
      fileOf: program =>
        ['cargo', 'rustc'].includes(program) ? `${settings.rust}/bin/${program}` : `/usr/bin/${program}`,
      goLibrary: null,
      records: null,
    },
  }
  const openNetwork = async () => fetch?.proxy ?? ''
  try {
    const tree = await hashTree(root, { bytesMax: 1e8, entriesMax: 10_000, timeSeconds: 0 })
    const found = await findProject(root, { ...order, sourceName: 'source' }, TOOLCHAINS)
    const source = { root, tree, uri: '', commit: null, name: 'source', submodules: [], missingSubmodules: [] }
    const toolchain = await cargoToolchain.start(phase, found, source, openNetwork)
    await toolchain.fetch(openNetwork)
    const artifacts = await collect(await toolchain.build(1), order.limits)
    const { packages } = await toolchain.facts()
    return {
      what,
      failure: null,
      artifacts: artifacts.map(artifact => artifact.name),
      packages: packages.map(packageAs),
      lock: toolchain.lock.path,
    }
  } catch (error) {
    const { errorType, message } = failureOf(error)
    return { what, failure: `${errorType}: ${message}`, artifacts: [], packages: [], lock: '' }
  } finally {
    await run(['rm', '--recursive', '--force', '--', workDir], { timeoutMs: 60_000, outputBytesMax: 65_536 })
  }
}

function packageAs(pkg: LockedPackage): CorpusPackage {
  if (pkg.kind !== 'crate') throw new Error(`a package of another kind, ${pkg.kind}`)
  const { name, version, origin, compiled, from } = pkg
  const place =
    from.kind === 'tree' ? `source:${from.path}` : from.kind === 'git' ? `git:${from.commit.slice(0, 7)}` : 'registry'
  return {
    text: `${name} ${version} ${origin}${compiled ? '' : ' (not compiled)'}`,
    compiled: compiled ? `${name} ${version} ${place}` : null,
  }
}

/** A line of the recording compiler: name, version and directory of the package. */
function recordedAs(line: string): string {
  const [name, version, ...rest] = line.split(' ')
  const directory = rest.join(' ')
  const [, inSource] = /^\/build\/source\/?(.*)$/.exec(directory) ?? []
  const [, commit] = /^\/build\/cargo\/git\/checkouts\/[^/]+\/([0-9a-f]{7,})/.exec(directory) ?? []
  const inRegistry = directory.startsWith('/build/cargo/registry/src/')
  const place =
    inSource !== undefined
      ? `source:${inSource}`
      : commit !== undefined
        ? `git:${commit.slice(0, 7)}`
        : inRegistry
          ? 'registry'
          : directory
  return `${name} ${version} ${place}`
}
