// Names of checks that more than one place looks for, apart from the code that checks: a summary needs only the names.

/** A build's source is the one that was ordered. */
export const sourceCheckName = 'source'

/** The upstream that answered is one that the relying party allows. */
export const upstreamCheckName = 'response-upstream'

/** Names the maker of the key that asked for a response. */
export const keyMakerCheckName = 'response-key-maker'

/** Fields of a policy for GPUs, each with a check of its own. */
export const GPU_POLICY_CHECKS = [
  ...(['gpu-policy-architecture', 'gpu-policy-driver-version', 'gpu-policy-vbios-version'] as const),
  ...(['gpu-policy-mode', 'gpu-policy-ueid', 'gpu-policy-device-serial'] as const),
] as const
