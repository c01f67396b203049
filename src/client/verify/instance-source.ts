// Fetches an instance's attestation from service A, with an API key and a fresh nonce. Effects: the network, files.

import { toBase64Url } from '../../base/bytes.ts'
import { type FaultCode, messageOf } from '../../base/fault.ts'
import { CertificateError, type TlsResponse } from '../../linux/net/tls-get.ts'
import { getByEnvironment } from '../../linux/net/tunnel.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { KIB, readTextInput } from '../../terminal/input-file.ts'
import type { Io } from '../../terminal/io.ts'
import { problemIn } from '../../terminal/refusal.ts'
import { oneLine } from '../../terminal/render.ts'
import { type InstanceIdentity, instanceAttestationBytesMax } from '../../verifier/instance.ts'

export type InstanceSource = {
  /** Base address: https://HOST:PORT. */
  readonly api: URL
  readonly key: ApiKey
  /** Certificate authority in PEM. */
  readonly ca: string | undefined
  readonly timeoutMs: number
}

export type ApiKey = {
  readonly text: string
  /** Where the key was read, for messages, which never contain the key. */
  readonly source: string
}

const keyPattern = /^ca_[a-z0-9]{8}_[a-z0-9]{18}$/
const keyEnv = 'STRONGROOM_API_KEY'
const keyWays = `name a file with it by --key-file or by key_file in client.toml, or set ${keyEnv}`

/** Reads the key from `--key-file`, otherwise the environment, otherwise the file named in client.toml. */
export function readApiKey(given: string | undefined, env: Io['env'], fallback: string | undefined): ApiKey {
  const fromEnv = env[keyEnv]
  const isFromEnv = given === undefined && fromEnv !== undefined && fromEnv !== ''
  const path = given ?? fallback
  if (!isFromEnv && path === undefined) {
    throw new InputFault('an API key is needed for service A', { param: 'key-file', remedy: keyWays })
  }
  const source = isFromEnv ? keyEnv : `the file ${path}`
  const text = isFromEnv ? fromEnv : readTextInput({ path: path ?? '', param: 'key-file', bytesMax: KIB })
  if (!keyPattern.test(text.trim())) {
    throw new InputFault(`${source}: no API key, which is ca_, 8 and 18 characters`, {
      param: 'key-file',
      remedy: keyWays,
    })
  }
  return { text: text.trim(), source }
}

/**
 * Returns the response's body. Faults: api.unreachable, unauthenticated, forbidden, not_found, conflict,
 * attestation_unavailable.
 */
export async function fetchAttestation(
  { api, key, ca, timeoutMs }: InstanceSource,
  instance: InstanceIdentity,
  nonce: Uint8Array,
): Promise<Uint8Array> {
  const url = new URL(`/v1/instances/${instance.name}/attestation?nonce=${toBase64Url(nonce)}`, api)
  let response: TlsResponse
  try {
    const authorization = `Bearer ${key.text}`
    response = await getByEnvironment({ url, authorization, ca, timeoutMs, bodyBytesMax: instanceAttestationBytesMax })
  } catch (error) {
    const isCertificate = error instanceof CertificateError
    throw new AdvisedFault(
      'api.unreachable',
      `${url.host}: ${isCertificate ? 'its certificate: ' : ''}${oneLine(messageOf(error))}`,
      {
        remedy: isCertificate
          ? 'name the authority that issued it by --ca; the API key was not sent'
          : 'check the address (--api), the network, and that the appliance is up',
        cause: error,
      },
    )
  }
  if (response.status === 200) return response.body
  throw toFault(response, { host: url.host, key, instance })
}

type AttestationRequest = { readonly host: string; readonly key: ApiKey; readonly instance: InstanceIdentity }

function toFault(response: TlsResponse, { host, key, instance }: AttestationRequest): AdvisedFault {
  const { status, retryAfter, body } = response
  const { message, requestId } = problemIn(body)
  const wait = retryAfter !== null && /^[0-9]{1,5}$/.test(retryAfter) ? `in ${retryAfter} s` : 'in a minute'
  const said = `${host}: ${status}${message === null ? '' : `: ${oneLine(message)}`}`
  const id = requestId === null ? '' : ` (request ${oneLine(requestId)})`
  const fault = (code: FaultCode, text: string, remedy: string) => new AdvisedFault(code, text, { remedy })
  switch (status) {
    case 401:
    case 403:
      return fault(
        status === 401 ? 'unauthenticated' : 'forbidden',
        `${said}; the key was read from ${key.source}`,
        `use a key of the organization ${instance.organization} that is not revoked: ${keyWays}`,
      )
    case 404:
      return fault(
        'not_found',
        `${said}; asked for ${instance.name} with the key from ${key.source}`,
        `check the name, that the key is of the organization ${instance.organization}, and that --api is its appliance`,
      )
    case 409:
      return fault('conflict', said, 'wait until the status of the instance is ready, then try again')
    case 429:
    case 503:
      return fault('attestation_unavailable', said, `try again ${wait}; do not log in on trust meanwhile`)
    default:
      return fault(
        'attestation_unavailable',
        `${said}${id}`,
        'check that --api is service A; if it is, try again, and report the request if it fails again',
      )
  }
}
