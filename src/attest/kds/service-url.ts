// The address of AMD's key distribution service, apart from the schema of the configuration: a command that reads a
// report takes it, too. Pure.

/** AMD's own service. */
export const kdsUrlDefault = 'https://kdsintf.amd.com'

export const kdsUrlLengthMax = 512

/** "" stands for no service. */
export const kdsUrlPattern = '^$|^https?://[^/?#@\\s]+(/[^?#\\s]*)?$'
