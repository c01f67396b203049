// Goal: `verify gateway --key-file` says who made the key, by the word of the gateway that has just
// verified, and gives the key to no other.

import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import { clearRig } from '../../../../scripts/rigs/gateway/attestation.ts'
import {
  everything,
  file,
  type GatewayServer,
  startGateway,
  startMiddle,
  startOther,
  writeCaFile,
} from '../../../rigs/gateway/attested-servers.ts'
import { checksOf, expectUsageError, runHere } from '../../../rigs/program.ts'
import { startRelay } from '../../../rigs/tls-peers.ts'

/** Each verification takes a second of processor time. */
setDefaultTimeout(120_000)
afterAll(clearRig)

const all = await everything()
const caFile = writeCaFile()
const key = `gw_k3v9x2ab_${'s3cr3t'.repeat(5)}00`
const keyFile = file('client.key', `${key}\n`)
const notFound = () => new Response('{}', { status: 404 })
const portOf = ({ url }: GatewayServer) => Number(new URL(url).port)

async function verify(url: string, ...more: string[]) {
  const argv = ['verify', 'gateway', url, '--ca', caFile, ...all, '--key-file', keyFile, ...more, '--json']
  const { code, stdout } = await runHere(argv)
  const document = JSON.parse(stdout)
  const check = document.checks.find((item: { name: string }) => item.name === 'gateway-key-maker')
  return { code, ok: document.ok, failed: checksOf(document, 'FAIL'), check }
}

/** A gateway that gives this body to GET /v1/usage with the key. */
function answering(body: unknown, seen: string[] = []): Promise<GatewayServer> {
  const other = ({ url, headers }: Request) => {
    if (new URL(url).pathname !== '/v1/usage') return notFound()
    seen.push(headers.get('authorization') ?? '')
    return headers.get('authorization') === `Bearer ${key}`
      ? Response.json(body)
      : Response.json({ error: { code: 'unauthenticated', message: 'no' } }, { status: 401 })
  }
  return startGateway({ other })
}

test('goal: each word of the gateway, with what it means', async () => {
  for (const [maker, result, words] of [
    ['client', 'PASS', 'if you made the key yourself, the host cannot act as you'],
    ['host', 'NOT CHECKED', 'the host minted your key, so it can act as you'],
    [undefined, 'NOT CHECKED', 'of a release that does not say'],
    ['operator', 'NOT CHECKED', 'of a release that does not say'],
  ] as const) {
    using gateway = await answering({ object: 'usage', key_made_by: maker })
    const { code, ok, check } = await verify(gateway.url)
    expect([code, ok, check.result, check.reason]).toEqual([0, true, result, expect.stringContaining(words)])
  }
})

test('goal: a key that the gateway refuses fails with its code, and never shows in the output', async () => {
  using gateway = await answering({})
  const wrong = file('wrong.key', `gw_k3v9x2ab_${'w'.repeat(32)}`)
  const argv = ['verify', 'gateway', gateway.url, '--ca', caFile, ...all, '--key-file', wrong]
  const { code, stdout, stderr } = await runHere([...argv, '--verbose'])
  expect([code, stdout]).toEqual([2, expect.stringContaining('FAIL gateway-key-maker: 401: unauthenticated: no')])
  expect(stdout + stderr).not.toContain('w'.repeat(32))
})

test('goal: a gateway that does not verify never gets the key', async () => {
  const seen: string[] = []
  using gateway = await answering({ key_made_by: 'client' }, seen)
  using middle = await startMiddle(gateway)
  const { code, failed, check } = await verify(middle.url)
  expect([code, failed, check.result]).toEqual([1, ['tls-binding'], 'NOT CHECKED'])
  expect(check.reason).toBe('the key was not sent, because the gateway did not verify')
  expect(seen).toEqual([])
})

test('goal: a server that takes the address after the verification never gets the key, whatever its certificate', async () => {
  const seen: string[] = []
  using thief = await startOther(request => {
    seen.push(`${new URL(request.url).pathname} ${request.headers.get('authorization')}`)
    return Response.json({ key_made_by: 'client' })
  })
  let lead = () => {}
  // The question for workload.json is the last one before the key.
  using gateway = await startGateway({
    other: () => {
      lead()
      return notFound()
    },
  })
  await using relay = await startRelay(portOf(gateway))
  lead = () => relay.leadNew(portOf(thief))
  const { code, failed, check } = await verify(relay.url)
  expect([code, failed, check.reason]).toEqual([2, ['gateway-key-maker'], 'the certificate is for another key'])
  expect([relay.connectionCount(), seen]).toEqual([3, []])
})

test('goal: what is no gateway key, and a saved document, are refused before anything is sent', async () => {
  const line = ['verify', 'gateway', 'https://127.0.0.1:1', '--ca', caFile, ...all]
  const api = file('api.key', `ca_k3v9x2ab_${'a'.repeat(18)}`)
  await expectUsageError([...line, '--key-file', api], 'no gateway key, which is gw_, 8 and 32 characters')
  await expectUsageError([...line, '--key-file', '/nonexistent'], '--key-file /nonexistent')
  const saved = ['verify', 'gateway', '--document', api, ...all, '--key-file', keyFile]
  await expectUsageError(saved, '--key-file is for a live gateway')
})
