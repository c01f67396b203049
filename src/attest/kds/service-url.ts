// The address of AMD's key distribution service. Apart from the configuration's schema, because a command that reads a
// report uses it too. Pure.

/** AMD's own service. */
export const kdsUrlDefault = 'https://kdsintf.amd.com'

export const kdsUrlLengthMax = 512

/** Accepts a base URL, or "" for no service. */
export const kdsUrlPattern = '^$|^https?://[^/?#@\\s]+(/[^?#\\s]*)?$'
