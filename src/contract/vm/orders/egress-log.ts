// Bounds of one row of the log of egress, which the broker of a VM writes and the client reads. Pure.

/** Longest destination: a DNS name. No share: limits one row. */
export const egressHostCharsMax = 253
/** Longest reason. One with a message of a peer is cut. No share: limits one row. */
export const egressReasonCharsMax = 400
