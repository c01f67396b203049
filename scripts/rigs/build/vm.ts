// The builder as a process over a scratch disk in memory, with the host's half of the wire: a build VM without the
// VM. Effects: needs root; mounts, a process; cleans up.

import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { encodeReceipt } from '../../../src/attest/receipt/receipt.ts'
import { reportDataOf } from '../../../src/attest/receipt/statement.ts'
import { fromBase64Url, fromHex, toBase64Url } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { endLeftCgroups } from '../../../src/builder/confined/cgroup.ts'
import type { BuildEvidence, BuildLine, BuildProgress } from '../../../src/contract/vm/build-agent.ts'
import type { BuildLimits, BuildOrder } from '../../../src/contract/vm/build-order.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { type HostEnd, makeHostEnd, type PortPaths } from '../guest/agent-port.ts'
import { succeed } from '../guest/root.ts'
import { simulatedPlatform } from '../launch/simulated-platform.ts'
import { until } from '../until.ts'
import type { BuilderProcessSettings } from './builder-process.ts'
import type { GoTools } from './go-tools.ts'
import { ownUsers } from './own-users.ts'
import { takeVmPlace, type VmPlace } from './vm-places.ts'

export const buildMeasurement = '5a'.repeat(48)
export const buildOperatorKey = '6b'.repeat(48)
export const buildNonce = '00112233445566778899aabbccddeeff'
export const builderId = 'https://builder.strongroom.test/v1'

const MiB = 1024 ** 2
const scratchMiB = 3072
const exchangeBytes = 512 * MiB

export const testLimits: BuildLimits = {
  sourceBytes: 256 * MiB,
  sourceEntries: 50_000,
  fetchSeconds: 120,
  fetchBytes: 256 * MiB,
  buildSeconds: 240,
  memoryBytes: 2048 * MiB,
  pids: 512,
  diskBytes: 1024 * MiB,
  logBytes: 4 * MiB,
  artifactBytes: 256 * MiB,
  artifactCount: 64,
}

/** Where a recent cargo is: Debian's own may be years old, and builds name an edition. */
export function findRust(): string | null {
  const env = { ...process.env, PATH: `/root/.cargo/bin:${process.env.PATH}` }
  const { exitCode, stdout } = Bun.spawnSync(['rustc', '--print', 'sysroot'], { env, stderr: 'ignore' })
  const sysroot = stdout.toString().trim()
  return exitCode === 0 && fs.existsSync(`${sysroot}/bin/cargo`) ? sysroot : null
}

export const cgroup2Root = (): string | null =>
  fs
    .readFileSync('/proc/mounts', 'utf8')
    .split('\n')
    .map(line => line.split(' '))
    .find(([, , type]) => type === 'cgroup2')?.[1] ?? null

export type BuildVm = AsyncDisposable & {
  readonly root: string
  readonly scratch: string
  readonly exchange: string
  /** User of a build's programs, as this machine counts users. No other VM has it. */
  readonly buildUid: number
  readonly request: (op: Record<string, unknown>) => Promise<Record<string, unknown>>
  /** Kills the builder in the middle of whatever it does, and starts another, as init does. */
  readonly restart: () => Promise<void>
  /** Orders the build, completes its evidence, and follows it to its end. */
  readonly build: (order: Partial<BuildOrder> & { archive?: Uint8Array }, follow?: Follow) => Promise<BuildEnd>
}

export type Follow = {
  /** Called with each answer, before the next is asked for. */
  readonly onProgress?: (progress: BuildProgress) => void | Promise<void>
}

export type BuildEnd = {
  readonly lines: readonly BuildLine[]
  readonly result: NonNullable<BuildProgress['result']>
  /** Archive on the exchange disk; null for a failed build. */
  readonly archive: Uint8Array | null
  readonly evidence: Partial<Record<'dispatch' | 'completion', BuildEvidence>>
  readonly networks: readonly string[]
  readonly elapsedMs: number
}

/** Waits for a place (vm-places.ts), so a test holds one VM at a time. */
export async function startBuildVm({
  device = false,
  nodeTools = null,
  goTools = null,
}: {
  device?: boolean
  /** Directories of Go (go-tools.ts). */
  goTools?: GoTools | null
  /** Directory of npm and pnpm (node-tools.ts). */
  nodeTools?: string | null
} = {}): Promise<BuildVm> {
  const place = await takeVmPlace()
  try {
    return await startVm({ device, nodeTools, goTools }, place)
  } catch (error) {
    place[Symbol.dispose]()
    throw error
  }
}

async function startVm(
  { device, nodeTools, goTools }: { device: boolean; nodeTools: string | null; goTools: GoTools | null },
  place: VmPlace,
): Promise<BuildVm> {
  const root = fs.mkdtempSync(`/tmp/srt-${process.pid}-build-vm-`)
  fs.chmodSync(root, 0o755)
  const [scratch, rust, exchange] = [join(root, 'scratch'), join(root, 'rust'), join(root, 'exchange')]
  for (const dir of [scratch, rust]) fs.mkdirSync(dir)
  succeed(['mount', '-t', 'tmpfs', '-o', `nosuid,nodev,mode=0755,size=${scratchMiB}m`, 'tmpfs', scratch])
  const sysroot = findRust()
  // Read-only: whatever removes the directory leaves the machine's own toolchain alone.
  if (sysroot !== null) succeed(['mount', '--bind', '-o', 'ro', sysroot, rust])
  fs.writeFileSync(exchange, '')
  fs.truncateSync(exchange, exchangeBytes)
  const paths = guestPaths(root)
  for (const dir of ['run/strongroom', 'usr/lib/strongroom', 'proc/sys/kernel/random', 'dev', 'etc/ssl/certs']) {
    fs.mkdirSync(join(root, dir), { recursive: true })
  }
  fs.writeFileSync(paths.imageFile, '{"name":"builder"}')
  fs.writeFileSync(paths.bootId, '0f0e0d0c-0b0a-4908-8706-050403020100\n')
  // Cgroup of this VM alone: other VMs of the machine may build at the same time.
  const cgroupRoot = join(cgroup2Root() ?? '/sys/fs/cgroup', root.slice('/tmp/'.length))
  fs.mkdirSync(cgroupRoot)
  const port: PortPaths = { toGuest: join(root, 'to-guest'), fromGuest: join(root, 'from-guest') }
  succeed(['mkfifo', port.toGuest, port.fromGuest])
  const settings: BuilderProcessSettings = {
    root,
    scratch,
    exchange,
    port,
    device,
    cgroupRoot,
    tools: {
      path: `/opt/rust/bin:${nodeTools === null ? '' : '/opt/node/bin:'}${goTools === null ? '' : `${goTools.path}:`}/usr/bin`,
      binds: [
        { from: '/usr', to: '/usr' },
        { from: rust, to: '/opt/rust' },
        ...(nodeTools === null ? [] : [{ from: nodeTools, to: '/opt/node' }]),
        ...(goTools?.binds ?? []),
      ],
      files: {
        ...{ cargo: `${rust}/bin/cargo`, rustc: `${rust}/bin/rustc` },
        ...(nodeTools === null ? {} : { npm: `${nodeTools}/bin/npm`, pnpm: `${nodeTools}/bin/pnpm` }),
        ...(goTools === null ? {} : { go: goTools.file }),
      },
      goLibrary: goTools?.library ?? null,
    },
  }
  const log = fs.openSync(join(root, 'output'), 'w')
  const users = ownUsers(place)
  const start = async () => {
    const program = [process.execPath, join(import.meta.dir, 'builder-process.ts'), JSON.stringify(settings)]
    // Must not reach a build's program.
    const env = { ...process.env, STRONGROOM_SECRET: 'agent-secret' }
    const child = await users.spawn(program, { output: log, env })
    const host = await makeHostEnd(port)
    return { child, host, client: new Client(host) }
  }
  const stop = async () => {
    running.child.kill('SIGKILL')
    await running.child.exited
    running.host[Symbol.dispose]()
  }
  let running = await start()
  /** Asks the builder that runs now, so a build goes on over a restart. */
  const request: BuildVm['request'] = op => running.client.request(op)
  return {
    root,
    scratch,
    exchange,
    buildUid: users.buildUid,
    request,
    build: (order, follow = {}) => runBuild({ request }, exchange, order, follow),
    restart: async () => {
      await stop()
      running = await start()
    },
    [Symbol.asyncDispose]: async () => {
      await stop()
      await endLeftCgroups({ root: cgroupRoot, needed: [] }, systemClock)
      fs.rmdirSync(cgroupRoot)
      fs.closeSync(log)
      for (const dir of [rust, scratch]) Bun.spawnSync(['umount', '--lazy', dir], { stderr: 'ignore' })
      fs.rmSync(root, { recursive: true, force: true })
      place[Symbol.dispose]()
    },
  }
}

class Client {
  readonly #host: HostEnd
  #next = 0

  constructor(host: HostEnd) {
    this.#host = host
  }

  async request(op: Record<string, unknown>): Promise<Record<string, unknown>> {
    this.#next += 1
    const id = `t-${this.#next}`
    await this.#host.writeAll(Buffer.from(`${JSON.stringify({ id, ...op })}\n`))
    const [line = ''] = await this.#host.readLines(1)
    const response = JSON.parse(line)
    if (response.id !== id) throw new Error(`a response to ${response.id}, not to ${id}`)
    return response
  }
}

function sourceOf(archive: Uint8Array, exchange: string): BuildOrder['source'] {
  const fd = fs.openSync(exchange, 'r+')
  fs.writeSync(fd, archive, 0, archive.length, 0)
  fs.closeSync(fd)
  const sha256 = createHash('sha256').update(archive).digest('hex')
  return { kind: 'archive', name: null, sizeBytes: archive.length, sha256 }
}

export function orderOf(changes: Partial<BuildOrder>): BuildOrder {
  return {
    jobId: crypto.randomUUID(),
    nonce: buildNonce,
    source: { kind: 'archive', name: null, sizeBytes: 1, sha256: '00'.repeat(32) },
    projectDir: null,
    toolchain: null,
    reproduce: false,
    options: null,
    waivers: [],
    // As a client that names what its service has of its own; a test of a hostile host says otherwise.
    accepts: {
      caSha256: changes.fetch?.ca == null ? null : createHash('sha256').update(changes.fetch.ca).digest('hex'),
      cratesMirror: changes.fetch?.cratesMirror ?? null,
    },
    builderId,
    imageSummary: null,
    limits: testLimits,
    fetch: null,
    ...changes,
  }
}

async function runBuild(
  client: Pick<BuildVm, 'request'>,
  exchange: string,
  { archive, ...changes }: Partial<BuildOrder> & { archive?: Uint8Array },
  { onProgress }: Follow,
): Promise<BuildEnd> {
  const startedMs = performance.now()
  const source = archive === undefined ? {} : { source: sourceOf(archive, exchange) }
  const order = orderOf({ ...source, ...changes })
  const taken = await client.request({ op: 'build', order })
  if (taken.ok !== true) throw new Error(`build: ${JSON.stringify(taken)}`)
  const lines: BuildLine[] = []
  const evidence: { dispatch?: BuildEvidence; completion?: BuildEvidence } = {}
  const networks: string[] = []
  const ends: NonNullable<BuildProgress['result']>[] = []
  await until('the build ends', 1_500_000, async () => {
    const response = await client.request({ op: 'progress', from: lines.length })
    const progress = response.progress as BuildProgress
    lines.push(...progress.lines)
    if (networks.at(-1) !== progress.network) networks.push(progress.network)
    await onProgress?.(progress)
    if (progress.waitsFor !== null) evidence[progress.waitsFor] = await vouch(client, order)
    if (progress.result !== null) ends.push(progress.result)
    return ends.length > 0
  })
  const [ended] = ends
  if (ended === undefined) throw new Error('no result')
  return {
    lines,
    evidence,
    networks,
    result: ended,
    archive: ended.status === 'ok' ? firstBytesOf(exchange, ended.sizeBytes) : null,
    elapsedMs: performance.now() - startedMs,
  }
}

/** Reads no more: most of the file is a hole, and reading that takes seconds. */
function firstBytesOf(path: string, sizeBytes: number): Uint8Array {
  const bytes = new Uint8Array(sizeBytes)
  const fd = fs.openSync(path, 'r')
  try {
    if (fs.readSync(fd, bytes, 0, sizeBytes, 0) !== sizeBytes) throw new Error(`${path} is shorter than ${sizeBytes}`)
    return bytes
  } finally {
    fs.closeSync(fd)
  }
}

/** As src/vm/evidence/build.driver.ts does, on a simulated platform. */
async function vouch(client: Pick<BuildVm, 'request'>, { nonce }: BuildOrder): Promise<BuildEvidence> {
  const simulated = { measurement: buildMeasurement, operatorKey: buildOperatorKey }
  let response = await client.request({ op: 'vouch', simulated })
  // A guest with a device of its own wants no simulation.
  if (response.ok !== true) response = await client.request({ op: 'vouch', simulated: null })
  if (response.ok !== true) throw new Error(`vouch: ${JSON.stringify(response)}`)
  const said = response.vouched as BuildEvidence
  const statement = decodeBase64Url(said.statement)
  const report = said.report === null ? await reportOver(reportDataOf(statement)) : decodeBase64Url(said.report)
  const { authority, vcek } = await simulatedPlatform('genoa')
  const chain = [authority.root.ask, authority.root.ark] as const
  const receipt = encodeReceipt({
    platform: said.report === null ? 'simulated' : 'snp',
    statement,
    keys: {
      ed25519: decodeBase64Url(said.keys.ed25519),
      mldsa65: decodeBase64Url(said.keys.mldsa65),
      x25519: decodeBase64Url(said.keys.x25519),
      mlkem768: decodeBase64Url(said.keys.mlkem768),
    },
    signatures: {
      ed25519: decodeBase64Url(said.signatures.ed25519),
      mldsa65: decodeBase64Url(said.signatures.mldsa65),
    },
    evidence: { report, vek: vcek, chain },
  })
  const provenance = said.provenance === null ? null : await certified(said.provenance, nonce)
  const kept = await client.request({ op: 'vouched', stage: said.stage, receipt: JSON.stringify(receipt), provenance })
  if (kept.ok !== true) throw new Error(`vouched: ${JSON.stringify(kept)}`)
  return said

  async function certified(wanted: NonNullable<BuildEvidence['provenance']>, nonceHex: string) {
    const data = Buffer.concat([hexOf(wanted.sha256), hexOf(nonceHex), new Uint8Array(16)])
    const over = wanted.report === null ? await reportOver(data) : decodeBase64Url(wanted.report)
    return { report: toBase64Url(over), vek: toBase64Url(vcek), ask: toBase64Url(chain[0]), ark: toBase64Url(chain[1]) }
  }
}

async function reportOver(reportData: Uint8Array): Promise<Uint8Array> {
  const { report } = await simulatedPlatform('genoa')
  return report({
    reportData,
    measurement: hexOf(buildMeasurement),
    // Firmware that is up to date, as the verifier's own policy wants it.
    report: { idKeyDigest: hexOf(buildOperatorKey), platformInfo: 0x21n },
  })
}

function decodeBase64Url(text: string): Uint8Array {
  return fromBase64Url(text) ?? new Uint8Array(0)
}

function hexOf(text: string): Uint8Array {
  return fromHex(text) ?? new Uint8Array(0)
}
