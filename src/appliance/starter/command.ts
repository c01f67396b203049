// Names of the starter that a process needs before it loads anything of it. Pure.

export const starterCommand = 'starter'
/** Names the starter's socket in the environment of a daemon whose unit forbids it the starts. */
export const starterVariable = 'STRONGROOM_STARTER'
