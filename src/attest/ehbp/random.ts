// Randomness that callers pass in. Types only.

/** `random(n)` gives n bytes that nobody can predict. */
export type Random = (lengthBytes: number) => Uint8Array
