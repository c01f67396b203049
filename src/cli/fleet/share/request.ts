// strongroom fleet share request. Effects: calls the gateway of this host, writes the request and its identity.

import { existsSync } from 'node:fs'
import { generateHybridIdentity, identityToRecipient } from 'age-encryption'
import { fromUtf8, toBase64Url, toHex, utf8 } from '../../../base/bytes.ts'
import { iso, systemClock } from '../../../base/clock.ts'
import { type Fault, messageOf } from '../../../base/fault.ts'
import { listenAddress, localUrl } from '../../../config/listen.ts'
import { checkedJson } from '../../../contract/check.ts'
import { WorkloadDocument, workloadBytesMax } from '../../../contract/vm/workload.ts'
import { controlKeyFile, openControlKey } from '../../../enclave-host/control-key.ts'
import { keepPending } from '../../../fleet/shared-identity/pending.ts'
import {
  encodeShareRequest,
  nonceOf,
  type ShareRequest,
  type SignedRequest,
  shareRequestFormat,
  signedBytesOf,
} from '../../../fleet/shared-identity/request.codec.ts'
import { fleetName } from '../../../fleet/target.ts'
import { getOverTls } from '../../../linux/net/tls-get.ts'
import { AdvisedFault } from '../../../terminal/exit.ts'
import { writeOutputs } from '../../../terminal/output-file.ts'
import { refusalIn } from '../../../terminal/refusal.ts'
import { fields } from '../../../terminal/render.ts'
import { attestationBytesMax } from '../../../verifier/gateway.ts'
import type { Run } from '../../operator-run.ts'
import { ownRecords, requiredTarget } from '../direct.ts'

const timeoutMs = 60_000

/**
 * Writes a request for the operator key. Faults: `config.invalid`, `attest.unavailable`, invalid_request (the file),
 * internal.
 */
export async function request(run: Run, file: string): Promise<void> {
  await requiredTarget(run)
  const { config } = await run.config()
  const records = ownRecords(run.stateDir)
  const keyFile = controlKeyFile(run.stateDir)
  if (records === null || !existsSync(keyFile)) throw notReady('this host has not served yet')
  if (config.listen.inference === '' || config.inference.placement !== 'vm') {
    throw notReady('its gateway has no VM (listen.inference, inference.placement), whose report could vouch for it')
  }
  const key = openControlKey(keyFile)
  const identity = await generateHybridIdentity()
  const asked: SignedRequest = {
    host_id: records.hostId,
    host_name: fleetName(config),
    made_at: iso(systemClock.nowMs()),
    recipient: await identityToRecipient(identity),
  }
  const { inference } = config.listen
  const gateway = localUrl(inference, listenAddress(inference).port)
  const nonce = nonceOf(asked)
  const attestation = await text(new URL(`/attestation?nonce=${toBase64Url(nonce)}`, gateway), attestationBytesMax)
  const workload = await text(new URL('/workload.json', gateway), workloadBytesMax)
  const { controlKey } = checkedJson(WorkloadDocument, utf8(workload), { what: 'workload.json', code: 'internal' })
  if (controlKey !== key.publicKey) throw notReady('its gateway VM was launched with another control key')
  const signature = toBase64Url(key.sign(signedBytesOf(asked)))
  const document: ShareRequest = {
    format: shareRequestFormat,
    asked,
    control_key: key.publicKey,
    signature,
    attestation,
    workload,
  }
  keepPending(run.stateDir, { asked, identity })
  writeOutputs([{ path: file, param: 'file', bytes: utf8(encodeShareRequest(document)) }], { replaces: true })
  const shown = [
    ['request', file],
    ['of', asked.host_name],
    ['sha-256', toHex(nonce)],
  ] as const
  await run.result(
    { file, host_id: asked.host_id, host_name: asked.host_name, request_sha256: toHex(nonce) },
    fields(run.paint, shown),
  )
  await run.hint(
    'take it to the host that has the secrets, within an hour: strongroom fleet share seal (strongroom help fleet)',
  )
}

async function text(url: URL, bodyBytesMax: number): Promise<string> {
  const { status, body } = await getOverTls({ url, ca: undefined, timeoutMs, bodyBytesMax }).catch(error => {
    throw notReady(`its gateway does not answer: ${messageOf(error)}`)
  })
  if (status === 200) return fromUtf8(body)
  throw notReady(`${url.pathname} of its gateway answers with status ${status}: ${refusalIn(body, 'no reason')}`)
}

function notReady(why: string): Fault {
  return new AdvisedFault('attest.unavailable', `no evidence attests a key of this host: ${why}`, {
    remedy:
      'see `strongroom inference show`: a gateway VM with a built-in worker has to serve on this host; then try again',
  })
}
