// Names of the checks of a policy for switches and for a whole machine. Apart, because a summary needs only names.

export const HGX_POLICY_CHECKS = [
  'gpu-policy-topology',
  'gpu-policy-switch-bios-version',
  'gpu-policy-switch-serial',
] as const
