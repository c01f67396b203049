// The gateway of a VM as a process, with GPUs, without, and with GPUs that are not good.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { EnclaveBench } from '../../scripts/rigs/enclave/enclave.ts'
import { newNonce } from '../../scripts/rigs/gateway/attestation.ts'
import { startUpstream, type TestUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../scripts/rigs/until.ts'
import { gpuNonce } from '../../src/attest/nvidia/bound.ts'
import { verifyBoundGpus } from '../../src/attest/nvidia/bound-verify.ts'
import { parseGpuPolicy } from '../../src/attest/nvidia/policy.ts'
import { decodeStatement, type StatementOf } from '../../src/attest/receipt/statement.ts'
import { fromBase64Url } from '../../src/base/bytes.ts'
import { readSignedXml } from '../../src/client/verify/gpu/signed-xml.ts'
import { setReceiptKey } from '../../src/store/ledger/gateway-vm.query.ts'
import { type Recorded, recordedPrograms } from '../rigs/attest/gpu/driver.ts'
import { serveRecorded } from '../rigs/attest/gpu/served.ts'
import { type SimulatedGpu, simulatedGpu } from '../rigs/attest/gpu/simulated.ts'
import { gpuPolicyText } from '../rigs/gateway/gpu-gateway.ts'

const testMs = 120_000
let upstream: TestUpstream
let gpu: SimulatedGpu
beforeAll(async () => {
  upstream = await startUpstream()
  gpu = await simulatedGpu()
})
afterAll(() => upstream.stop())

/** A host whose gateway VMs have these programs. */
async function benchOf(programs: Recorded, { count }: { readonly count: number }) {
  const stack = new AsyncDisposableStack()
  const served = stack.use(serveRecorded(programs))
  const bench = stack.use(
    await EnclaveBench.start({ upstreams: [{ url: upstream.url }], machine: { gpus: served.process } }),
  )
  const { worker } = bench.workload
  if (worker === null) throw new Error('the rig has a worker')
  if (count > 0) bench.workload = { ...bench.workload, worker: { ...worker, gpus: { count, policy: gpuPolicyText } } }
  return { bench, [Symbol.asyncDispose]: () => stack.disposeAsync() }
}

type Document = {
  readonly gpuEvidence?: string
  readonly receipts: { readonly target: string; readonly receipt: { readonly statement: string } }[]
}

/** Status 0: it does not listen yet. */
async function attestation(bench: EnclaveBench, vmId: string) {
  const address = `${bench.url(vmId)}/attestation?nonce=${newNonce()}`
  const answer = await fetch(address, { tls: { ca: bench.caPem } }).catch(() => null)
  return { status: answer?.status ?? 0, document: (await answer?.json()) as Document }
}

async function chatStatus(bench: EnclaveBench, vmId: string, { key, model }: { key: string; model: string }) {
  const answer = await fetch(`${bench.url(vmId)}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }] }),
    tls: { ca: bench.caPem },
  })
  return answer.status
}

function bytesOf(text: string | undefined): Uint8Array {
  return fromBase64Url(text ?? '') ?? new Uint8Array(0)
}

function statementsOf({ receipts }: Document): StatementOf<'workload'>[] {
  return receipts.map(({ receipt }) => decodeStatement(bytesOf(receipt.statement)) as StatementOf<'workload'>)
}

test(
  'goal: where workload.json requires no GPU, the attestation is that of before, and no program is asked',
  async () => {
    const programs = recordedPrograms([gpu])
    await using host = await benchOf(programs, { count: 0 })
    const { bench } = host
    const key = bench.addKey()
    const { vmId } = await bench.serve()
    await until('the worker serves', 60_000, async () => (await chatStatus(bench, vmId, { key, model: 'w' })) === 200)
    const { status, document } = await attestation(bench, vmId)
    expect([status, Object.keys(document)]).toEqual([
      200,
      ['schemaVersion', 'scope', 'nonce', 'operationalStatus', 'receipts'],
    ])
    for (const { receipt } of document.receipts) {
      expect(Buffer.from(bytesOf(receipt.statement)).toString('latin1')).not.toContain('gpu')
    }
    expect(programs.asked).toEqual([])
    await bench.verify(vmId)
  },
  testMs,
)

test(
  "goal: the worker starts once its GPU is good, and its receipt alone names the evidence, for this very attestation's nonce",
  async () => {
    const programs = recordedPrograms([gpu])
    await using host = await benchOf(programs, { count: 1 })
    const { bench } = host
    const key = bench.addKey()
    // A gateway vouches for nothing before its worker is admitted, which is once its GPU is good.
    const { vmId } = await bench.begin()
    await until('it attests', 60_000, async () => (await attestation(bench, vmId)).status === 200)
    // The host verifies it as ever, with neither manifests nor roots of GPUs, and books its usage from then on.
    setReceiptKey(bench.store.ledger.db, vmId, (await bench.verify(vmId)).receiptKey)
    await until('the worker serves', 60_000, async () => (await chatStatus(bench, vmId, { key, model: 'w' })) === 200)
    expect(programs.asked.slice(0, 4).map(line => line.split(' ').slice(0, 3).join(' '))).toEqual([
      ...['nvidia-smi conf-compute -f', 'nvidia-smi conf-compute -d', 'nvattest collect-evidence --device'],
      'nvidia-smi conf-compute -srs',
    ])
    const { document } = await attestation(bench, vmId)
    const bytes = bytesOf(document.gpuEvidence)
    const statements = statementsOf(document)
    const digest = new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes))
    expect(statements.map(({ gpuEvidenceDigest }) => gpuEvidenceDigest)).toEqual(
      document.receipts.map(({ target }) => (target === 'inference-worker' ? digest : null)),
    )
    const [statement] = statements
    if (statement === undefined) throw new Error('there are no receipts')
    const { checks } = verifyBoundGpus({
      ...{ bytes, count: 1, rims: [gpu.driver, gpu.vbios], ocsp: [], readSignedXml, roots: [gpu.roots] },
      nonce: gpuNonce(statement),
      policy: parseGpuPolicy(gpuPolicyText),
      asOfMs: Date.now(),
    })
    expect(checks.filter(({ outcome }) => outcome === 'fail')).toEqual([])
  },
  testMs,
)

test(
  'goal: with a GPU that is not good its worker never starts, and there is no attestation to serve with',
  async () => {
    const programs = recordedPrograms([gpu])
    programs.confidential = 'CC status: OFF\n'
    await using host = await benchOf(programs, { count: 1 })
    const { bench } = host
    const key = bench.addKey()
    const { vmId, session } = await bench.begin()
    await until('the gateway is ready', 60_000, () => session.status?.state === 'ready')
    await until('the worker has been refused', 60_000, () => programs.asked.length > 0)
    expect((await attestation(bench, vmId)).status).toBe(503)
    expect(await chatStatus(bench, vmId, { key, model: 'w' })).toBeGreaterThanOrEqual(500)
    await until('the host reads why', 60_000, () => JSON.stringify(session.status).includes('confidential mode is off'))
    expect(programs.asked).not.toContain('nvidia-smi conf-compute -srs 1')
    // It takes no help of the host's: once the GPU is good the worker starts.
    programs.confidential = 'CC status: ON\n'
    await until('the worker serves', 60_000, async () => (await chatStatus(bench, vmId, { key, model: 'w' })) === 200)
  },
  testMs,
)
