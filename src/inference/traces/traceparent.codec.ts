// The header `traceparent` (W3C Trace Context, sections 3.2 and 4.3). Pure.

export type TraceParent = {
  readonly traceId: string
  readonly spanId: string
  readonly isSampled: boolean
}

/** Version, trace id, parent id, flags; additions of later versions follow after another hyphen. */
const FORM = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-[\x21-\x7e]{0,200})?$/
const version00Chars = 55
const sampledFlag = 1

/** Parses the header. Null if it is absent or invalid; then a new trace begins, but the request is valid. */
export function parseTraceparent(header: string | null): TraceParent | null {
  const [, version, traceId, spanId, flags] = FORM.exec(header ?? '') ?? []
  if (version === undefined || traceId === undefined || spanId === undefined || flags === undefined) return null
  if (version === 'ff' || isZero(traceId) || isZero(spanId)) return null
  if (version === '00' && header?.length !== version00Chars) return null
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & sampledFlag) === sampledFlag }
}

/** Returns the header of a recorded trace. */
export function traceparentOf(traceId: string, spanId: string): string {
  return `00-${traceId}-${spanId}-01`
}

function isZero(id: string): boolean {
  return /^0+$/.test(id)
}
