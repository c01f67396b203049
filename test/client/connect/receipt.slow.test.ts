// Receipts that clients save through strongroom connect, as `strongroom help receipts` shows it.

import { expect, test } from 'bun:test'
import { randomBytes } from 'node:crypto'
import { EnclaveBench } from '../../../scripts/rigs/enclave/enclave.ts'
import { startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { benchOptions, policyFiles, startConnect } from '../../rigs/connect/process.ts'
import { programArgv } from '../../rigs/program.ts'

const testMs = 120_000

// Goal: an exchange that is saved through connect passes `verify response`, and a changed request does not.
test(
  'a receipt comes through connect, and its evidence from the gateway alone',
  async () => {
    const upstream = await startUpstream()
    const bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    using files = policyFiles()
    try {
      const key = bench.addKey()
      const { vmId } = await bench.serve()
      const options = benchOptions(bench, vmId, files)
      await using connected = await startConnect(bench.url(vmId), options)
      const request = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'hello' }] })
      const post = (receipt: string) =>
        fetch(`${connected.ready.openai_base_url}/chat/completions`, {
          method: 'POST',
          headers: {
            authorization: `Bearer ${key}`,
            'content-type': 'application/json',
            'x-strongroom-receipt': receipt,
          },
          body: request,
        })
      const answer = await post('1')
      expect(answer.status).toBe(200)
      const response = new Uint8Array(await answer.arrayBuffer())
      const receipt = answer.headers.get('x-strongroom-receipt') ?? ''
      const nonce = randomBytes(32).toString('base64url')
      const saved = async (path: string) =>
        new Uint8Array(await (await fetch(`${bench.url(vmId)}${path}`, { tls: { ca: bench.caPem } })).arrayBuffer())
      expect((await fetch(`${connected.origin}/attestation?nonce=${nonce}`)).status).toBe(404)
      expect((await post('keep')).status).toBe(400)

      const paths = {
        request: files.file('request.json', request),
        response: files.file('response.json', response),
        changed: files.file('changed.json', `${request} `),
        receipt: files.file('receipt.txt', receipt),
        attestation: files.file('attestation.json', await saved(`/attestation?nonce=${nonce}`)),
        workload: files.file('workload.json', await saved('/workload.json')),
      }
      const verify = async (requestFile: string) => {
        const child = Bun.spawn(
          [
            ...[...programArgv, 'verify', 'response', '--request', requestFile, '--response', paths.response],
            ...['--receipt', paths.receipt, '--attestation', paths.attestation, '--nonce', nonce],
            ...['--as-of', new Date().toISOString(), '--workload', paths.workload],
            ...options.filter((_, at) => options[at] !== '--ca' && options[at - 1] !== '--ca'),
          ],
          { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' },
        )
        const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()])
        return { code: await child.exited, text: out + err }
      }
      const whole = await verify(paths.request)
      expect(whole.text).toContain('VERDICT: PASS SIMULATED')
      expect(whole.code).toBe(0)
      expect((await verify(paths.changed)).code).toBe(1)
    } finally {
      await bench[Symbol.asyncDispose]()
      await upstream.stop()
    }
  },
  testMs,
)
