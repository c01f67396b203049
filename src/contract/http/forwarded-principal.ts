// The caller of a request that one host of a fleet passes on to another: the key's public part, never
// the key. Pure.

/** The result of the host that accepted the request. The other host looks the key up again, by its prefix. */
export type ForwardedPrincipal = {
  readonly organizationId: string
  readonly keyPrefix: string
  /** The least that this request needs, however much the key may do. */
  readonly scope: 'read' | 'write'
}

/** Null for a caller without a key. The method determines the required scope. */
export function principalOf(
  { organizationId, keyPrefix }: { readonly organizationId: string | null; readonly keyPrefix: string | null },
  method: string,
): ForwardedPrincipal | null {
  if (organizationId === null || keyPrefix === null) return null
  return { organizationId, keyPrefix, scope: method === 'GET' || method === 'HEAD' ? 'read' : 'write' }
}

/** `ca`: the kind of the key. */
export function principalText(principal: ForwardedPrincipal | null): string {
  if (principal === null) return '-'
  const { organizationId, keyPrefix, scope } = principal
  return `ca:${organizationId}:${keyPrefix}:${scope}`
}

const TEXT = /^ca:([\w-]{1,64}):([a-z0-9]{8}):(read|write)$/

/** Undefined for any other text. */
export function parsePrincipal(text: string): ForwardedPrincipal | null | undefined {
  if (text === '-') return null
  const [, organizationId, keyPrefix, scope] = TEXT.exec(text) ?? []
  if (organizationId === undefined || keyPrefix === undefined) return undefined
  return { organizationId, keyPrefix, scope: scope === 'write' ? 'write' : 'read' }
}
