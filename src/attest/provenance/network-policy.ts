// The network that a build could reach, as named in its provenance.

/** Values of `networkPolicy` in both statements and in the provenance. */
export const NETWORK_POLICIES = {
  /** Nothing could be fetched. */
  none: 'none',
  /** Fetch phase: the operator's list of hosts through one proxy. Build phase: no network. */
  fetchOnly: 'fetch-phase-allow-list-then-none',
} as const
export type NetworkPolicy = (typeof NETWORK_POLICIES)[keyof typeof NETWORK_POLICIES]
