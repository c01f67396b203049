// Services A, B and C behind a scripted console, with evidence that is real but for the hardware. Effects: a gateway.

import { tarOf } from '../../../scripts/rigs/archive-bytes.ts'
import { cargoRecord } from '../../../scripts/rigs/build/record.ts'
import { sampleResult } from '../../../scripts/rigs/build/result.ts'
import { at, hostileText } from '../../../scripts/rigs/console/documents.ts'
import type { ScriptedConsole } from '../../../scripts/rigs/console/scripted-console.ts'
import { attestedOptions, startAttestedGateway } from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { present } from '../../../src/base/assert.ts'
import { fromBase64Url } from '../../../src/base/bytes.ts'
import type { BuildEvent } from '../../../src/contract/http/build.ts'
import type { BuildRecord } from '../../../src/contract/http/build-api.ts'
import type { GatewayModelList } from '../../../src/contract/http/inference.ts'
import type { InstanceRecord, UsageSummary } from '../../../src/contract/http/instance.ts'
import type { UsageRows } from '../../../src/contract/http/usage-rows.ts'
import {
  clientFiles,
  makeInstanceAttestation,
  sampleInstance,
  samplePublicKey,
} from '../instances/instance-attestation.ts'

export const apiKey = 'ca_k3v9x2ab_0123456789abcdefgh'
export const gatewayKey = 'gw_g4t3w4yk_0123456789abcdefghijklmnopqrstuv'
export const buildId = '4f9d2c1e-6c1b-4f0e-9c39-0a9a5f6b7c8d'

/** The commit that the sample of a build was asked for by. */
export const buildCommit = present(cargoRecord.source.commit, 'a commit')

/** The sample of a build as the tab that submitted it has it in its session storage. */
export const submittedBuild = {
  ...{
    id: buildId,
    nonce: cargoRecord.request.nonce,
    projectDir: null,
    toolchain: null,
    options: null,
    reproduce: true,
    atMs: 0,
  },
  source: { kind: 'git', url: cargoRecord.source.uri, ref: buildCommit },
} as const

export type Tenancy = AsyncDisposable & {
  /** Files that a tenant has of its own for the commands about its instance, by the names that the page gives them. */
  readonly instanceFiles: Readonly<Record<string, string>>
  /** Authorization headers, by service. */
  readonly keys: Map<string, Set<string | null>>
  /** From now on instances show evidence with a claim that was changed after it was signed. */
  readonly forge: () => void
}

export async function serveTenant(to: ScriptedConsole): Promise<Tenancy> {
  const upstream = await startUpstream()
  const gateway = await startAttestedGateway(upstream)
  const { root, policy, gatewayPolicy } = await clientFiles()
  const keys = new Map<string, Set<string | null>>()
  let isForged = false
  let status: InstanceRecord['status'] = 'ready'
  const data = (value: unknown, code = 200) =>
    Response.json({ request_id: `req_${'a'.repeat(24)}`, correlation_id: null, data: value }, { status: code })
  const note = (service: string, request: Request) => {
    const seen = keys.get(service) ?? new Set()
    keys.set(service, seen.add(request.headers.get('authorization')))
    if (request.headers.has('cookie')) throw new Error('a cookie went to a service')
  }
  const answer = (route: string, respond: (request: Request, url: URL) => Response | Promise<Response>) => {
    const service = /\/api\/tenant\/([a-z]+)/.exec(route)?.[1] ?? ''
    to.answer(route, (request, url) => {
      note(service, request)
      return respond(request, url)
    })
  }
  to.answer('GET /api/tenant', () =>
    Response.json({
      instances: 'https://instances.test:8441',
      inference: gateway.url,
      builds: 'https://builds.test:8443',
    }),
  )
  const a = '/api/tenant/instances/v1'
  answer(`GET ${a}/instances`, () => data({ instances: [record(status)], next_cursor: null }))
  answer(`POST ${a}/instances`, () => data(record('provisioning'), 202))
  answer(`GET ${a}/usage`, () => data(USAGE))
  answer(`GET ${a}/instances/${sampleInstance.name}`, () => data(record(status)))
  answer(`DELETE ${a}/instances/${sampleInstance.name}`, () => {
    status = 'terminating'
    return data(record(status), 202)
  })
  answer(`GET ${a}/instances/${sampleInstance.name}/attestation`, async (_, url) => {
    const nonce = present(fromBase64Url(url.searchParams.get('nonce') ?? ''), 'a nonce')
    const made = await makeInstanceAttestation({ nonce, nowMs: Date.now() })
    return data(isForged ? { ...made, claim: made.claim.replace(/"model":"[^"]*"/, '"model":"evil"') } : made)
  })
  const b = '/api/tenant/inference'
  for (const path of ['/attestation', '/workload.json']) {
    answer(`GET ${b}${path}`, async (_, url) => {
      const response = await fetch(`${gateway.url}${path}${url.search}`, { tls: { rejectUnauthorized: false } })
      return new Response(await response.arrayBuffer(), { status: response.status })
    })
  }
  answer(`GET ${b}/v1/models`, () => Response.json(MODELS))
  answer(`GET ${b}/v1/usage`, () => Response.json(USAGE_ROWS))
  const c = '/api/tenant/builds/build'
  const result = await sampleResult({ record: { request: { ...cargoRecord.request, repoRef: buildCommit } } })
  const archive = Bun.gzipSync(
    Uint8Array.from(tarOf([...result.files].map(([path, content]) => ({ name: `project/${path}`, content })))),
  )
  answer(`POST ${c}`, () =>
    Response.json({ job_id: buildId, build_url: `https://builds/build/${buildId}` }, { status: 202 }),
  )
  answer(`GET ${c}/${buildId}`, () => Response.json(buildRecord(archive.length)))
  answer(`GET ${c}/${buildId}/events`, () => {
    const text = EVENTS.map(event => `data: ${JSON.stringify(event)}\n\n`).join('')
    return new Response(text, { headers: { 'content-type': 'text/event-stream' } })
  })
  answer(`GET ${c}/${buildId}/result`, () => new Response(archive))
  return {
    keys,
    forge: () => {
      isForged = true
    },
    instanceFiles: { 'instance-policy.json': policy, 'gateway-policy.json': gatewayPolicy, 'root.pem': root },
    [Symbol.asyncDispose]: async () => {
      await gateway[Symbol.asyncDispose]()
      await upstream.stop()
    },
  }
}

/** The same for the gateway, which is of another simulated host. */
export async function gatewayFiles(): Promise<Readonly<Record<string, string>>> {
  const { policy, allowlist, configuration, simulatedRoot } = await attestedOptions()
  return {
    'gateway-policy.json': JSON.stringify(policy),
    'allowlist.json': allowlist,
    'gateway-configuration.json': configuration,
    'root.pem': simulatedRoot,
  }
}

function record(status: InstanceRecord['status']): InstanceRecord {
  return {
    name: sampleInstance.name,
    status,
    agent: 'opencode',
    hostname: sampleInstance.hostname,
    public_key: samplePublicKey,
    inference_mode: 'default_gateway',
    inference_model: 'strongroom-tiny',
    egress_limit_bytes: 5_368_709_120,
    failure_code: null,
    failure_message: null,
    terminated_reason: status === 'terminating' ? 'deleted_via_api' : null,
    created_at: at(3_600),
    ready_at: at(3_500),
    terminated_at: null,
  }
}

const USAGE: UsageSummary = {
  pricing: {
    period_start: at(86_400 * 10),
    period_end: at(-86_400 * 20),
    subscription_cost_usd: '100.00',
    instance_hours_included: 720,
    overage_per_hour_usd: '0.25',
  },
  usage: {
    instance_hours_used: 12.5,
    inference_cost_usd: '3.20',
    egress_bytes: 1_000_000,
    egress_limit_bytes: 5_368_709_120,
    egress_observed_at: at(10),
    egress_blocked: false,
    egress_block_applied_at: null,
  },
}

const MODELS: GatewayModelList = {
  object: 'list',
  data: [
    { id: 'strongroom-tiny', object: 'model', created: 1_795_000_000, owned_by: 'strongroom', context_length: 2_048 },
    {
      id: 'llama-70b',
      object: 'model',
      created: 1_795_000_000,
      owned_by: 'strongroom',
      pricing: { prompt: '0.00000059', completion: '0.00000079' },
    },
  ],
}

const sums = { requests: 12, prompt_tokens: 4_000, completion_tokens: 900, cost_usd: '0.012300000' }
const USAGE_ROWS: { object: 'usage.rows' } & UsageRows<'key' | 'model' | 'day'> = {
  object: 'usage.rows',
  from: '2026-11-01',
  to: '2026-11-26',
  by: ['model', 'day'],
  rows: [{ model: 'llama-70b', day: '2026-11-25', key: null, ...sums }],
  total: sums,
}

const EVENTS: readonly BuildEvent[] = [
  { type: 'queued', position: 0 },
  { type: 'build', msg: hostileText },
  { type: 'complete', result: { status: 'ok' } },
]

/** A build that ended well. */
export function buildRecord(sizeBytes: number): BuildRecord {
  return {
    job_id: buildId,
    state: 'ok',
    nonce: '00112233445566778899aabbccddeeff',
    source: { kind: 'git', url: 'https://git.example/acme/service.git', ref: null },
    project_dir: null,
    toolchain: null,
    options: {},
    reproduce: true,
    vm_id: null,
    attested: { measurement: 'ab'.repeat(48), source_tree: 'cd'.repeat(32), simulated: true },
    result: {
      size_bytes: sizeBytes,
      sha256: 'ef'.repeat(32),
      provenance_sha256: '01'.repeat(32),
      url: 'https://builds/x',
    },
    commands: [],
    error_type: null,
    error: null,
    created_at: at(900),
    started_at: at(890),
    finished_at: at(600),
  }
}
