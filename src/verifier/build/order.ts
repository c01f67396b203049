// Compares the order that a build VM received from its host with the client's request. Pure.
//
// The dispatch receipt contains the digest of the whole order, and attestations/slsa.json the order itself. A host may
// write anything into an order, so whatever influences the result is compared with the request, and the rest is shown.

import { sourceCheckName } from '../../attest/check-names.ts'
import { parsedJson } from '../../attest/encoding/json.ts'
import { sha256 } from '../../attest/hash.ts'
import { parsed, wellFormed } from '../../attest/malformed.ts'
import {
  type FetchedRust,
  isChannelOf,
  type PinnedCompiler,
  rustComponentPrefix,
  rustManifestName,
} from '../../attest/provenance/compiler.ts'
import {
  listOf,
  members,
  optional,
  orNull,
  partly,
  type ReadBy,
  record,
  text,
  count as wholeNumber,
} from '../../attest/provenance/fields.ts'
import { NETWORK_POLICIES } from '../../attest/provenance/network-policy.ts'
import { RESULT_PATHS } from '../../attest/provenance/paths.ts'
import { type Provenance, sourceTreeName } from '../../attest/provenance/statement.ts'
import { type Check, fail, notChecked, pass } from '../../attest/verdict.ts'
import { equalConstantTime, toHex, utf8 } from '../../base/bytes.ts'
import { canonicalJson, type Plain } from '../../base/canonical-json.ts'
import { checkValue } from '../../contract/check.ts'
import type { ToolchainOptions } from '../../contract/http/build-options.ts'
import { cargoOptionsOf, OPTION_FIELDS, optionText } from '../../contract/http/option-words.ts'
import { BuildOrder, orderText } from '../../contract/vm/build-order.ts'
import type { AskedRequest, AskedSource, ReadResult } from './question.ts'
import { documentOf, sourceDigestOf } from './question.ts'
import type { JudgedReceipts } from './receipts.ts'

/**
 * How a verifier checks a field. `asked`: compares it with the request. `receipts`: compares it with receipts and
 * provenance. Otherwise: the reason why the field cannot change the result.
 */
export type OrderRule = 'asked' | 'receipts' | { readonly shown: string }

const boundOnly = { shown: 'a build that goes beyond it fails' } as const
const ofArchive = { shown: 'the tree id of what is in the archive is compared, however it is packed' } as const

/** Rules for all fields of an order, by path. */
export const ORDER_FIELDS = {
  jobId: 'receipts',
  nonce: 'receipts',
  'source.kind': 'asked',
  'source.name': 'asked',
  'source.sizeBytes': ofArchive,
  'source.sha256': ofArchive,
  'source.url': 'asked',
  'source.ref': 'asked',
  projectDir: 'asked',
  toolchain: 'asked',
  reproduce: 'asked',
  'options.cargo.package': 'asked',
  'options.cargo.bin': 'asked',
  'options.cargo.features': 'asked',
  'options.cargo.noDefaultFeatures': 'asked',
  'options.cargo.profile': 'asked',
  'options.cargo.target': 'asked',
  'options.cargo.rustMirror': 'asked',
  'options.nix.output': 'asked',
  'options.nix.caches': 'asked',
  'options.go.proxy': 'asked',
  'options.npm.registry': 'asked',
  'options.pnpm.registry': 'asked',
  waivers: 'asked',
  'accepts.caSha256': 'asked',
  'accepts.cratesMirror': 'asked',
  builderId: 'receipts',
  imageSummary: { shown: 'it names a document about the image, and no part of the build reads it' },
  'limits.sourceBytes': boundOnly,
  'limits.sourceEntries': boundOnly,
  'limits.fetchSeconds': boundOnly,
  'limits.fetchBytes': boundOnly,
  'limits.buildSeconds': boundOnly,
  'limits.memoryBytes': boundOnly,
  'limits.pids': boundOnly,
  'limits.diskBytes': boundOnly,
  'limits.logBytes': boundOnly,
  'limits.artifactBytes': boundOnly,
  'limits.artifactCount': boundOnly,
  'fetch.proxy': { shown: 'it carries TLS connections whose other end the VM authenticates' },
  'fetch.cratesMirror': 'asked',
  'fetch.ca': 'asked',
} as const satisfies Readonly<Record<string, OrderRule>>

type JudgedOrder = {
  readonly checks: readonly Check[]
  /** Null if unreadable, and for results of other builders. */
  readonly order: BuildOrder | null
}

/** Returns the checks `source`, `order`, `request` and `fetch`. Never throws. */
export function judgeOrder(
  read: ReadResult,
  asked: AskedRequest,
  receipts: JudgedReceipts | null,
  isOwn: boolean,
): JudgedOrder {
  if (!isOwn) {
    const reason = 'another builder made this result: it states no order'
    const others = ['order', 'request', 'fetch'].map(name => notChecked(name, reason, false))
    return { checks: [sourceCheck(read.provenance, asked.source, null), ...others], order: null }
  }
  const found = parsed(() => stated(read))
  const order = found.ok ? found.value.order : null
  const first = sourceCheck(read.provenance, asked.source, order)
  if (!found.ok) {
    const others = ['request', 'fetch'].map(name => notChecked(name, 'the order cannot be read', true))
    return { checks: [first, fail('order', found.reason), ...others], order: null }
  }
  const checks = [
    first,
    orderCheck(found.value, read, receipts),
    requestCheck(found.value.order, asked),
    fetchCheck(found.value.order, asked),
    lfsCheck(found.value.lfsPointers, asked),
    compilerCheck(found.value, read.provenance, asked),
  ]
  return { checks, order }
}

type StatedOrder = {
  readonly order: BuildOrder
  readonly request: ReadonlyMap<string, unknown>
  /** Undefined in results of builders that do not report them. */
  readonly lfsPointers: { readonly count: number; readonly first: readonly string[] } | undefined
  readonly pinnedCompiler: PinnedCompiler | null | undefined
  /** The toolchain that the build fetched; null if it fetched none. */
  readonly rust: FetchedRust | null
}

function stated({ files }: ReadResult): StatedOrder {
  const what = 'slsa.json'
  const document = parsedJson(what, documentOf(files, RESULT_PATHS.slsa))
  const definition = slsaForm(document, what).predicate.buildDefinition
  const { internalParameters, externalParameters, resolvedDependencies } = definition
  const { annotations } = resolvedDependencies.find(({ name }) => name === sourceTreeName) ?? {}
  const check = checkValue(BuildOrder, internalParameters.order)
  wellFormed(check.ok, `${what}: internalParameters.order: ${check.ok ? '' : check.problem}`)
  return {
    order: check.value,
    request: new Map(Object.entries(externalParameters)),
    lfsPointers: annotations?.lfsPointers,
    pinnedCompiler: pinned(internalParameters, what).pinnedCompiler,
    rust: rustOf(resolvedDependencies, what),
  }
}

const pinned = partly({ pinnedCompiler: optional(orNull(record({ path: text, channel: text }))) })

const dependency = partly({
  name: text,
  uri: optional(text),
  digest: optional(partly({ sha256: optional(text) })),
  annotations: optional(
    partly({
      lfsPointers: optional(record({ count: wholeNumber, first: listOf(text) })),
      mirror: optional(text),
      version: optional(text),
    }),
  ),
})

/** Finds the fetched toolchain in the dependencies. Throws Malformed if its manifest is missing. */
function rustOf(dependencies: readonly ReadBy<typeof dependency>[], what: string): FetchedRust | null {
  const fileOf = ({ name, uri = '', digest }: ReadBy<typeof dependency>) => ({
    name: name.slice(rustComponentPrefix.length),
    uri,
    sha256: digest?.sha256 ?? '',
  })
  const components = dependencies.filter(({ name }) => name.startsWith(rustComponentPrefix)).map(fileOf)
  const manifests = dependencies.filter(({ name }) => name === rustManifestName)
  const [manifest] = manifests
  if (manifest === undefined && components.length === 0) return null
  const { mirror, version } = manifest?.annotations ?? {}
  wellFormed(
    manifest !== undefined && manifests.length === 1 && mirror !== undefined && version !== undefined,
    `${what}: components of Rust without one manifest, its mirror and version`,
  )
  return { mirror, version, manifest: fileOf(manifest), components }
}

const slsaForm = partly({
  predicate: partly({
    buildDefinition: partly({
      internalParameters: members,
      externalParameters: members,
      resolvedDependencies: listOf(dependency),
    }),
  }),
})

/** Checks that the receipt covers the order, and that values in several places agree. */
function orderCheck(
  { order, request }: StatedOrder,
  { provenance }: ReadResult,
  receipts: JudgedReceipts | null,
): Check {
  const name = 'order'
  const statement = receipts?.dispatch.statement ?? null
  if (statement === null) return notChecked(name, 'the receipt of the dispatch cannot be read', true)
  const digest = sha256(utf8(orderText(order)))
  if (!equalConstantTime(digest, statement.orderDigest)) {
    return fail(
      name,
      `its SHA-256 is ${toHex(digest)}, the receipt of the dispatch has ${toHex(statement.orderDigest)}`,
    )
  }
  const { fetch } = order
  const ca = fetch?.ca ?? null
  const { runDetails } = provenance?.predicate ?? {}
  const compared: readonly (readonly [what: string, found: unknown, expected: unknown])[] = [
    ['job', statement.jobId, order.jobId],
    ['nonce', toHex(statement.nonce), order.nonce.toLowerCase()],
    ['job in the provenance', runDetails?.metadata.invocationId, order.jobId],
    ['builder', runDetails?.builder.id, order.builderId],
    ['network policy', statement.networkPolicy, fetch === null ? NETWORK_POLICIES.none : NETWORK_POLICIES.fetchOnly],
    ['proxy', statement.fetchProxy, fetch?.proxy ?? null],
    ['mirror', statement.fetchMirror, fetch?.cratesMirror ?? null],
    ['authorities', hexOrNull(statement.fetchAuthoritiesDigest), ca === null ? null : toHex(sha256(utf8(ca)))],
    ...requestFields(order).map(([field, expected]) => [field, plain(request.get(field)), plain(expected)] as const),
  ]
  const wrong = compared.find(([, found, expected]) => found !== expected)
  if (wrong === undefined) return pass(name, toHex(digest))
  return fail(name, `${wrong[0]} is ${JSON.stringify(wrong[1])}, the order has ${JSON.stringify(wrong[2])}`)
}

/** Returns the externalParameters that the provenance must have for the order. */
function requestFields({ source, accepts, ...order }: BuildOrder): [field: string, value: unknown][] {
  const { nonce, projectDir, toolchain, reproduce, options, waivers } = order
  const isGit = source.kind === 'git'
  const archive = isGit ? null : { name: source.name, sha256: source.sha256, sizeBytes: source.sizeBytes }
  return Object.entries({
    nonce,
    projectDir,
    toolchain,
    reproduce,
    options,
    waivers,
    archive,
    repoUrl: isGit ? source.url : null,
    repoRef: isGit ? source.ref : null,
    fetchCaSha256: accepts.caSha256,
    cratesMirror: accepts.cratesMirror,
  })
}

/**
 * Compares the words of each option. The order of caches and keys matters, because it decides where a path comes from.
 */
function optionsCompared(found: ToolchainOptions | null, asked: ToolchainOptions | null): [string, unknown, unknown][] {
  const wordsOf = (options: ToolchainOptions | null, field: keyof typeof OPTION_FIELDS) => {
    const words = options === null ? [] : OPTION_FIELDS[field].words(options)
    return words.length === 0 ? null : words.join(' ')
  }
  const fields = Object.keys(OPTION_FIELDS) as (keyof typeof OPTION_FIELDS)[]
  const memberOf = (options: ToolchainOptions | null) => (options === null ? null : Object.keys(options).join(' '))
  return [
    ...fields.map((field): [string, unknown, unknown] => [field, wordsOf(found, field), wordsOf(asked, field)]),
    // Options without any word still choose a toolchain.
    ['options of the toolchain', memberOf(found), memberOf(asked)],
  ]
}

function plain(value: unknown): unknown {
  return typeof value === 'object' && value !== null ? canonicalJson(value as Plain) : value
}

/** Compares every field of the request except its source. */
function requestCheck(order: BuildOrder, asked: AskedRequest): Check {
  const { source, projectDir, toolchain, reproduce, options, waivers, accepts } = order
  const isWaived = { allow_lfs_pointers: asked.lfsPointers === 'any', any_toolchain: asked.compiler === 'any' }
  const name = source.kind === 'archive' ? source.name : null
  const isNamed = source.kind === 'archive' && asked.sourceName !== 'any'
  const compared: readonly (readonly [field: string, found: unknown, expected: unknown])[] = [
    ['project_dir', projectDir, asked.projectDir],
    ['toolchain', toolchain, asked.toolchain],
    ...(isNamed ? [['source_name', name, asked.sourceName] as const] : []),
    ...(asked.reproduce ? [['reproduce', reproduce, true] as const] : []),
    ...optionsCompared(options, asked.options),
    // A waiver can only be missing from the order, with which a build that needs it fails.
    ...waivers.map(waiver => [waiver, true, isWaived[waiver]] as const),
    ['fetch_ca_sha256', accepts.caSha256, asked.fetchCaSha256],
    ['crates_mirror', accepts.cratesMirror, asked.cratesMirror],
  ]
  const wrong = compared.find(([, found, expected]) => found !== expected)
  if (wrong !== undefined) {
    const [field, found, expected] = wrong
    return fail('request', `it was built with ${field} ${words(found)}, but ${words(expected)} was requested`)
  }
  const parts = [
    `project_dir ${words(projectDir)}`,
    `toolchain ${toolchain ?? 'as detected'}`,
    reproduce ? 'built twice' : 'built once',
    ...(options === null ? [] : [optionText(options)]),
    ...waivers,
  ]
  return pass('request', parts.join(', '))
}

/** Shows the sources of a fetch beside the public authorities and the registry in the lock. */
function fetchCheck({ fetch }: BuildOrder, asked: AskedRequest): Check {
  const name = 'fetch'
  if (fetch === null) return pass(name, 'nothing could be fetched')
  const { ca, cratesMirror, proxy } = fetch
  const digest = ca === null ? null : toHex(sha256(utf8(ca)))
  if (digest !== null && digest !== asked.fetchCaSha256) {
    return fail(name, `the host added certificate authorities, SHA-256 ${digest}, which the request does not name`)
  }
  if (cratesMirror !== null && cratesMirror !== asked.cratesMirror) {
    return fail(name, `crates came from the mirror ${cratesMirror}, which the request does not name`)
  }
  const authorities = digest === null ? 'public authorities' : `public authorities and those of SHA-256 ${digest}`
  const mirror = cratesMirror === null ? 'no mirror' : `mirror ${cratesMirror}`
  return pass(name, `by the proxy ${proxy}, ${authorities}, ${mirror}`)
}

/** Checks Git LFS pointers, which are compiled as they are: the files they name are not in the source. */
function lfsCheck(pointers: StatedOrder['lfsPointers'], asked: AskedRequest): Check {
  const name = 'lfs-pointers'
  if (pointers === undefined) return notChecked(name, 'this result does not say whether there are any', false)
  const { count, first } = pointers
  if (count === 0) return pass(name, 'the source has none')
  const named = first.slice(0, lfsNamedMax).map(words).join(', ')
  const found = `the source has Git LFS pointers without their content, ${count}: ${named}`
  if (asked.lfsPointers === 'any') return notChecked(name, `accepted: ${found}`, false)
  return fail(name, `${found}; send an archive made after \`git lfs pull\`, or accept them by --allow-lfs-pointers`)
}

/** Names the compiler, if the source could pin one. Receipts and report cover its version. */
function compilerCheck(
  { pinnedCompiler: pin, rust }: StatedOrder,
  provenance: Provenance | null,
  asked: AskedRequest,
): Check {
  const name = 'compiler'
  const { rustc, go } = provenance?.predicate.buildDefinition.internalParameters.toolchain ?? {}
  const compiler = rustc ?? go
  if (compiler === undefined) return pass(name, 'none that a source can pin')
  const { version } = compiler
  if (rust !== null) {
    if (rust.mirror !== cargoOptionsOf(asked.options)?.rustMirror)
      return fail(name, `it came from the mirror ${rust.mirror}, which the request does not name`)
    if (!isChannelOf(rust.version, version))
      return fail(name, `${version} compiled it, and Rust ${rust.version} was fetched`)
  }
  if (pin === undefined) return notChecked(name, `${version}; this result does not say what the source pins`, false)
  if (pin === null) return pass(name, `${version}; the source pins none`)
  const from = rust === null ? '' : `; ${fetchedWords(rust)}`
  if (isChannelOf(pin.channel, version)) return pass(name, `${version}, as ${pin.path} pins it${from}`)
  const found = `${pin.path} pins ${words(pin.channel)}, and ${version} compiled it`
  if (asked.compiler === 'any') return notChecked(name, `accepted: ${found}`, false)
  return fail(name, `${found}; accept that by --any-toolchain`)
}

function fetchedWords({ mirror, version, manifest, components }: FetchedRust): string {
  const files = [{ ...manifest, name: 'channel manifest' }, ...components]
  const named = files.map(({ name, sha256 }) => `${name} SHA-256 ${sha256}`).join(', ')
  return `Rust ${version} fetched from ${mirror}: ${named}`
}

const lfsNamedMax = 8

/** Checks that the built source is the caller's, and names it. */
function sourceCheck(provenance: Provenance | null, asked: AskedSource | 'any', order: BuildOrder | null): Check {
  const name = sourceCheckName
  if (provenance === null) return notChecked(name, 'provenance.json cannot be read', true)
  const { digest, uri } = provenance.predicate.buildDefinition.externalParameters.source
  const tree = sourceDigestOf(provenance)
  const trees = `git tree ${digest.gitTree || 'none'}${tree === null ? '' : `, SHA-256 tree ${toHex(tree)}`}`
  const source = order?.source ?? null
  const ref = source?.kind === 'git' && source.ref !== null ? `, ref ${JSON.stringify(source.ref)}` : ''
  // The VM compares the archive with the order before unpacking, and logs which entries it skips.
  const packed = source?.kind === 'archive' ? `, of the archive with SHA-256 ${source.sha256}` : ''
  const built =
    uri === '' ? `archive, ${trees}${packed}` : `commit ${digest.gitCommit || 'none'} of ${uri}${ref}, ${trees}`
  if (asked === 'any') return notChecked(name, `accepted any source: ${built}`, false)
  const problem =
    asked.kind === 'tree'
      ? treeProblem(asked, digest.gitTree, tree, order)
      : commitProblem(asked, digest.gitCommit, uri, order)
  return problem === null ? pass(name, built) : fail(name, `${problem}; it was built of ${built}`)
}

function treeProblem(
  asked: Extract<AskedSource, { kind: 'tree' }>,
  sha1: string,
  found: Uint8Array | null,
  order: BuildOrder | null,
): string | null {
  if (order !== null && order.source.kind !== 'archive') return 'the host ordered a repository in place of the archive'
  // Other builders only have the SHA-1.
  if (found !== null && toHex(found) !== asked.sha256) return `yours is the tree ${asked.sha256} in SHA-256`
  if (found === null && order !== null) return 'the provenance has no tree id in SHA-256'
  return sha1 === asked.sha1 ? null : `yours is the git tree ${asked.sha1}`
}

function commitProblem(
  asked: Extract<AskedSource, { kind: 'commit' }>,
  commit: string,
  uri: string,
  order: BuildOrder | null,
): string | null {
  if (order !== null && order.source.kind !== 'git') return 'the host ordered an archive in place of the repository'
  if (commit !== asked.commit) return `yours is the commit ${asked.commit}`
  const ordered = order?.source.kind === 'git' ? order.source : null
  if (asked.url !== 'any') {
    const urls = ordered === null ? [uri] : [uri, ordered.url]
    if (urls.some(url => plainUrl(url) !== plainUrl(asked.url))) return `yours is the repository ${asked.url}`
  }
  if (asked.ref === 'any' || ordered === null || ordered.ref === asked.ref) return null
  return `yours is the ref ${words(asked.ref)}`
}

function plainUrl(text: string): string {
  const bare = text.replace(/^git\+/, '')
  return URL.canParse(bare) ? new URL(bare).href : bare
}

function hexOrNull(bytes: Uint8Array | null): string | null {
  return bytes === null ? null : toHex(bytes)
}

function words(value: unknown): string {
  return value === null ? 'none' : JSON.stringify(value)
}
