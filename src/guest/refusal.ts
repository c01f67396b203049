// What the guest says instead of doing it. Pure.

import type { AgentErrorCode } from '../contract/agent.ts'

export type Refusal = { readonly ok: false; readonly code: AgentErrorCode; readonly message: string }

export const ok = { ok: true } as const

/** `message` reaches the host: never anything out of a claim. */
export function refuse(code: AgentErrorCode, message: string): Refusal {
  return { ok: false, code, message: message.slice(0, messageCharsMax) }
}

/** AgentResponse.message. */
const messageCharsMax = 1024
