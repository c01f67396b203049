// Fetches the Rust toolchain that a source pins from a mirror of Rust's distribution. Effects: curl and tar, confined;
// files on scratch.
//
// The manifest's digest comes from the same mirror, so it only detects damage. The client chose the mirror, and the
// evidence contains each digest.

import * as fs from 'node:fs'
import { type FetchedRust, isChannelOf } from '../../attest/provenance/compiler.ts'
import { runProgram } from '../confined/program.ts'
import { sha256Of } from '../digest.ts'
import { refuseUnless } from '../failure.ts'
import { boundsOf, type Phase, places, plainEnvironment, uids } from '../phase.ts'
import { readBounded } from '../project.ts'
import { toolOf } from '../tool.ts'
import { giveTo, makeDir, openToAll, remove } from '../workspace.ts'
import { rustDownloadArgv, rustDownloadName, rustUnpackArgv } from './cargo.plan.ts'
import { type ChannelNeeds, componentsOf, manifestUri, readDigestFile, uselessOf } from './channel.codec.ts'

const manifestBytesMax = 8 * 1024 * 1024
const processesMax = 16

type RustOrder = {
  /** Address in the form of a request. */
  readonly mirror: string
  /** `X.Y.Z`. */
  readonly version: string
  readonly needs: ChannelNeeds
  /** The requested target, or null for the builder's own. */
  readonly target: string | null
  readonly openNetwork: () => Promise<string>
}

/**
 * Returns the phase with the fetched toolchain ahead of the builder's own programs. Failures: `source_unreachable`,
 * `checksum_mismatch`, `source_invalid` (the channel lacks a component or target), and those of runProgram.
 */
export async function fetchRust(
  phase: Phase,
  { mirror, version, needs, target, openNetwork }: RustOrder,
): Promise<{ readonly phase: Phase; readonly rust: FetchedRust }> {
  const { job, workDir, order } = phase
  job.say('fetch', `Rust ${version} from ${mirror}`)
  const left = uselessOf(needs)
  if (left.length > 0) job.say('fetch', `skipped, because builds do not need them: ${left.join(', ')}`)
  const proxy = await openNetwork()
  const scratch = makeDir(`${workDir}/rust-fetch`, 0)
  fs.chmodSync(scratch, 0o711)
  const download = (uri: string, bytesMax: number) => downloadFile(phase, { uri, bytesMax, proxy, scratch })

  const uri = manifestUri(mirror, version)
  const stated = readDigestFile(await readText(await download(`${uri}.sha256`, 4096)), `${uri}.sha256`)
  const manifestFile = await download(uri, manifestBytesMax)
  await checkDigest(manifestFile, uri, stated)
  const components = componentsOf(await readText(manifestFile), { mirror, version, needs, target })

  const root = makeDir(`${workDir}/rust`, uids.fetch)
  for (const component of components) {
    const file = await download(component.uri, order.limits.fetchBytes)
    await checkDigest(file, component.uri, component.sha256)
    await unpack(phase, { file, root, what: component.uri })
    await remove(file)
    job.say('fetch', `${component.name}: SHA-256 ${component.sha256}, as in the manifest`)
  }
  await remove(scratch)
  await giveTo(0, root)
  await openToAll(root)
  for (const name of ['bin/cargo', 'bin/rustc']) {
    // A link could lead out of the toolchain, and the digest would be that of another file.
    const isThere =
      fs.existsSync(`${root}/${name}`) && fs.realpathSync(`${root}/${name}`) === `${fs.realpathSync(root)}/${name}`
    refuseUnless(isThere, 'checksum_mismatch', () => `rust_mirror: the toolchain of ${uri} has no file ${name}`)
  }
  const { tools } = phase
  const withRust: Phase = {
    ...phase,
    tools: {
      ...tools,
      path: `${places.rust}/bin:${tools.path}`,
      binds: [...tools.binds, { from: root, to: places.rust, writable: false }],
      fileOf: name => (name === 'cargo' || name === 'rustc' ? `${root}/bin/${name}` : tools.fileOf(name)),
      // The image's records describe its own compiler.
      records: null,
    },
  }
  const { version: found } = await toolOf(withRust, 'rustc')
  refuseUnless(
    isChannelOf(version, found),
    'checksum_mismatch',
    () => `rust_mirror: the compiler of ${uri} reports the version ${JSON.stringify(found.slice(0, 200))}`,
  )
  return { phase: withRust, rust: { mirror, version, manifest: { uri, sha256: stated }, components } }
}

type Download = { readonly uri: string; readonly bytesMax: number; readonly proxy: string; readonly scratch: string }

/** Downloads a file, and returns its path. No other program can change it. */
async function downloadFile(phase: Phase, { uri, bytesMax, proxy, scratch }: Download): Promise<string> {
  const own = makeDir(`${scratch}/${fs.readdirSync(scratch).length}-${uri.slice(uri.lastIndexOf('/') + 1)}`, uids.fetch)
  const code = await run(phase, {
    name: 'rust-fetch',
    network: true,
    argv: rustDownloadArgv(uri, { proxy, bytesMax }),
    binds: [
      { from: phase.caBundle, to: places.ca, writable: false },
      { from: own, to: places.home, writable: true },
    ],
  })
  await giveTo(0, own)
  refuseUnless(
    code === 0,
    'source_unreachable',
    () =>
      `rust_mirror: ${uri}: exit code ${code} of curl; ask the operator whether the mirror has this version: ${phase.job.tail()}`,
  )
  await openToAll(own)
  return `${own}/${rustDownloadName}`
}

async function unpack(phase: Phase, { file, root, what }: { file: string; root: string; what: string }): Promise<void> {
  const code = await run(phase, {
    name: 'rust-unpack',
    network: false,
    argv: rustUnpackArgv(),
    binds: [
      { from: file, to: places.archive, writable: false },
      { from: root, to: places.rust, writable: true },
    ],
  })
  refuseUnless(
    code === 0,
    'checksum_mismatch',
    () => `rust_mirror: ${what}: exit code ${code} of tar: ${phase.job.tail()}`,
  )
}

async function run(
  phase: Phase,
  program: {
    readonly name: string
    readonly network: boolean
    readonly argv: readonly string[]
    readonly binds: Phase['tools']['binds']
  },
): Promise<number> {
  const { site, job, order, tools, workDir } = phase
  const { name, network, argv, binds } = program
  return await runProgram(site, {
    name,
    bounds: {
      ...boundsOf(phase, order.limits.fetchSeconds),
      diskBytes: network ? order.limits.fetchBytes : order.limits.diskBytes,
      pids: processesMax,
    },
    signal: job.signal,
    onStdout: job.output('fetch'),
    onStderr: job.output('fetch'),
    plan: {
      uid: uids.fetch,
      network,
      nestedNamespaces: false,
      cwd: '/',
      argv,
      binds: [...tools.binds, ...binds],
      etcDir: `${workDir}/etc-fetch`,
      env: { ...plainEnvironment, PATH: tools.path },
    },
  })
}

async function checkDigest(file: string, uri: string, expected: string): Promise<void> {
  const found = await sha256Of(file)
  refuseUnless(
    found === expected,
    'checksum_mismatch',
    () => `rust_mirror: ${uri}: its SHA-256 is ${found}, and the mirror's own is ${expected}`,
  )
}

async function readText(file: string): Promise<string> {
  return await readBounded(file, 'rust_mirror')
}
