// Numbers that load.alone.test.ts and its programs share.

export const STREAMS = 2_000
export const EVENTS = 8
export const INTERVAL_MS = 1_000
/** Bytes that the upstream sends to the stalling reader. */
export const STALLED_BYTES = 1_000_000_000
