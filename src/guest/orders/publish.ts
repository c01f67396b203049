// Orders that publish ports of this VM by TLS, and the certificates that the host gets for their keys, which are made
// here. Effects: a file of root and of the process that serves the ports; that process.

import { createHash, createPrivateKey, generateKeyPairSync, sign, X509Certificate } from 'node:crypto'
import { requestBy } from '../../attest/x509/certificate-request.ts'
import { toBase64Url } from '../../base/bytes.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import { createSerial } from '../../base/work/serial.ts'
import { checkValue } from '../../contract/check.ts'
import type { IssuedCertificate } from '../../contract/vm/agent.ts'
import type { CertificateRequest } from '../../contract/vm/agent-responses.ts'
import { PublishBody, publishedMax } from '../../contract/vm/orders/published.ts'
import { type Owner, writeFileAtomic } from '../../linux/files.ts'
import type { ClaimRecord } from '../claim-record.ts'
import type { Daemon } from '../daemon.ts'
import { endpointPort } from '../gateway/address.ts'
import type { GuestPaths } from '../paths.ts'
import { type PublishedPort, readPublished } from '../published/state.ts'
import { ok, type Refusal, refuse } from '../wire.codec.ts'
import type { OrderHandler, OrderOutcome } from './orders.ts'

export type Publishing = {
  readonly publish: OrderHandler
  /** Canonical texts for the statement; null without a published port. */
  readonly stated: () => readonly string[] | null
  /** Names for which the host is to get certificates. */
  readonly requests: () => CertificateRequest[]
  /** Takes one. Refuses a chain for another key. */
  readonly take: (issued: IssuedCertificate) => Promise<{ ok: true } | Refusal>
  /** Call it once, after the claim is restored. */
  readonly restore: () => Promise<void>
}

type PublishingDeps = {
  readonly paths: Pick<GuestPaths, 'published'>
  readonly system: Owner
  /** Group of the process that serves the ports. */
  readonly publishedGid: number
  readonly daemon: Daemon
  readonly claim: () => Pick<ClaimRecord, 'hostname'> | null
}

export function createPublishing({ paths, system, publishedGid, daemon, claim }: PublishingDeps): Publishing {
  const serial = createSerial()
  const inForce = () => readPublished(paths)

  /** The process ends before the file changes: the statement names whatever is served. */
  const change = async (next: readonly PublishedPort[]): Promise<OrderOutcome> => {
    const isSame = servedOf(next) === servedOf(inForce())
    if (!isSame) await daemon.stop()
    try {
      writeFileAtomic(paths.published, JSON.stringify(next), { mode: 0o640, owner: { ...system, gid: publishedGid } })
    } finally {
      if (!isSame && servedOf(inForce()) !== '') await daemon.start()
    }
    return { ok: true, result: { published: next.map(stateOf) } }
  }

  return {
    publish: body =>
      serial.run(async () => {
        const read = checkValue(PublishBody, body)
        if (!read.ok) return no(`${read.problem}: a name like web, a port from 1024 to 65535`)
        const { name, port } = read.value
        const found = inForce().find(other => other.name === name)
        const others = inForce().filter(other => other.name !== name)
        if (port === null) return found === undefined ? no(`name: ${name} is not published`) : await change(others)
        if (port === endpointPort) return no(`port: ${port} is the gateway: anyone could use your key; take another`)
        if (others.length >= publishedMax) return no(`name: ${publishedMax} ports are published: unpublish one first`)
        const kept = found ?? newPort(name, `${name}.${claim()?.hostname}`)
        return await change([...others, { ...kept, port }].toSorted((a, b) => (a.name < b.name ? -1 : 1)))
      }),
    stated: () => {
      const texts = inForce().map(({ keySha256, name, port }) => canonicalJson({ keySha256, name, port }))
      return texts.length === 0 ? null : texts
    },
    requests: () => inForce().map(requestOf),
    take: ({ name, chain, problem }) =>
      serial.run(async () => {
        const found = inForce().find(port => port.name === name)
        if (found === undefined) return refuse('failed', 'certificate.name: no published port is called that')
        if (chain !== null && !new X509Certificate(chain).checkPrivateKey(createPrivateKey(found.key)))
          return refuse('bad_request', 'certificate.chain: not for the key of this name')
        const next = { ...found, chain: chain ?? found.chain, problem }
        await change(inForce().map(port => (port.name === name ? next : port)))
        return ok
      }),
    restore: async () => {
      if (servedOf(inForce()) !== '') await daemon.start()
    },
  }
}

function no(message: string): OrderOutcome {
  return { ok: false, message }
}

function newPort(name: string, host: string): Omit<PublishedPort, 'port'> {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const key = privateKey.export({ format: 'pem', type: 'pkcs8' }).toString()
  const spki = publicKey.export({ format: 'der', type: 'spki' }).toString('base64')
  const keySha256 = createHash('sha256').update(spki, 'base64').digest('hex')
  return { name, host, key, spki, keySha256, chain: null, problem: null }
}

/** Empty if nothing is served. */
function servedOf(ports: readonly PublishedPort[]): string {
  return ports.flatMap(({ host, port, chain }) => (chain === null ? [] : [host, port, chain])).join()
}

function requestOf({ name, host, key, spki, chain }: PublishedPort): CertificateRequest {
  const signer = { spki: Buffer.from(spki, 'base64'), sign: (message: Uint8Array) => sign('sha256', message, key) }
  const chainSha256 = chain === null ? null : createHash('sha256').update(chain).digest('hex')
  return { name, csr: toBase64Url(requestBy(signer, host)), chainSha256 }
}

function stateOf({ keySha256, name, port, chain, problem }: PublishedPort) {
  return { keySha256, name, port, isCertified: chain !== null, problem }
}
