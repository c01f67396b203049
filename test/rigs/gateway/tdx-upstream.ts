// An upstream in a SIMULATED TD, over HTTPS: it shows its evidence for each nonce and completes chats; a test makes it
// misbehave, and gives it another TLS key. Effects: files, free ports.

import type { ServerResponse } from 'node:http'
import { createServer, type Server } from 'node:https'
import type { AddressInfo } from 'node:net'
import { type Certified, serverAuthority } from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { encodeTdxPolicy, strictTdxPolicy } from '../../../src/attest/tdx/encode-policy.ts'
import { upstreamReportData } from '../../../src/attest/tdx/upstream-evidence.ts'
import { fromBase64Url, fromUtf8, toBase64, toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import type { UpstreamAttestation } from '../../../src/inference/upstream/attested/attestation.ts'
import { spkiDigestOf } from '../../../src/linux/keys/spki.ts'
import {
  type CollateralWanted,
  type Issued,
  SIMULATED_PCK,
  SIMULATED_REPORT,
  type SimulatedTdx,
  simulateCollateral,
  simulateQuote,
  simulateTdx,
} from '../attest/tdx/simulated.ts'

export type TdxUpstream = AsyncDisposable & {
  /** Up to and including /v1. */
  readonly url: string
  readonly ca: string
  readonly attestation: UpstreamAttestation
  readonly platform: SimulatedTdx
  /** Requests for evidence, and for completions with their Authorization. */
  readonly seen: { nonces: number; readonly prompts: string[] }
  /** In place of its own evidence; null means its own. */
  answer: ((response: ServerResponse, nonce: Uint8Array) => void | Promise<void>) | null
  /** Its own evidence over this nonce and key, as a body. */
  readonly evidence: (nonce: Uint8Array, spkiDigest?: Uint8Array, wanted?: CollateralWanted) => Promise<string>
  /** Another TLS key from now on, as good for the authority; connections end. */
  readonly changeKey: () => Promise<void>
}

/** A policy for such an upstream has to name them. */
const tdxMeasurements = {
  mrTds: [toHex(SIMULATED_REPORT.mrTd)],
  rtmr1: [toHex(SIMULATED_REPORT.rtmr1)],
  rtmr2: [toHex(SIMULATED_REPORT.rtmr2)],
}

/** `address`: the name in its certificate. It listens on every address, for this one may come later. */
export async function startTdxUpstream(address = '127.0.0.1'): Promise<TdxUpstream> {
  const authority = await serverAuthority()
  const platform = await simulateTdx(systemClock.nowMs())
  const pck = await platform.pck(SIMULATED_PCK)
  let pair = await authority.issue([address], 1)
  const seen = { nonces: 0, prompts: [] as string[] }
  let server: Server
  const evidence: TdxUpstream['evidence'] = async (nonce, spki = spkiDigestOf(pair.cert), wanted = {}) =>
    JSON.stringify({
      format: 'strongroom/tdx-upstream/v1',
      quote: toBase64(await quoteOf(platform, pck, upstreamReportData(nonce, spki))),
      collateral: JSON.parse(fromUtf8(await simulateCollateral(platform, wanted))),
    })
  const open = async (port: number, own: Certified) => {
    server = createServer({ cert: own.cert, key: own.key }, (request, response) => {
      const url = new URL(request.url ?? '/', 'https://upstream')
      request.resume()
      if (url.pathname === '/attestation') {
        seen.nonces += 1
        const nonce = fromBase64Url(url.searchParams.get('nonce') ?? '') ?? new Uint8Array()
        void (upstream.answer ?? (async (to, asked) => void to.end(await evidence(asked))))(response, nonce)
        return
      }
      response.setHeader('content-type', 'application/json')
      if (url.pathname === '/v1/models') return void response.end('{"data":[]}')
      seen.prompts.push(request.headers.authorization ?? '')
      response.end(JSON.stringify(completion))
    })
    await new Promise<void>(resolve => server.listen(port, '0.0.0.0', resolve))
    return (server.address() as AddressInfo).port
  }
  const close = async () => {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  }
  const port = await open(0, pair)
  const upstream: TdxUpstream = {
    url: `https://${address}:${port}/v1`,
    ca: authority.caPem,
    attestation: {
      kind: 'tdx',
      policy: JSON.stringify({ ...encodeTdxPolicy(strictTdxPolicy()), ...tdxMeasurements }),
      path: '/attestation',
      intervalMs: 1_800_000,
      collateralFile: null,
      simulatedRoot: toPem(platform.rootDer, 'CERTIFICATE'),
    },
    platform,
    seen,
    answer: null,
    evidence,
    changeKey: async () => {
      await close()
      pair = await authority.issue([address], 1)
      await open(port, pair)
    },
    [Symbol.asyncDispose]: close,
  }
  return upstream
}

async function quoteOf(platform: SimulatedTdx, pck: Issued, reportData: Uint8Array): Promise<Uint8Array> {
  return await simulateQuote(platform, { version: 4, report: { ...SIMULATED_REPORT, reportData }, pck })
}

const completion = {
  id: 'x',
  object: 'chat.completion',
  created: 1,
  model: 'tiny',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hello.' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
}
