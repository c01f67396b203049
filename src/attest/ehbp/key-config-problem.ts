// Recognizes the problem document that requests EHBP clients to attest a gateway again (key-config.ts). Pure.

import { keyConfigProblem } from './protocol.ts'

/**
 * Reports whether a response means that the gateway cannot open a body sealed to these keys. It then has new keys:
 * attest it again. Such a response is not signed; it only proves that this request was not answered. `body`: the
 * response's text, within the caller's limit.
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
