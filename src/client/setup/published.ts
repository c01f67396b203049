// The files that a host publishes about itself, and their check against its transparency log. Effects: the network.
// Without that check they prove nothing: a host that is not trusted chooses them.

import { isBroken } from '../../attest/verdict.ts'
import { messageOf } from '../../base/fault.ts'
import { parseJson } from '../../base/json.ts'
import { resultOr } from '../../base/result-or.ts'
import { checkValue } from '../../contract/check.ts'
import type { LogFact } from '../../contract/http/log-entry.ts'
import { PublishedFiles, publishedBytesMax, publishedPath } from '../../contract/http/published.ts'
import type { TlsResponse } from '../../linux/net/tls-get.ts'
import { getByEnvironment } from '../../linux/net/tunnel.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'
import { type AskedLog, judgeLogged } from '../log/judge.ts'
import { type OperatorFile, withLaunchDigests } from './operator-files.ts'

const timeoutMs = 30_000

/** Fetches the document. `ca`: PEM of an authority from the caller. Faults api.unreachable, internal, not_found. */
export async function fetchPublished(api: URL, ca: string | undefined): Promise<PublishedFiles> {
  const url = new URL(publishedPath, api)
  const response = await get(url, ca)
  const files = read(url, response)
  if (response.certificateFault === null) return files
  // No key was sent. The authority that the host publishes must at least be that of its certificate.
  const again = ca === undefined && files.ca !== null ? await get(url, files.ca) : response
  if (again.certificateFault === null) return read(url, again)
  throw new AdvisedFault('api.unreachable', `${url.host}: its certificate: ${oneLine(again.certificateFault)}`, {
    remedy: 'name the authority that issued it by --ca; the API key was not sent',
  })
}

async function get(url: URL, ca: string | undefined): Promise<TlsResponse> {
  try {
    return await getByEnvironment({ url, ca, timeoutMs, bodyBytesMax: publishedBytesMax })
  } catch (error) {
    throw new AdvisedFault('api.unreachable', `${url.host}: ${oneLine(messageOf(error))}`, {
      remedy: 'check the address, the network, and that the appliance is up',
      cause: error,
    })
  }
}

function read(url: URL, { status, body }: TlsResponse): PublishedFiles {
  if (status !== 200) {
    throw new AdvisedFault(status === 404 ? 'not_found' : 'internal', `${url.href}: status ${status}`, {
      remedy: 'get the files from your operator, and name their directory by --files',
    })
  }
  const parsed = checkValue(
    PublishedFiles,
    resultOr(() => parseJson(body, { depthMax: 4 }), null),
  )
  if (parsed.ok) return parsed.value
  throw new AdvisedFault('internal', `${url.href}: ${oneLine(parsed.problem)}`, {
    remedy: 'check that the address is that of service A, of a version that this client supports',
  })
}

/** No share: requests to one log. A manifest has a digest for each shape of VM. */
const digestsMax = 64

/**
 * Requires an entry for each of the host's files: the operator key, and of each image a measurement that VMs were
 * launched with. Returns the files with the launch digests that have an entry: one of them does not vouch for another.
 * The log has no authorities, so `ca` stays as it is. Fault conflict names the first file without an entry.
 */
export async function requireLogged(files: readonly OperatorFile[], log: AskedLog): Promise<readonly OperatorFile[]> {
  const kept: OperatorFile[] = []
  for (const file of files) kept.push(await loggedPart(file, log))
  return kept
}

async function loggedPart(file: OperatorFile, log: AskedLog): Promise<OperatorFile> {
  const { field, digests, words } = file
  if (field === 'ca' || field === 'trust_simulated_root') return file
  const refuse = (problem: string) =>
    new AdvisedFault('conflict', `${words}: ${problem}`, {
      remedy: 'do not trust this file: get it over another channel, and name it by its option',
    })
  if (digests.length > digestsMax) throw refuse(`it has ${digests.length} launch digests, more than ${digestsMax}`)
  const logged = new Set<string>()
  for (const digest of digests) {
    const { ok, checks, isAbsent } = await judgeLogged(factOf(field, digest), log)
    // Only a tree that is good otherwise shows that the entry is absent.
    const broken = checks.find(item => isBroken(item) && !(isAbsent && item.name === 'log-included'))
    if (broken !== undefined) throw refuse(oneLine(`${broken.name}: ${broken.reason}`))
    if (ok) logged.add(digest)
  }
  if (logged.size === 0) throw refuse('the log has no entry for it')
  return logged.size === digests.length ? file : withLaunchDigests(file, logged)
}

function factOf(field: 'operator_key' | 'image' | 'gateway_image', digest: string): LogFact {
  return field === 'operator_key' ? { kind: 'operator-key', sha384: digest } : { kind: 'image', measurement: digest }
}
