// Runs a build from its order to its result, phase by phase. Effects: those of the phases.
//
// source → tree id → dispatch receipt → detect → fetch → network removed → build → all processes killed → artifacts →
// documents → completion receipt → archive

import { NETWORK_POLICIES } from '../attest/provenance/network-policy.ts'
import { RESULT_PATHS } from '../attest/provenance/paths.ts'
import type { BuildRecord, Tool } from '../attest/provenance/record.ts'
import { writeDocuments } from '../attest/provenance/write.ts'
import type { ReceiptKeys } from '../attest/receipt/receipt-keys.ts'
import { toHex } from '../base/bytes.ts'
import { hexBytes } from '../guest/report/signed-statement.ts'
import type { Attester, Stage } from './attester.ts'
import { type Candidate, type CollectedFile, collect } from './collect.ts'
import { writeResult } from './exchange.ts'
import { awaitProxy, proxyAddress } from './network.ts'
import { orderWords } from './order.plan.ts'
import type { Phase } from './phase.ts'
import { findProject } from './project.ts'
import { artifactEntry, resultArchive } from './result-archive.ts'
import { type Source, takeSource } from './source/extract-source.ts'
import { TOOLCHAINS } from './toolchains.ts'

type RunBuildDeps = {
  readonly phase: Phase
  /** Path of the exchange disk. */
  readonly device: string
  readonly attester: Attester
  /** Keys that sign the envelope. */
  readonly keys: ReceiptKeys
  /** Resolves when the host has completed the evidence. */
  readonly attest: (stage: Stage) => Promise<void>
  readonly guest: Promise<Tool>
  readonly image: { readonly name: string; readonly rootHash: string | null }
  readonly takeNetworkDown: () => Promise<void>
}

/** Runs the build. Every failure is a BuildFailure, or becomes `internal`. */
export async function runBuild(
  conducting: RunBuildDeps,
): Promise<{ sizeBytes: number; sha256: string; provenanceSha256: string }> {
  const { phase, attester } = conducting
  const { job, order, site } = phase
  const { nowMs, monotonicMs } = site.clock
  const startedAtMs = nowMs()
  const startedMs = monotonicMs()
  const seconds = () => `${((monotonicMs() - startedMs) / 1000).toFixed(1)} s`
  const nonce = hexBytes(order.nonce)
  const networkPolicy = order.fetch === null ? NETWORK_POLICIES.none : NETWORK_POLICIES.fetchOnly
  const openNetwork = () => proxyOf(phase)

  const source = await takeSource(phase, conducting.device, openNetwork)
  job.say(
    'init',
    `source tree ${source.tree.sha1}, ${source.tree.fileCount} files, ${source.tree.sizeBytes} bytes, ${seconds()}`,
  )
  const sourceDigest = hexBytes(source.tree.sha256)
  await conducting.attest({
    stage: 'dispatch',
    jobId: order.jobId,
    nonce,
    sourceDigest,
    networkPolicy,
    order: orderWords(order),
  })
  job.say('init', `dispatch receipt made before any source code runs, ${seconds()}`)

  const project = await findProject(source.root, { ...order, sourceName: source.name }, TOOLCHAINS)
  const where = project.dir === '' ? '' : ` in ${project.dir}`
  const toolchain = await TOOLCHAINS[project.toolchain].start(phase, project, source, openNetwork)
  const { lock } = toolchain
  job.say('detect', `${project.toolchain}${where}, project ${project.name}, ${lock.path} ${lock.sha256}, ${seconds()}`)
  if (project.judgement !== null) job.say('detect', `${project.judgement}; \`toolchain\` chooses`)

  await toolchain.fetch(openNetwork)
  // Before the first line of the source runs, even without a fetch.
  await conducting.takeNetworkDown()
  job.endNetwork()
  job.say('fetch', `done, the network is removed, ${seconds()}`)

  const artifacts = await collect(await toolchain.build(1), order.limits)
  job.say('build', `done, artifacts: ${artifacts.map(artifact => artifact.name).join(', ')}; ${seconds()}`)
  const reproducible = order.reproduce ? await builtAgain(phase, artifacts, () => toolchain.build(2)) : null

  const documents = await writeDocuments(
    {
      ...(await toolchain.facts()),
      jobId: order.jobId,
      builderId: order.builderId,
      request: requestOf(phase),
      order,
      source: sourceRecord(source),
      project: project.name,
      projectVersion: project.version,
      guest: await conducting.guest,
      networkPolicy,
      lockFile: { name: lock.path.split('/').at(-1) ?? '', path: lock.path, sha256: lock.sha256 },
      imageSummary: order.imageSummary,
      image: { ...conducting.image, measurement: attester.measurement() },
      startedAtMs,
      finishedAtMs: nowMs(),
      artifacts: artifacts.map(({ name, sha256, sizeBytes }) => ({
        name,
        sha256,
        sizeBytes,
        reproducible: reproducible === null ? null : reproducible.has(name),
      })),
      log: job.logBytes(),
    },
    conducting.keys,
  )
  job.say('provenance', `SHA-256 ${toHex(documents.provenanceDigest)}, ${seconds()}`)
  const { provenanceDigest } = documents
  await conducting.attest({ stage: 'completion', nonce, sourceDigest, networkPolicy, provenanceDigest })
  job.say('attest', `completion receipt made, ${seconds()}`)

  const entries = [
    ...documents.files.map(({ path, bytes }) => ({ kind: 'bytes', path, bytes }) as const),
    { kind: 'bytes', path: RESULT_PATHS.evidence, bytes: attester.evidenceFile() } as const,
    ...artifacts.map(artifactEntry),
  ]
  const written = await writeResult(conducting.device, resultArchive(project.name, entries))
  job.say('attest', `result: ${written.sizeBytes} bytes, SHA-256 ${written.sha256}, ${seconds()}`)
  return { ...written, provenanceSha256: toHex(provenanceDigest) }
}

const lfsNamedMax = 100

function sourceRecord({ uri, commit, tree, submodules }: Source): BuildRecord['source'] {
  const lfsPointers = { count: tree.lfsPointers.length, first: tree.lfsPointers.slice(0, lfsNamedMax) }
  return { uri, commit, submodules, treeSha1: tree.sha1, treeSha256: tree.sha256, lfsPointers }
}

/** Returns the proxy of the fetch after the host has opened the network. */
async function proxyOf({ order, job, site }: Phase): Promise<string> {
  const proxy = order.fetch?.proxy ?? ''
  const address = proxyAddress(proxy)
  job.wantNetwork()
  await awaitProxy(address, site.clock, job.signal)
  return proxy
}

/** Returns the names of artifacts that a second build, in its own copy at the same path, reproduced byte by byte. */
async function builtAgain(
  { job, order }: Phase,
  first: readonly CollectedFile[],
  build: () => Promise<readonly Candidate[]>,
): Promise<ReadonlySet<string>> {
  job.say('build', 'once more, to compare')
  const second = new Map(
    (await collect(await build(), order.limits)).map(collected => [collected.name, collected.sha256]),
  )
  const same = first
    .filter(collected => second.get(collected.name) === collected.sha256)
    .map(collected => collected.name)
  for (const { name } of first)
    job.say('build', `${name}: ${same.includes(name) ? 'reproducible' : 'differs between two builds'}`)
  return new Set(same)
}

function requestOf({ order }: Phase) {
  const { source, nonce, projectDir, toolchain, reproduce, options, waivers, accepts } = order
  const git = source.kind === 'git' ? source : null
  const archive =
    source.kind === 'archive' ? { name: source.name, sha256: source.sha256, sizeBytes: source.sizeBytes } : null
  return {
    nonce,
    repoUrl: git?.url ?? null,
    repoRef: git?.ref ?? null,
    archive,
    projectDir,
    toolchain,
    reproduce,
    options,
    waivers,
    fetchCaSha256: accepts.caSha256,
    cratesMirror: accepts.cratesMirror,
  }
}
