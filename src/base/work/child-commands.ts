// Commands by which the executable starts itself as a child. People never type them. A process compares its arguments
// with them before it loads any service. Pure.

/** Serves clients of the gateway in a process of its own. */
export const relayCommand = 'gateway-relay'

/** Compiles schemas of structured outputs, and checks contents against them. */
export const schemaChildCommand = 'schema-check-child'

/** Starts processes for a daemon whose unit forbids it to. */
export const starterCommand = 'starter'
/** The environment variable with the starter's socket. */
export const starterVariable = 'STRONGROOM_STARTER'
