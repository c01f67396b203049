// Waits until clients reach a published port by the key of its VM. Effects: the network.
//
// This connects as any client does, because each order needs a signature, and a key may need a touch or a passphrase.

import { once } from 'node:events'
import { connect } from 'node:tls'
import { toHex } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { systemErrorCode } from '../../base/fault.ts'
import { Closed, OrNull } from '../../contract/forms.ts'
import { type Static, Type } from '../../contract/type.ts'
import { publicTlsPort, publishedEgressBytesMax, publishedMax } from '../../contract/vm/orders/published.ts'
import { PublishedFacts } from '../../contract/vm/orders/published-facts.ts'
import { spkiDigestOf } from '../../linux/keys/spki.ts'
import { AdvisedFault } from '../../terminal/exit.ts'

/** `problem`: why the host has no certificate yet; only the host vouches for it. */
const PublishedState = Closed({
  ...PublishedFacts.properties,
  isCertified: Type.Boolean(),
  problem: OrNull(Type.String({ maxLength: 512 })),
  egressBytes: Type.Integer({ minimum: 1, maximum: publishedEgressBytesMax }),
})
/** The result of the order: all published ports. */
export const PublishedResult = Closed({ published: Type.Array(PublishedState, { maxItems: publishedMax }) })
export type Published = Static<typeof PublishedResult>['published']

/** 'nameless': the name has no address, as where the operator has not opened published ports. */
export type Seen = 'reached' | 'not reached' | 'nameless'

type Waiting = {
  readonly name: string
  /** Returns the state as the VM has it; nothing changes there. */
  readonly ask: () => Promise<Published>
  readonly probe: (keySha256: string) => Promise<Seen>
  readonly clock: Pick<Clock, 'sleep' | 'monotonicMs'>
}

const pauseMs = 5_000
/** The host looks once a minute; then its order at the ACME server may take as long as three. */
const waitMs = 240_000
/** After this the host has told the VM why, if it has not opened published ports. */
const namelessMs = 75_000

type Waited = { readonly published: Published; readonly isReached: boolean }

/**
 * Looks at once, then again and again until the port is reached. Returns the state of the VM after the time. Fault
 * conflict: published no more.
 */
export async function waited(first: Published, { name, ask, probe, clock }: Waiting): Promise<Waited> {
  const keyOf = (published: Published) => published.find(port => port.name === name)?.keySha256 ?? ''
  const key = keyOf(first)
  const beganMs = clock.monotonicMs()
  for (;;) {
    const seen = await probe(key)
    if (seen === 'reached') {
      const published = first.map(port => (port.name === name ? { ...port, isCertified: true } : port))
      return { published, isReached: true }
    }
    if (clock.monotonicMs() - beganMs >= (seen === 'nameless' ? namelessMs : waitMs)) break
    await clock.sleep(pauseMs)
  }
  const last = await ask()
  if (keyOf(last) === key) return { published: last, isReached: false }
  throw new AdvisedFault('conflict', `${name}: another owner has unpublished it, or published it with another key`, {
    remedy: 'ask the others with a key of the instance, then repeat the command',
  })
}

export type ProbeOptions = {
  readonly host: string
  /** Null to resolve the name. */
  readonly address: string | null
  readonly keySha256: string
  readonly port?: number
  readonly timeoutMs?: number
}

/** Never rejects. */
export async function probePublished({
  host,
  address,
  keySha256,
  port = publicTlsPort,
  timeoutMs = 10_000,
}: ProbeOptions): Promise<Seen> {
  // The key alone decides.
  const socket = connect({ host: address ?? host, port, servername: host, rejectUnauthorized: false })
  const timer = setTimeout(() => socket.destroy(new Error('no answer')), timeoutMs)
  try {
    await once(socket, 'secureConnect')
    const { raw } = socket.getPeerCertificate(true)
    return toHex(spkiDigestOf(new Uint8Array(raw))) === keySha256 ? 'reached' : 'not reached'
  } catch (error) {
    return ['ENOTFOUND', 'ENODATA'].includes(systemErrorCode(error) ?? '') ? 'nameless' : 'not reached'
  } finally {
    clearTimeout(timer)
    socket.on('error', () => {}).destroy()
  }
}
