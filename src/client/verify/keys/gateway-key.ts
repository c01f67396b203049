// Finds who made the caller's gateway key, according to a gateway that was just verified. Effects: the network, a file.

import { parsedJson } from '../../../attest/encoding/json.ts'
import { parsed } from '../../../attest/malformed.ts'
import { type Check, fail, notChecked, pass } from '../../../attest/verdict.ts'
import { equalConstantTime } from '../../../base/bytes.ts'
import { messageOf } from '../../../base/fault.ts'
import { spkiDigestOf } from '../../../linux/keys/spki.ts'
import type { TlsGet } from '../../../linux/net/tls-get.ts'
import { getByEnvironment } from '../../../linux/net/tunnel.ts'
import { InputFault } from '../../../terminal/exit.ts'
import { KIB, readTextInput } from '../../../terminal/input-file.ts'
import { refusalIn } from '../../../terminal/refusal.ts'
import { keyMakerIn } from '../../../verifier/key-maker.ts'

const checkName = 'gateway-key-maker'
const keyPattern = /^gw_[a-z0-9]{8}_[a-z0-9]{32}$/
const usageBytesMax = 64 * KIB

type KeyQuestion = Pick<TlsGet, 'url' | 'ca' | 'timeoutMs'> & {
  readonly key: string
  /** SHA-256 of the attested TLS key (SPKI). A connection with another key does not receive the API key. */
  readonly tlsSpkiDigest: Uint8Array
}

/** Reads the key in the file. Throws InputFault, which never repeats the text. */
export function readGatewayKey(path: string): string {
  const key = readTextInput({ path, param: 'key-file', bytesMax: KIB }).trim()
  if (keyPattern.test(key)) return key
  throw new InputFault(`--key-file ${path}: no gateway key, which is gw_, 8 and 32 characters`, {
    param: 'key-file',
    remedy: 'name the file of `strongroom gateway key new --key-file`',
  })
}

export function unaskedKeyMaker(): Check {
  return notChecked(checkName, 'the key was not sent, because the gateway did not verify', false)
}

/** Sends the key over a connection with the attested TLS key. Never rejects. */
export async function askKeyMaker({ key, tlsSpkiDigest, url, ca, timeoutMs }: KeyQuestion): Promise<Check> {
  const answer = await getByEnvironment({
    ...{ url: new URL('/v1/usage', url), ca, timeoutMs, bodyBytesMax: usageBytesMax },
    authorization: `Bearer ${key}`,
    isPeer: certificate => equalConstantTime(spkiDigestOf(certificate), tlsSpkiDigest),
  }).catch((error: unknown) => fail(checkName, messageOf(error)))
  if ('outcome' in answer) return answer
  const { status, body } = answer
  if (status !== 200) return fail(checkName, `${status}: ${refusalIn(body, 'no usage')}`)
  const usage = parsed(() => parsedJson('the usage', body))
  if (!usage.ok) return fail(checkName, usage.reason)
  const maker = keyMakerIn(usage.value)
  if (maker === null) return notChecked(checkName, 'this gateway is of a release that does not say', false)
  return maker === 'client' ? pass(checkName, CLIENT) : notChecked(checkName, HOST, false)
}

const CLIENT = 'the operator registered a digest of your key; if you made the key yourself, the host cannot act as you'
const HOST =
  'the host minted your key, so it can act as you; `strongroom gateway key new` makes a key that it never sees'
