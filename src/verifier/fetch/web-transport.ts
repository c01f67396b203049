// The global `fetch` of pages and their workers. It exposes no certificate, so no key is pinned. Effects: the network.

import { ConnectionError, OptionError } from './errors.ts'
import { evidenceAnswer } from './evidence-answer.ts'
import type { Wire } from './options.ts'
import { bodyAtOnce } from './response-body.ts'
import type {
  Channel,
  EvidenceAnswer,
  EvidenceAnswers,
  EvidenceQuestion,
  Transport,
  WireRequest,
  WireResponse,
} from './transport.ts'

/**
 * Creates the transport. Throws OptionError for options that a page cannot honor, and if a bundler chose the wrong
 * half.
 */
export function createWebTransport({ ca }: Wire): Transport {
  if (ca !== undefined) throw new OptionError('ca', 'a page cannot choose authorities: leave it out')
  const versions: unknown = Reflect.get(Object(Reflect.get(globalThis, 'process')), 'versions')
  if (Reflect.has(Object(versions), 'node') && Reflect.get(globalThis, 'document') === undefined) {
    throw new OptionError(
      'options',
      "this is the package's half for pages, and this runtime can pin keys: have the bundler resolve the condition `node`",
    )
  }
  const channel: Channel = { send, close: () => {} }
  return { pins: false, askEvidence, open: () => channel }
}

/** Sends nothing of the page's (cookies, referrer), and follows no redirect. */
const ALONE = { redirect: 'error', credentials: 'omit', referrerPolicy: 'no-referrer' } as const
const FRESH = { ...ALONE, cache: 'no-store' } as const

async function askEvidence(questions: readonly EvidenceQuestion[], signal: AbortSignal): Promise<EvidenceAnswers> {
  const answers: EvidenceAnswer[] = []
  for (const { url, bodyBytesMax } of questions) {
    const { status, headers, body } = await fetch(url, { ...FRESH, signal, headers: { accept: 'application/json' } })
    answers.push(evidenceAnswer(status, headers, await bodyAtOnce(body, bodyBytesMax)))
  }
  return { answers, tlsSpkiDigest: 'any' }
}

async function send({ method, url, headers, body, signal }: WireRequest): Promise<WireResponse> {
  try {
    // To bypass its cache, Chromium would send a preflight request each time. It does not cache responses to POST
    // anyway.
    const response = await fetch(url, { ...ALONE, method, headers, body, ...(signal === null ? {} : { signal }) })
    return { ...pick(response), body: response.body }
  } catch (error) {
    if (signal?.aborted) throw signal.reason
    const advice = 'check the network, that the gateway allows this page (CORS), and that it does not redirect'
    // The request may have been sent: browsers resend one if a reused connection ends without a response.
    const fate = isRead(method) ? '' : `. The ${method} may have been carried out: find out before you send it again`
    throw new ConnectionError(`no response from ${url.host}: ${advice}${fate}`, { cause: error })
  }
}

function isRead(method: string): boolean {
  return method === 'GET' || method === 'HEAD'
}

function pick({ status, statusText, headers }: Response): Omit<WireResponse, 'body'> {
  return { status, statusText, headers }
}
