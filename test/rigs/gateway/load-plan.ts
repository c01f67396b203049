// Numbers that load.alone.test.ts and its programs share.

export const STREAMS = 2_000
export const EVENTS = 8
export const INTERVAL_MS = 1_000
/** What the upstream has for the reader that stalls. */
export const STALLED_BYTES = 1_000_000_000
