// A claim's environment and message of the day for every session of the login user, as text. Pure.

import type { Claim } from '../contract/vm/claim.ts'
import { endpointBaseUrl, endpointOrigin } from './gateway/address.ts'

/** Variables of logins and of `ssh HOST COMMAND` alike. `key`: the gateway key that the guest drew, or null. */
export function sessionEnvironment({ inference }: Claim, key: string | null): Record<string, string> {
  const { baseUrl } = inference
  return {
    // The endpoint in this VM, which forwards to the verified gateway.
    ...(baseUrl === '' ? {} : { OPENAI_BASE_URL: endpointBaseUrl, ANTHROPIC_BASE_URL: endpointOrigin }),
    ...(key === null ? {} : { OPENAI_API_KEY: key, ANTHROPIC_API_KEY: key }),
    ...opencodeSwitches,
  }
}

/** The packaged agent starts without calls to others: no list of models, no update, no language servers, no plugins. */
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

/** Returns the text that sshd prints when someone logs in to a terminal; at most 80 columns, except for long names. */
export function messageOfTheDay({ hostname, inference }: Claim): string {
  const agent =
    inference.baseUrl === ''
      ? ['opencode, or opencode run "...". No gateway is configured here: name a', 'provider of your own to it.']
      : [
          `opencode, or opencode run "...". Model: ${inference.model}`,
          'OPENAI_BASE_URL and OPENAI_API_KEY are set for other clients,',
          'and so are ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY.',
          'For others: strongroom-agents install claude-code (or codex).',
        ]
  const topics: Record<string, readonly string[]> = {
    Measured: [
      'firmware, kernel, command line and this whole root file system; what',
      'has been written since lies over it. Inside: strongroom-verify',
      `Outside: strongroom verify instance ${hostname}`,
    ],
    Agent: agent,
    ...(inference.gateway.kind === 'none' ? {} : { Gateway: gatewayWords(inference.gateway) }),
    Packages: [
      'private-root apt-get update, private-root apt-get install NAME, and',
      'private-root NAME to run it. You are root in there and nowhere else:',
      "the machine's root could forge what this VM attests.",
    ],
    Egress: [
      'capped for the life of this VM; egress_bytes of GET /v1/usage is',
      'how much is used. When it is spent, only answers to your SSH go out,',
      'and few: copy your work away (scp, rsync) in good time.',
    ],
    'Your work': [
      'is in your home and ends with this VM. On your machine,',
      'strongroom snapshot takes an encrypted copy.',
    ],
  }
  const lines = Object.entries(topics).flatMap(([topic, texts]) =>
    texts.map((text, index) => `${(index === 0 ? topic : '').padEnd(11)}${text}`),
  )
  return `${hostname}: a Strongroom instance\n\n${lines.join('\n')}\n\n`
}

type NamedGateway = Exclude<Claim['inference']['gateway'], { readonly kind: 'none' }>

/** Describes whether the gateway is attested, and the owner's options. */
function gatewayWords(gateway: NamedGateway): readonly string[] {
  if (gateway.kind === 'attested') {
    const outside =
      gateway.outside.length === 0 ? [] : [`OUTSIDE of its VM prompts may go to: ${gateway.outside.join(', ')}`]
    return [
      'proves with its evidence what it runs before it receives a prompt.',
      ...outside,
      'What it must prove: strongroom-gateway show',
    ]
  }
  return [
    'NOT ATTESTED: its operator can read your prompts.',
    `${UNATTESTED[gateway.why]}`,
    'To require evidence of it: strongroom-gateway set',
  ]
}

const UNATTESTED = {
  host: "It runs in the host's own process, outside of any measured VM.",
  'no-worker': 'Its VM has no worker of its own: prompts go to upstreams outside.',
  elsewhere: 'Its operator runs it elsewhere, and whether it has evidence is unknown.',
} as const satisfies Record<Extract<NamedGateway, { readonly kind: 'unattested' }>['why'], string>
