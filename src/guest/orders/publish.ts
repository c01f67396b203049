// Orders that publish ports of this VM by TLS, and the certificates that the host gets for their keys, which are made
// here. Effects: a file of root and of the process that serves the ports; that process.

import { createHash, generateKeyPairSync, sign, X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import { requestBy } from '../../attest/x509/certificate-request.ts'
import { toBase64Url } from '../../base/bytes.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import { createSerial } from '../../base/work/serial.ts'
import { checkValue } from '../../contract/check.ts'
import type { IssuedCertificate } from '../../contract/vm/agent.ts'
import type { CertificateRequest } from '../../contract/vm/agent-responses.ts'
import { PublishBody, publishedEgressBytes, publishedMax } from '../../contract/vm/orders/published.ts'
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
  /** Takes one. Refuses a chain for another key or name, and one that cannot be served. */
  readonly take: (issued: IssuedCertificate) => Promise<{ ok: true } | Refusal>
  /** Call it once, after the claim is restored. Never rejects. */
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

const no = (message: string): OrderOutcome => ({ ok: false, message })

export function createPublishing({ paths, system, publishedGid, daemon, claim }: PublishingDeps): Publishing {
  const serial = createSerial()
  const inForce = () => readPublished(paths)
  /** Null after a failure: the host then sees no chain here, and hands it in again. */
  let served: string | null = ''

  const serve = async () => {
    const wanted = servedOf(inForce())
    if (wanted === served) return
    served = null
    if (wanted !== '') await daemon.start()
    served = wanted
  }

  /** The process ends before the file changes: the statement names whatever is served. */
  const change = async (next: readonly PublishedPort[]) => {
    if (servedOf(next) !== served) {
      served = null
      await daemon.stop()
    }
    writeFileAtomic(paths.published, JSON.stringify(next), { mode: 0o640, owner: { ...system, gid: publishedGid } })
    await serve()
  }

  return {
    publish: body =>
      serial.run(async () => {
        const read = checkValue(PublishBody, body)
        if (!read.ok) return no(`${read.problem}: a name like web, a port from 1024 to 65535`)
        const { name, port, egressBytes } = read.value
        const found = inForce().find(other => other.name === name)
        const others = inForce().filter(other => other.name !== name)
        if (port === endpointPort) return no(`port: ${port} is the gateway: anyone could use your key; take another`)
        if (egressBytes !== undefined && !port) return no('egressBytes: order it together with the port')
        if (port === null) {
          if (found === undefined) return no(`name: ${name} is not published`)
          await change(others)
        } else if (port !== undefined) {
          if (others.length >= publishedMax) return no(`name: ${publishedMax} ports are published: unpublish one first`)
          const kept = found ?? newPort(name, `${name}.${claim()?.hostname}`)
          const problem = kept.chain === null ? null : kept.problem
          const next = [...others, { ...kept, port, egressBytes: egressBytes ?? kept.egressBytes, problem }]
          // Problems of certified ports are about the part of the cap, which all ports share.
          const told = next.map(each => (egressBytes === undefined ? each : { ...each, problem: null }))
          await change(told.toSorted((a, b) => (a.name < b.name ? -1 : 1)))
        }
        return { ok: true, result: { published: inForce().map(port => stateOf(port, served !== null)) } }
      }),
    stated: () => {
      const texts = inForce().map(({ keySha256, name, port }) => canonicalJson({ keySha256, name, port }))
      return texts.length === 0 ? null : texts
    },
    requests: () =>
      inForce().map(({ name, csr, chain, egressBytes }) => {
        const chainSha256 = chain === null || served === null ? null : createHash('sha256').update(chain).digest('hex')
        return { name, csr, chainSha256, egressBytes }
      }),
    take: ({ name, chain, problem }) =>
      serial.run(async () => {
        const found = inForce().find(port => port.name === name)
        if (found === undefined) return refuse('failed', 'certificate.name: no published port is called that')
        if (chain !== null && !canServe(chain, found))
          return refuse('bad_request', 'certificate.chain: not for the key and host of this name')
        const next = { ...found, chain: chain ?? found.chain, problem }
        await change(inForce().map(port => (port.name === name ? next : port)))
        return ok
      }),
    restore: () => serve().catch(() => {}),
  }
}

function newPort(name: string, host: string): Omit<PublishedPort, 'port'> {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const key = privateKey.export({ format: 'pem', type: 'pkcs8' }).toString()
  const spki = publicKey.export({ format: 'der', type: 'spki' })
  const keySha256 = createHash('sha256').update(spki).digest('hex')
  const csr = toBase64Url(requestBy({ spki, sign: message => sign('sha256', message, key) }, host))
  return { name, host, key, csr, keySha256, chain: null, problem: null, egressBytes: publishedEgressBytes }
}

/** All certificates of the chain must be readable, or the process that serves all ports would not start. */
function canServe(chain: string, { key, host }: PublishedPort): boolean {
  try {
    createSecureContext({ key, cert: chain })
    return new X509Certificate(chain).checkHost(host) !== undefined
  } catch {
    return false
  }
}

/** Empty if nothing is served. */
function servedOf(ports: readonly PublishedPort[]): string {
  return ports.flatMap(({ host, port, chain }) => (chain === null ? [] : [host, port, chain])).join()
}

function stateOf({ keySha256, name, port, chain, problem, egressBytes }: PublishedPort, isServing: boolean) {
  return { keySha256, name, port, isCertified: isServing && chain !== null, problem, egressBytes }
}
