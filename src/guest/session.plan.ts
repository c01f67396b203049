// What a claim gives to every session of the login user: environment and message of the day, as text. Pure.

import type { Claim } from '../contract/agent.ts'
import { authorityOf } from './authority.plan.ts'

export type SessionFacts = {
  /** Whether the system's trust store has the authority of the claim. */
  readonly authorityIsTrusted: boolean
  readonly gatewayCa: string
  readonly caBundle: string
}

/** Variables of logins and of `ssh HOST COMMAND` alike. */
export function sessionEnvironment({ inference }: Claim, facts: SessionFacts): Record<string, string> {
  const { baseUrl, key } = inference
  return {
    ...(baseUrl === '' ? {} : { OPENAI_BASE_URL: baseUrl }),
    ...(key === null ? {} : { OPENAI_API_KEY: key }),
    // For programs that bring authorities of their own: Python's certifi, Node from elsewhere than Debian.
    ...(facts.authorityIsTrusted
      ? { SSL_CERT_FILE: facts.caBundle, REQUESTS_CA_BUNDLE: facts.caBundle, NODE_EXTRA_CA_CERTS: facts.gatewayCa }
      : {}),
    ...opencodeSwitches,
  }
}

/** The packaged agent asks nobody but the gateway when it starts: no list of models, no update, no language servers, no plugins. */
const opencodeSwitches = {
  OPENCODE_DISABLE_AUTOUPDATE: '1',
  OPENCODE_DISABLE_DEFAULT_PLUGINS: '1',
  OPENCODE_DISABLE_LSP_DOWNLOAD: '1',
  OPENCODE_DISABLE_MODELS_FETCH: '1',
} as const

/** The one SetEnv line of sshd_config(5): a second one would be ignored. Empty without variables. */
export function sshdEnvironment(variables: Readonly<Record<string, string>>): string {
  const words = Object.entries(variables).map(([name, value]) => `"${name}=${value.replace(/["\\]/g, '\\$&')}"`)
  return words.length === 0 ? '' : `SetEnv ${words.join(' ')}\n`
}

/** Printed by sshd when someone logs in to a terminal; at most 80 columns but for long names. */
export function messageOfTheDay(
  { hostname, inference }: Claim,
  { authorityIsTrusted, gatewayCa }: SessionFacts,
): string {
  const agent =
    inference.baseUrl === ''
      ? ['opencode, or opencode run "...". No gateway is configured here: name a', 'provider of your own to it.']
      : [
          `opencode, or opencode run "...". Model: ${inference.model}`,
          'OPENAI_BASE_URL and OPENAI_API_KEY are set for other clients, too.',
          ...(authorityOf(inference.gateway) === null || authorityIsTrusted ? [] : [`Its authority: ${gatewayCa}`]),
        ]
  const topics: Record<string, readonly string[]> = {
    Measured: [
      'firmware, kernel, command line and this whole root file system; what',
      'has been written since lies over it. Inside: strongroom-verify',
      `Outside: strongroom verify instance ${hostname}`,
    ],
    Agent: agent,
    Packages: [
      'private-root apt-get update, private-root apt-get install NAME, and',
      'private-root NAME to run it. You are root in there and nowhere else:',
      "the machine's root could forge what this VM attests.",
    ],
    Egress: [
      'capped for the life of this VM; egress_bytes of GET /v1/usage says',
      'how much is used. When it is spent, only answers to your SSH go out,',
      'and few: copy your work away (scp, rsync) in good time.',
    ],
    'Your work': ['is in your home and ends with this VM.'],
  }
  const lines = Object.entries(topics).flatMap(([topic, texts]) =>
    texts.map((text, index) => `${(index === 0 ? topic : '').padEnd(11)}${text}`),
  )
  return `${hostname}: a Strongroom instance\n\n${lines.join('\n')}\n\n`
}
