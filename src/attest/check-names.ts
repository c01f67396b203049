// Names of checks that several modules look up. Apart from the checks themselves, because a summary needs only names.

/** Passes if a build used the source that was ordered. */
export const sourceCheckName = 'source'

/** Passes if the relying party allows the upstream that answered. */
export const upstreamCheckName = 'response-upstream'

/** Identifies who made the key that requested a response. */
export const keyMakerCheckName = 'response-key-maker'

/** Checks of a GPU policy, one for each of its fields. */
export const GPU_POLICY_CHECKS = [
  ...(['gpu-policy-architecture', 'gpu-policy-driver-version', 'gpu-policy-vbios-version'] as const),
  ...(['gpu-policy-mode', 'gpu-policy-ueid', 'gpu-policy-device-serial'] as const),
] as const
