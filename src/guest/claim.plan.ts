// A claim as files and names of the guest. Pure.

import { fromBase64 } from '../base/bytes.ts'
import { egressPolicyProblem } from '../contract/http/egress-policy.ts'
import type { Claim } from '../contract/vm/claim.ts'
import { endpointBaseUrl } from './gateway/address.ts'
import { type GatewaySettings, gatewayProblem } from './gateway/expectation.codec.ts'
import { sshKeyType } from './keys/ssh-host-key.codec.ts'
import type { GuestPaths } from './paths.ts'
import { messageOfTheDay, sessionEnvironment, sshdEnvironment } from './session.plan.ts'

export type PlannedFile = {
  readonly path: string
  readonly content: string
  readonly mode: number
  readonly owner: 'system' | 'login'
}

/** The parts of a claim that /etc/hosts names. */
export type ClaimNames = Pick<Claim, 'hostname' | 'name'> & {
  readonly inference: Pick<Claim['inference'], 'address' | 'baseUrl'>
}

export type PlannedDirectory = { readonly path: string; readonly mode: number }

export type ClaimPlan = {
  /** Kernel host name: the instance's short name, as Linux allows 64 characters only. */
  readonly hostname: string
  /** Owned by the login user; parents come first. */
  readonly directories: readonly PlannedDirectory[]
  readonly files: readonly PlannedFile[]
}

type ClaimPaths = Pick<
  GuestPaths,
  | 'authorizedKeys'
  | 'brokerState'
  | 'gatewayKey'
  | 'gatewaySettings'
  | 'hosts'
  | 'hostname'
  | 'loginHome'
  | 'motd'
  | 'ownGateway'
  | 'ownGatewayDir'
  | 'sshdEnvironment'
>

/** Checks beyond the schema: the first wrong field, never its value, or null. */
export function claimProblem(claim: Claim, platform: GatewaySettings['platform']): string | null {
  const { address, baseUrl, gateway, drawsKey, model } = claim.inference
  if (!VISIBLE_ASCII.test(claim.organization)) return 'claim.organization: not a valid name'
  if (!HOST_NAME.test(claim.hostname)) return 'claim.hostname: not a valid host name'
  const unreachable = claim.egress.policy === undefined ? null : egressPolicyProblem(claim.egress.policy)
  if (unreachable !== null) return `claim.${unreachable}`
  if (!isPublicKeyLine(claim.publicKey)) return 'claim.publicKey: not one OpenSSH public key'
  if (baseUrl === '' && address !== null) return 'claim.inference.address: without a baseUrl'
  if (baseUrl === '' && gateway.kind !== 'none') return 'claim.inference.gateway: without a baseUrl'
  if (baseUrl === '') return drawsKey ? 'claim.inference.drawsKey: without a baseUrl' : null
  if (!isHttpUrl(baseUrl)) return 'claim.inference.baseUrl: not an http or https address'
  if (address !== null && !isHostName(new URL(baseUrl).hostname)) return 'claim.inference.address: baseUrl has no name'
  if (!VISIBLE_ASCII.test(model)) return 'claim.inference.model: not a model name'
  if (gateway.kind === 'none') return 'claim.inference.gateway: none, but there is a baseUrl'
  const problem = gatewayProblem(gateway, { baseUrl, platform })
  return problem === null ? null : `claim.inference.gateway.${problem}`
}

type Planning = {
  readonly paths: ClaimPaths
  readonly platform: GatewaySettings['platform']
  /** The gateway key that the guest drew; null if the claim requests none. */
  readonly key: string | null
}

/**
 * Call it only for a claim without a problem. The system's trust store is unchanged: only the endpoint uses the
 * claim's CA.
 */
export function planClaim(claim: Claim, { paths, platform, key }: Planning): ClaimPlan {
  const configDir = `${paths.loginHome}/.config`
  const opencodeDir = `${configDir}/opencode`
  const pluginLock = `${opencodeDir}/${pluginLockFile}`
  const files: PlannedFile[] = [
    { path: paths.hostname, content: `${claim.name}\n`, mode: 0o644, owner: 'system' },
    { path: paths.hosts, content: hosts(claim), mode: 0o644, owner: 'system' },
    { path: `${opencodeDir}/opencode.json`, content: opencodeConfig(claim, key), mode: 0o600, owner: 'login' },
    { path: pluginLock, content: opencodePluginLock, mode: 0o644, owner: 'login' },
    // sshd(8) reads it as the login user, so that user must be able to; StrictModes requires that only root can write
    // it.
    { path: paths.authorizedKeys, content: `${claim.publicKey}\n`, mode: 0o644, owner: 'system' },
  ]
  const { baseUrl, gateway } = claim.inference
  const environment = sshdEnvironment(sessionEnvironment(claim, key))
  files.unshift(
    { path: paths.motd, content: messageOfTheDay(claim), mode: 0o644, owner: 'system' },
    { path: paths.sshdEnvironment, content: environment, mode: 0o600, owner: 'system' },
  )
  if (gateway.kind !== 'none') {
    const settings: GatewaySettings = { baseUrl, gateway, platform }
    files.unshift({ path: paths.gatewaySettings, content: JSON.stringify(settings), mode: 0o644, owner: 'system' })
  }
  if (key !== null) files.unshift({ path: paths.gatewayKey, content: `${key}\n`, mode: 0o600, owner: 'login' })
  const own = [configDir, opencodeDir, `${opencodeDir}/node_modules`].map(path => ({ path, mode: 0o700 }))
  // The endpoint, which is another user, reads files that the owner writes there.
  const directories = [...own, { path: paths.ownGatewayDir, mode: 0o755 }]
  return { hostname: claim.name, directories, files }
}

/** Files that a claim may have created, for the undo after an agent died in the middle. */
export function claimLeftovers(paths: ClaimPaths): string[] {
  const opencodeDir = `${paths.loginHome}/.config/opencode`
  const { authorizedKeys, brokerState, gatewayKey, gatewaySettings, ownGateway, sshdEnvironment } = paths
  return [
    authorizedKeys,
    brokerState,
    gatewayKey,
    gatewaySettings,
    ownGateway,
    sshdEnvironment,
    ...['opencode.json', pluginLockFile].map(name => `${opencodeDir}/${name}`),
  ]
}

/**
 * opencode installs its plugin library from npm into each configuration directory at every start, unless a lock there
 * names it beside a `node_modules`.
 */
const pluginLockFile = 'package-lock.json'
const opencodePluginLock = `${JSON.stringify({ packages: { '': { dependencies: { '@opencode-ai/plugin': '*' } } } })}\n`

/** RFC 1123 2.1. */
const HOST_NAME = /^(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/i
const VISIBLE_ASCII = /^[\x21-\x7e]+$/

/** sshd(8), AUTHORIZED_KEYS FILE FORMAT, without options: an option could be a command of the host. */
const PUBLIC_KEY_LINE =
  /^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)|sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com) ([A-Za-z0-9+/]+={0,2})(?: [^\p{Cc}]*)?$/u

/** Excludes an address, which needs no entry in hosts(5). */
function isHostName(text: string): boolean {
  return HOST_NAME.test(text) && /[a-z]/.test(text)
}

/** Reports whether the line is one OpenSSH public key of a type that logs in, without options. */
export function isPublicKeyLine(line: string): boolean {
  const [, type, base64] = line.match(PUBLIC_KEY_LINE) ?? []
  const blob = base64 === undefined ? null : fromBase64(base64)
  return blob !== null && sshKeyType(blob) === type
}

function isHttpUrl(text: string): boolean {
  const url = VISIBLE_ASCII.test(text) ? URL.parse(text) : null
  return (
    url !== null &&
    (url.protocol === 'http:' || url.protocol === 'https:') &&
    url.username === '' &&
    url.password === ''
  )
}

/** hosts(5). As in Debian, the own name resolves without the network. */
export function hosts({ hostname, name, inference: { address, baseUrl } }: ClaimNames): string {
  const names = hostname === name ? name : `${hostname} ${name}`
  const gateway = address === null ? '' : `${address} ${new URL(baseUrl).hostname}\n`
  return `127.0.0.1 localhost\n127.0.1.1 ${names}\n::1 localhost\n${gateway}`
}

/** https://opencode.ai/config.json. Without a gateway (empty baseUrl) the customer names a provider. */
function opencodeConfig({ inference }: Claim, key: string | null): string {
  const config = {
    $schema: 'https://opencode.ai/config.json',
    autoupdate: false,
    share: 'disabled',
    ...(inference.baseUrl === '' ? {} : opencodeProvider(inference, key)),
  }
  return `${JSON.stringify(config, null, 2)}\n`
}

/** Context of a model for which the claim gives none: less than current models have, enough for the agent's prompt. */
const contextTokensUnknown = 32_768
/** Share of the context for one response; the prompt needs the rest. */
const outputShare = 8

/** `{file:…}` is relative to the configuration file. */
function opencodeProvider({ model, contextTokens }: Claim['inference'], key: string | null) {
  const options = { baseURL: endpointBaseUrl, ...(key === null ? {} : { apiKey: '{file:./inference.key}' }) }
  const context = contextTokens ?? contextTokensUnknown
  return {
    enabled_providers: ['strongroom'],
    model: `strongroom/${model}`,
    small_model: `strongroom/${model}`,
    provider: {
      strongroom: {
        npm: '@ai-sdk/openai-compatible',
        name: 'Strongroom',
        options,
        models: { [model]: { name: model, limit: { context, output: Math.floor(context / outputShare) } } },
      },
    },
  }
}
