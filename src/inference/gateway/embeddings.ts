// One request for embeddings, from its body to the whole response. Effects: those of the upstream's request.

import { utf8 } from '../../base/bytes.ts'
import { createSharedTurns } from '../../base/work/turns.ts'
import { UpstreamFault } from '../failure.ts'
import { unlabelled } from '../metering/labels.ts'
import {
  embeddingsBytesMax,
  embeddingsUsageBounds,
  parseEmbeddings,
  tooManyInputs,
  writeEmbeddings,
} from '../openai/embeddings.ts'
import { embeddingsUpstreamBody } from '../openai/embeddings-request.ts'
import { readSource } from '../openai/request.ts'
import type { UpstreamResponse } from '../upstream/connection.ts'
import type { Lease } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'
import { smallBytesMax } from './bodies/large-bodies.ts'
import { type ReadEmbeddings, readEmbeddings } from './bodies/read-body.ts'
import { readUpstreamBody } from './body.ts'
import { type AdmittedRequest, type CompletionDeps, createMeteredHandler, type MeteredHandler } from './completion.ts'
import { cacheOwnerOf } from './earlier-items.ts'
import { type Asked, ignoredHeaders, overUpstreams } from './failover.ts'
import { requireModel } from './models.ts'
import { beginSeal } from './receipts.ts'
import { type SealedJob, sendWhole } from './respond.ts'

export type EmbeddingsDeps = Omit<CompletionDeps, 'schemas' | 'obfuscate'>

type EmbeddingsJob = SealedJob &
  Pick<ReadEmbeddings, 'request' | 'source' | 'values'> & {
    readonly cacheSalt: () => string
    readonly signal: AbortSignal
  }

export function createEmbeddingsHandler(deps: EmbeddingsDeps): MeteredHandler<'embeddings'> {
  const inTurns = createSharedTurns()
  const embed = (admitted: AdmittedRequest<'embeddings'>, read: ReadEmbeddings, body: Uint8Array) => {
    const job = prepareJob(deps, admitted, read, body)
    return overUpstreams(deps, {
      id: admitted.id,
      account: job.account,
      signal: job.signal,
      model: job.request.model,
      except: new Set(),
      bounds: ({ contextTokens }) =>
        embeddingsUsageBounds(job.request, { bodyBytes: job.account.bodyBytes, contextTokens }),
      ask: asked => askUpstream({ ...deps, inTurns }, job, asked),
    })
  }
  const hasLabels = deps.limits.usageLabels === true
  return createMeteredHandler(deps, async (admitted, body) => {
    if (body.length <= smallBytesMax)
      return await embed(admitted, readEmbeddings(readSource(body), { hasLabels }), body)
    const { signal } = admitted.request
    const by = { owner: admitted.caller.organizationId, signal }
    const large = await deps.largeBodies.readEmbeddings({ ...by, body, hasLabels })
    return await embed(admitted, large.read, large.body)
  })
}

function prepareJob(
  deps: EmbeddingsDeps,
  admitted: AdmittedRequest<'embeddings'>,
  read: ReadEmbeddings,
  body: Uint8Array,
): EmbeddingsJob {
  const { request, id, exchange, headers, account, caller } = admitted
  const { request: asked, source, values } = read
  const model = requireModel(deps.models, { rules: caller.rules, name: asked.model, use: 'embeddings' })
  account.model = model
  account.labels = read.labels
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

type AskDeps = EmbeddingsDeps & { readonly inTurns: ReturnType<typeof createSharedTurns> }

async function askUpstream(
  deps: AskDeps,
  job: EmbeddingsJob,
  { lease, attempt, traceparent }: Asked,
): Promise<Response> {
  const { target } = lease
  const { text, ignored } = embeddingsUpstreamBody(job, { engine: target.engine, cacheSalt: job.cacheSalt })
  const unsent = unlabelled(ignored, job.account.labels.tags)
  const headers = { ...job.headers, ...ignoredHeaders(deps, unsent, job.source.changes) }
  const upstream = await deps.upstream.send(target, {
    path: '/embeddings',
    body: job.values?.putBack(text) ?? text,
    stream: false,
    traceparent,
    attempt,
  })
  return await respond(deps, { ...job, headers }, lease, upstream)
}

async function respond(
  { deadlines, limits, inTurns }: AskDeps,
  job: EmbeddingsJob,
  lease: Lease<UpstreamTarget>,
  upstream: UpstreamResponse,
): Promise<Response> {
  const { request, account, signal } = job
  const bytesMax = Math.min(limits.responseBytesMax, embeddingsBytesMax(request))
  const bodyLimits = { bytesMax, timeoutMs: limits.idleTimeoutMs }
  let text: string
  try {
    text = await readUpstreamBody(upstream, bodyLimits, deadlines)
  } catch (error) {
    const isTooLarge = error instanceof UpstreamFault && error.reason === 'too_large'
    throw isTooLarge && bytesMax === limits.responseBytesMax ? tooManyInputs() : error
  }
  const { contextTokens } = lease.target
  const bounds = embeddingsUsageBounds(request, { bodyBytes: account.bodyBytes, contextTokens })
  const counts = { bounds, promptEstimate: account.promptEstimate }
  const embeddings = await inTurns(parseEmbeddings(text, request, counts))
  const seal = job.seal?.(lease.target.name) ?? null
  const take = (piece: string) => void seal?.update(utf8(piece))
  const body = await inTurns(writeEmbeddings(embeddings, request, { charsMax: limits.responseBytesMax, take }))
  signal.throwIfAborted()
  const { tokens, tokensSource } = embeddings
  return await sendWhole(job, lease, { seal, body, tokens, tokensSource })
}
