// The verdicts on a gateway and on one of its responses in plain words, and commands to try after FAIL. Pure.

import { keyMakerCheckName } from '../../attest/check-names.ts'
import { isAllowed, originOf, outsideEntry } from '../../attest/receipt/outside.ts'
import type { ResponseClaim } from '../../attest/receipt/response.ts'
import type { Check } from '../../attest/verdict.ts'
import { toHex } from '../../base/bytes.ts'
import { EXPOSURE_WORDS, type Exposure, exposuresIn } from '../../contract/vm/exposure.ts'
import type { WorkloadDocument, WorkloadUpstream } from '../../contract/vm/workload.ts'
import type { GatewayVerdict } from '../../verifier/gateway.ts'
import { pinCheckName } from '../../verifier/pins.ts'
import { attestationWords } from '../../verifier/workload.ts'
import { hostAddress, hostName, hostNames, listed } from '../verdict/host-text.ts'
import { type Added, hasOption, type NextCommands } from '../verdict/next-commands.ts'
import type { Fact, Plain } from '../verdict/plain.ts'
import { hardwareFacts, launchFacts, readerFacts, shortText } from '../verdict/receipt-facts.ts'
import { isAnotherLaunch, isFailed, lackingOptions } from './pin-commands.ts'

export type GatewayWords = {
  /** Null if no evidence was received. */
  readonly found: GatewayVerdict | null
  /** Checks as shown, in the terms of the command line. */
  readonly checks: readonly Check[]
  readonly argv: readonly string[]
  /** Files and options that name the expected measurement. */
  readonly sources: readonly string[]
  /** Upstreams accepted by --allow-outside; `allow` has the settings accepted by --allow. */
  readonly outside: readonly string[]
  readonly allow: readonly Exposure[]
}

/** Returns the words for a gateway. `host`: that of the connection; null for a saved document. */
export function gatewayWords(words: GatewayWords, host: string | null): Plain {
  const { found } = words
  return {
    act: host === null ? 'send prompts to it' : `send prompts to ${host}`,
    facts:
      found === null ? [] : [...connectionFacts(found, host), ...vmFacts(found, words), ...promptFacts(found, words)],
    unproved: [
      ...(host === null ? [] : [`later connections: \`strongroom connect https://${host}\` verifies each`]),
      ...openWorkload(words),
      'what the gateway did after it was started',
    ],
    next: nextOf(words, host === null),
  }
}

export function responseWords(words: GatewayWords, claim: ResponseClaim | null): Plain {
  const { found, checks } = words
  const isGood = claim !== null && found !== null
  return {
    act: 'trust this response',
    facts: isGood ? [...exchangeFacts(claim, checks), ...vmFacts(found, words), ...answerFacts(claim, checks)] : [],
    unproved: [...openWorkload(words), 'what else the gateway did after it was started'],
    next: nextOf(words, true, acceptedUpstream(words, claim)),
  }
}

/** Returns the commands to try. `isSaved`: whether its workload.json was not fetched. */
function nextOf(words: GatewayWords, isSaved: boolean, upstream: Added = []): NextCommands {
  const { argv, checks } = words
  const lacking = lackingOptions(argv, checks)
  const lacksWorkload = isSaved && !hasOption(argv, '--workload') && checks.some(isUnknownHostData)
  const lacksSalt = isFailed(checks, 'response-salt') && !hasOption(argv, '--salt')
  return {
    ...lacking,
    missing: [
      ...lacking.missing,
      ...(lacksWorkload ? ['--workload', 'workload.json'] : []),
      ...(lacksSalt ? ['--salt', 'TEXT'] : []),
    ],
    expected: [...lacking.expected, ...(isAnotherLaunch(checks) ? [] : [...acceptedBy(words), ...upstream])],
  }
}

/** Reports whether HOST_DATA is that of a workload.json, and only the allowlist was available for comparison. */
function isUnknownHostData({ outcome, reason }: Check): boolean {
  return outcome === 'fail' && reason.includes('host-data-allowlist: ')
}

function connectionFacts({ gateway }: GatewayVerdict, host: string | null): Fact[] {
  const key = gateway?.tlsSpkiDigest ?? null
  if (key === null) return []
  const words =
    host === null
      ? 'over a connection with this TLS key alone'
      : 'over the connection that was made now; it ends inside the VM'
  return [['you may', `${words} (SHA-256 of its key: ${toHex(key)})`]]
}

/** Returns facts about the VM that made the receipts. */
function vmFacts(
  { receipts, gateway, simulated, workload }: GatewayVerdict,
  { checks, sources }: GatewayWords,
): Fact[] {
  const receipt = receipts[0]?.verdict ?? null
  const facts = {
    report: receipt?.report ?? null,
    image: gateway?.image.name ?? null,
    operatorKey: gateway?.operatorKey ?? null,
    checks: [...checks, ...(receipt?.checks ?? [])],
    simulated,
    isOwnImage: true,
    sources,
  }
  const also = [...settingLines(workload), ...keyLines(checks)]
  return [...launchFacts(facts), ...workloadFacts(checks), ...readerFacts(facts, also), ...hardwareFacts(facts)]
}

/** Reports whether the whole workload.json is pinned, not only the operator, who may choose another one. */
function isWorkloadPinned(checks: readonly Check[]): boolean {
  const pin = checks.find(({ name }) => name === pinCheckName('allowlist'))
  return pin?.outcome === 'pass' && pin.reason.includes('workload.json')
}

function workloadFacts(checks: readonly Check[]): Fact[] {
  return isWorkloadPinned(checks) ? [['runs', 'with the models and settings of the workload.json that you pinned']] : []
}

function openWorkload({ found, checks }: GatewayWords): string[] {
  if (found?.workload == null || isWorkloadPinned(checks)) return []
  return ['that it keeps these models and settings: its operator chooses workload.json, and you pinned none']
}

/** Describes settings that let others read more. A good verdict has only those that were allowed. */
function settingLines(workload: WorkloadDocument | null): string[] {
  if (workload === null) return []
  return exposuresIn(workload.gateway).map(name => `besides, by the setting ${name}: ${EXPOSURE_WORDS[name]}`)
}

/** Returns the reasons of checks on the API key. */
function keyLines(checks: readonly Check[]): string[] {
  const names = [keyMakerCheckName, 'gateway-key-maker']
  return checks
    .filter(({ name, outcome }) => names.includes(name) && outcome === 'pass')
    .map(({ reason }) => `your key: ${reason}`)
}

function promptFacts({ workload }: GatewayVerdict, { checks }: GatewayWords): Fact[] {
  return lines().map(text => ['prompts', text] as const)

  function lines(): string[] {
    if (workload === null) return [withoutWorkload()]
    const { worker, upstreams } = workload
    const outside = upstreams.map(outsideLine)
    const only = outside.length === 0 ? 'only inside' : 'inside'
    const inside =
      worker === null
        ? []
        : [`${only}: ${hostName(worker.model)} runs in the measured VM, model file ${worker.disk.fileSha256}`]
    const all = [...listed(outside, 'upstreams OUTSIDE'), ...inside]
    return all.length === 0 ? ['nowhere: the gateway has no models'] : all
  }

  function withoutWorkload(): string {
    const isNamed = checks.some(({ name, outcome }) => name === 'gateway-configuration' && outcome === 'pass')
    return isNamed
      ? 'to the upstreams in your --configuration'
      : 'unknown: no document of the gateway names its upstreams'
  }
}

function outsideLine(upstream: WorkloadUpstream): string {
  const { name, url, models, attestation } = upstream
  const attested = attestation === undefined ? '' : `, attested ${attestationWords(attestation)}`
  return `OUTSIDE${attested}: ${hostNames(models)} to ${hostName(name)} at ${hostAddress(url)} (${trustText(upstream)})`
}

function trustText({ url, spkiSha256, ca }: WorkloadUpstream): string {
  if (!url.startsWith('https:')) return 'without TLS: everybody on the way can read them'
  if (spkiSha256 !== null) return `by TLS with the key ${shortText(spkiSha256)}`
  return ca === null ? 'by TLS, under public authorities' : 'by TLS, under an authority of its own'
}

/** Returns facts about this exchange from its receipt. */
function exchangeFacts({ requestId }: ResponseClaim, checks: readonly Check[]): Fact[] {
  const receipt = checks.find(({ name }) => name === 'response-receipt')
  const where = receipt === undefined ? '' : `; its receipt was found ${receipt.reason}`
  return [['you may', `it is the answer to this very request, ${hostName(requestId)}, unchanged${where}`]]
}

function answerFacts({ model, upstream, coverage }: ResponseClaim, checks: readonly Check[]): Fact[] {
  const check = checks.find(({ name }) => name === 'response-upstream')
  const where =
    coverage === 'inside' ? 'inside the measured VM' : `${check?.reason.replace(/^accepted /, '') ?? 'OUTSIDE'}`
  const who = coverage === 'inside' ? `, by the upstream ${hostName(upstream)}` : ''
  return [['answered by', `model ${hostName(model)}, ${where}${who}`]]
}

/** Returns options for upstreams and settings that workload.json has and the command line does not accept. */
function acceptedBy({ found, checks, outside, allow }: GatewayWords): Added {
  const workload = found?.workload ?? null
  if (workload === null) return []
  const upstreams = isFailed(checks, 'workload-upstreams') ? workload.upstreams : []
  const strange = upstreams.filter(({ name, url }) => !isAllowed(outside, name, originOf(url)))
  const settings = isFailed(checks, 'workload-settings') ? exposuresIn(workload.gateway) : []
  return [
    ...strange.flatMap(({ name, url }) => ['--allow-outside', outsideEntry(name, url)]),
    ...settings.filter(name => !allow.includes(name)).flatMap(name => ['--allow', name]),
  ]
}

/** Returns the option for the upstream that answered, unless workload.json has it, because its entry contains more. */
function acceptedUpstream({ found, checks, outside }: GatewayWords, claim: ResponseClaim | null): Added {
  if (claim === null || claim.coverage === 'inside' || !isFailed(checks, 'response-upstream')) return []
  const { upstream } = claim
  const isListed = found?.workload?.upstreams.some(({ name }) => name === upstream) === true
  // An upstream that answered without the evidence that it must show cannot be accepted by its name.
  return isListed || isAllowed(outside, upstream) ? [] : ['--allow-outside', upstream]
}
