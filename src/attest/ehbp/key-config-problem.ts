// Reads the problem document that sends EHBP clients to attest a gateway again (key-config.ts). Pure.

import { keyConfigProblem } from './protocol.ts'

/**
 * Whether a response says that the gateway cannot open what was sealed to these keys. It has other keys then: attest it
 * again. Such a response is not signed and proves only that this request was not answered. `body`: its text, within
 * the caller's bound.
 */
export function isKeyConfigProblem(response: {
  readonly status: number
  readonly contentType: string | null
  readonly body: string
}): boolean {
  const { status, mediaType, type } = keyConfigProblem
  if (response.status !== status) return false
  if (response.contentType?.split(';', 1)[0]?.trim().toLowerCase() !== mediaType) return false
  try {
    const problem: unknown = JSON.parse(response.body)
    return typeof problem === 'object' && problem !== null && 'type' in problem && problem.type === type
  } catch {
    return false
  }
}
