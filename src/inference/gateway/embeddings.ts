// One request for embeddings or a ranking, from its body to the complete response. Effects: those of the upstream's
// request.

import { fromUtf8, utf8 } from '../../base/bytes.ts'
import type { Fault } from '../../base/fault.ts'
import { createCooperativeQueue } from '../../base/work/turns.ts'
import { UpstreamFault } from '../failure.ts'
import { membersOf, partsOf } from '../json-text.ts'
import { estimateTokens } from '../metering/account.ts'
import { withoutLabelFields } from '../metering/labels.ts'
import {
  embeddingsBytesMax,
  embeddingsUsageBounds,
  parseEmbeddings,
  tooManyInputs,
  writeEmbeddings,
} from '../openai/pooled/embeddings.ts'
import { embeddingsUpstreamBody, isRerank, type PooledRequest, type RerankRequest } from '../openai/pooled/request.ts'
import { parseRanking, type Ranking, rankingBytesMax, rankingText, tooManyDocuments } from '../openai/pooled/rerank.ts'
import { readSource } from '../openai/request.ts'
import type { PooledOperation } from '../types.ts'
import type { UpstreamResponse } from '../upstream/connection.ts'
import type { Lease } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'
import { smallBytesMax } from './bodies/large-bodies.ts'
import { type ReadPooled, readPooled } from './bodies/read-body.ts'
import { readUpstreamBody } from './body.ts'
import { type AdmittedRequest, type CompletionDeps, createMeteredHandler, type MeteredHandler } from './completion.ts'
import { cacheOwnerOf } from './earlier-items.ts'
import { ignoredHeaders, NO_UPSTREAMS, type UpstreamAttempt, waitedHeaders, withFailover } from './failover.ts'
import { requireModel } from './models.ts'
import { beginSeal } from './receipts.ts'
import { type SealedJob, sendWhole } from './respond.ts'

export type EmbeddingsDeps = Omit<CompletionDeps, 'schemas' | 'obfuscate'>

type PreparedEmbeddings = SealedJob &
  Pick<ReadPooled, 'request' | 'source' | 'values'> & {
    readonly cacheSalt: () => string
    readonly signal: AbortSignal
  }

export function createEmbeddingsHandler(deps: EmbeddingsDeps): MeteredHandler<PooledOperation> {
  const inTurns = createCooperativeQueue()
  const embed = async (admitted: AdmittedRequest<PooledOperation>, read: ReadPooled, body: Uint8Array) => {
    if (isRerank(read.request)) await admitted.account.reserveTokens(estimateTokens(read.request.repeatedBytes))
    const job = prepareEmbeddings(deps, admitted, read, body)
    return await withFailover(deps, {
      id: admitted.id,
      account: job.account,
      signal: job.signal,
      model: job.request.model,
      except: NO_UPSTREAMS,
      bounds: ({ contextTokens }) =>
        embeddingsUsageBounds(job.request, { bodyBytes: job.account.bodyBytes, contextTokens }),
      ask: asked => askUpstream({ ...deps, inTurns }, job, asked),
    })
  }
  const hasLabels = deps.limits.usageLabels === true
  return createMeteredHandler(deps, async (admitted, body) => {
    if (body.length <= smallBytesMax)
      return await embed(admitted, readPooled(admitted.operation, readSource(body), { hasLabels }), body)
    const { signal } = admitted.request
    const by = { owner: admitted.caller.organizationId, signal }
    const large = await deps.largeBodies.readPooled({ ...by, body, operation: admitted.operation, hasLabels })
    return await embed(admitted, large.read, large.body)
  })
}

function prepareEmbeddings(
  deps: EmbeddingsDeps,
  admitted: AdmittedRequest<PooledOperation>,
  read: ReadPooled,
  body: Uint8Array,
): PreparedEmbeddings {
  const { request, id, exchange, headers, account, caller } = admitted
  const { request: asked, source, values } = read
  const model = requireModel(deps.models, { rules: caller.rules, name: asked.model, use: 'embeddings' })
  account.model = model
  account.labels = read.labels
  account.endUser = read.endUser
  account.bodyBytes = read.bodyBytes
  account.promptEstimate = read.promptEstimate
  const isEncrypted = exchange !== null
  const { seal, headers: more } = beginSeal(deps, { request, id, caller, model, body, isEncrypted })
  const cacheOwner = cacheOwnerOf(admitted, deps.random)
  return {
    request: { ...asked, model },
    source,
    values,
    cacheSalt: () => deps.cacheSalt(cacheOwner, asked.cacheSalt),
    seal,
    headers: { ...headers, ...more },
    account,
    signal: request.signal,
  }
}

/** A ranking is parsed in one turn, which takes about 20 ms for this many bytes. */
const parsedRankingBytesMax = 4_194_304

type AskDeps = EmbeddingsDeps & { readonly inTurns: ReturnType<typeof createCooperativeQueue> }

async function askUpstream(
  deps: AskDeps,
  job: PreparedEmbeddings,
  { lease, attempt, traceparent }: UpstreamAttempt,
): Promise<Response> {
  const { target } = lease
  const { path, text, ignored } = embeddingsUpstreamBody(job, { engine: target.engine, cacheSalt: job.cacheSalt })
  const names = { ignored: withoutLabelFields(ignored, job.account.labels.tags), changes: job.source.changes }
  const headers = { ...job.headers, ...ignoredHeaders(deps, job.account, names), ...waitedHeaders(job.account) }
  const upstream = await deps.upstream.send(target, {
    path,
    body: job.values?.putBack(text) ?? text,
    stream: false,
    traceparent,
    attempt,
  })
  return await respond(deps, { ...job, headers }, lease, upstream)
}

async function respond(
  { deadlines, limits, inTurns }: AskDeps,
  job: PreparedEmbeddings,
  lease: Lease<UpstreamTarget>,
  upstream: UpstreamResponse,
): Promise<Response> {
  const { request, account, signal } = job
  const ownBytesMax = isRerank(request) ? rankingBytesMax(request, account.bodyBytes) : embeddingsBytesMax(request)
  const clientBytesMax = isRerank(request)
    ? Math.min(limits.responseBytesMax, parsedRankingBytesMax)
    : limits.responseBytesMax
  const bytesMax = Math.min(clientBytesMax, ownBytesMax)
  const bodyLimits = { bytesMax, timeoutMs: limits.idleTimeoutMs }
  let text: string
  try {
    text = await readUpstreamBody(upstream, bodyLimits, deadlines)
  } catch (error) {
    const isTooLarge = error instanceof UpstreamFault && error.reason === 'too_large'
    throw isTooLarge && bytesMax === clientBytesMax ? tooManyOf(request) : error
  }
  const { contextTokens } = lease.target
  const bounds = embeddingsUsageBounds(request, { bodyBytes: account.bodyBytes, contextTokens })
  const counts = { bounds, promptEstimate: account.promptEstimate, counted: upstream.head.computeTokens }
  if (isRerank(request)) {
    const ranking = parseRanking(text, request, counts)
    const body = rankingBody(job, request, ranking)
    if (body.length > limits.responseBytesMax) throw tooManyDocuments()
    signal.throwIfAborted()
    const seal = job.seal?.(lease.target.name) ?? null
    seal?.update(utf8(body))
    return await sendWhole(job, lease, { ...ranking, seal, body })
  }
  const embeddings = await inTurns(parseEmbeddings(text, request, counts))
  const seal = job.seal?.(lease.target.name) ?? null
  const take = (piece: string) => void seal?.update(utf8(piece))
  const body = await inTurns(writeEmbeddings(embeddings, request, { charsMax: limits.responseBytesMax, take }))
  signal.throwIfAborted()
  return await sendWhole(job, lease, { ...embeddings, seal, body })
}

function tooManyOf(request: PooledRequest): Fault {
  return isRerank(request) ? tooManyDocuments() : tooManyInputs()
}

/** Returns the ranking's body, with the client's own documents if requested. */
function rankingBody({ source, values }: PreparedEmbeddings, request: RerankRequest, ranking: Ranking): string {
  const documents = request.returnsDocuments
    ? membersOf(source.text).find(({ name }) => name === 'documents')?.value
    : undefined
  const text = rankingText(ranking, request, documents === undefined ? null : partsOf(documents))
  return values === null ? text : fromUtf8(Buffer.concat(values.putBack(text)))
}
