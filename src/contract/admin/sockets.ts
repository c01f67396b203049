// Names of the operator's sockets, in the state directory. Pure.

export const adminSocketName = 'admin.sock'
/** Shows states only, to a group of the configuration. */
export const monitorSocketName = 'monitor.sock'
