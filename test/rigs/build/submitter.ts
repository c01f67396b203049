// A client that runs `build submit` against a service whose VM returns what the test sets; its source, and results of
// it. Effects: files, servers.

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { type BuildsChanges, type BuildsRig, startBuilds } from '../../../scripts/rigs/build/builds-service.ts'
import { goodScript, type Step } from '../../../scripts/rigs/build/engine.ts'
import { writeBuilderImage } from '../../../scripts/rigs/build/image-directory.ts'
import { cargoRecord } from '../../../scripts/rigs/build/record.ts'
import { type ResultChanges, type SampleResult, sampleResult } from '../../../scripts/rigs/build/result.ts'
import { simulatedAsOf, simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { measureIgvm } from '../../../src/attest/igvm/measure.ts'
import type { BuildRecord } from '../../../src/attest/provenance/record.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { runCli } from '../../../src/cli/index.ts'
import { packSource } from '../../../src/client/source/pack.ts'
import { packDirectory, treeOfPacked } from '../../../src/client/source/source-tree.ts'
import { openAuthority } from '../../../src/http/authority.ts'

export type Ran = { readonly code: number; readonly stdout: string; readonly stderr: string }

export type SubmitOptions = {
  readonly from?: string
  readonly isTerminal?: boolean
  readonly key?: string
  /** Options without a value that are left out. */
  readonly without?: readonly string[]
  /** Directory with strongroom/client.toml; default: there is none. */
  readonly configHome?: string
  /** Called with what SIGINT is to call. */
  readonly onSignal?: (listener: () => void) => void
  /** Called with all that stderr has got so far. */
  readonly onStderr?: (written: string) => void
}

export type Submitting = AsyncDisposable & {
  readonly rig: BuildsRig
  /** Address of the service. */
  readonly api: string
  readonly caFile: string
  /** Where results go; empty. */
  readonly output: string
  /** A test's hook on requests before the service. */
  intercept: ((request: Request) => Promise<Response | null>) | null
  /** The command with all that it needs; `more` goes behind. */
  readonly submit: (more?: readonly string[], options?: SubmitOptions) => Promise<Ran>
}

export type BuildSubmitter = Disposable & {
  readonly dir: string
  /** Directory of the source: one file, and one that is left out. */
  readonly source: string
  readonly rootFile: string
  /** Sample result of that source. */
  readonly sample: SampleResult
  /** The same as the archive that a service hands out. */
  readonly archive: Uint8Array
  /** Result archive of another build. */
  readonly archiveOf: (changes: ResultChanges) => Promise<Uint8Array>
  /** A service with a good build of this result. */
  readonly start: (changes?: BuildsChanges) => Promise<Submitting>
}

/** A good build with this result. */
export const scriptOf = (bytes: Uint8Array): Step[] => [...goodScript.slice(0, -1), { kind: 'ok', bytes }]

/** Record of a build of this directory, as `build submit` sends it. */
export async function recordOf(directory: string): Promise<Pick<BuildRecord, 'request' | 'source'>> {
  const { bytes } = await packDirectory(directory)
  const { sha1, sha256: treeSha256 } = await treeOfPacked(bytes, 'source', null)
  const packed = { name: `${basename(directory)}.tar.gz`, sha256: toHex(sha256(bytes)), sizeBytes: bytes.length }
  return {
    request: { ...cargoRecord.request, repoUrl: null, repoRef: null, archive: packed },
    source: { ...cargoRecord.source, uri: '', commit: null, treeSha1: sha1, treeSha256 },
  }
}

export async function openBuildSubmitter(): Promise<BuildSubmitter> {
  const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-submit-`))
  const source = join(dir, 'hello')
  const imageDirectory = join(dir, 'image')
  const [caFile, rootFile] = [join(dir, 'ca.pem'), join(dir, 'root.pem')]
  const image = await writeBuilderImage(imageDirectory)
  const { digest: measurement } = await measureIgvm(new Uint8Array(readFileSync(image.igvm)), { profile: 'qemu-kvm' })
  mkdirSync(join(source, 'target'), { recursive: true })
  writeFileSync(join(source, 'Cargo.toml'), '[package]')
  writeFileSync(join(source, 'target', 'x'), 'built')
  const record = await recordOf(source)
  const resultOf = async (changes: ResultChanges) =>
    await sampleResult({ measurement, ...changes, record: { ...record, ...changes.record } })
  const sample = await resultOf({})
  const archive = await packed(dir, sample)
  const deps = { kind: 'clients' as const, stateDir: dir, nowMs: Date.now, random: systemRandom }
  const authority = await openAuthority({ ...deps, names: ['localhost'] })
  const tls = await authority.issue(['localhost', '127.0.0.1'], 1)
  writeFileSync(caFile, authority.caPem)
  const { ark, ask } = (await simulatedPlatform('genoa')).authority.root
  writeFileSync(rootFile, [ark, ask].map(der => toPem(der, 'CERTIFICATE')).join(''))
  const asked = [
    ...['--ca', caFile, '--nonce', toHex(sample.nonce), '--trust-simulated-root', rootFile],
    ...['--as-of', simulatedAsOf.toISOString(), '--igvm', image.igvm, '--image', imageDirectory],
    '--own-image',
  ]
  return {
    dir,
    source,
    rootFile,
    sample,
    archive,
    archiveOf: async changes => await packed(dir, await resultOf(changes)),
    start: async changes => await startSubmitting({ dir, source, tls, archive, asked, caFile }, changes),
    [Symbol.dispose]: () => rmSync(dir, { recursive: true, force: true }),
  }
}

async function packed(dir: string, { files }: SampleResult): Promise<Uint8Array> {
  const at = mkdtempSync(join(dir, 'packed-'))
  const paths = [...files.keys()].map(path => `demo/${path}`)
  for (const [path, bytes] of files) {
    mkdirSync(dirname(join(at, 'demo', path)), { recursive: true })
    writeFileSync(join(at, 'demo', path), bytes, { mode: path.startsWith('artifacts/') ? 0o755 : 0o644 })
  }
  return (await packSource(at, paths.sort(), 50_000_000)).bytes
}

type Site = {
  readonly dir: string
  readonly source: string
  readonly tls: { readonly cert: string; readonly key: string }
  readonly archive: Uint8Array
  readonly asked: readonly string[]
  readonly caFile: string
}

async function startSubmitting(
  { dir, source, tls, archive, asked, caFile }: Site,
  changes?: BuildsChanges,
): Promise<Submitting> {
  const rig = await startBuilds(changes)
  rig.world.script = scriptOf(archive)
  const output = mkdtempSync(join(dir, 'out-'))
  const front = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls,
    idleTimeout: 60,
    fetch: async request =>
      (await self.intercept?.(request)) ?? rig.builds().fetch(request, { address: () => '', mayPause: () => {} }),
  })
  const api = `https://127.0.0.1:${front.port}`
  const self: Submitting = {
    rig,
    api,
    caFile,
    output,
    intercept: null,
    submit: async (more = [], options = {}) => {
      const { from = source, isTerminal = false, key = rig.keys.acme, onSignal, onStderr } = options
      const { without = [], configHome = '/nonexistent' } = options
      const written = { stdout: '', stderr: '' }
      const given = asked.filter(text => !without.includes(text))
      const code = await runCli(['build', 'submit', from, '--api', api, '--output', output, ...given, ...more], {
        stdout: async text => {
          written.stdout += text
        },
        stderr: async text => {
          written.stderr += text
          onStderr?.(written.stderr)
        },
        stdoutIsTerminal: isTerminal,
        stderrIsTerminal: isTerminal,
        env: { PATH: process.env.PATH, STRONGROOM_API_KEY: key, XDG_CONFIG_HOME: configHome },
        onSignal: (signal, listener) => {
          if (signal === 'SIGINT') onSignal?.(listener)
          return () => {}
        },
      })
      return { code, ...written }
    },
    [Symbol.asyncDispose]: async () => {
      await front.stop(true)
      await rig[Symbol.asyncDispose]()
    },
  }
  return self
}
