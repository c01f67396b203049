// The length of a UNIX socket's path. Pure. A separate module, because measured programs need nothing else of sockets.

import { Fault } from '../../base/fault.ts'

/** sun_path holds 108 bytes with the final NUL (unix(7)). */
export const socketPathBytesMax = 107

/** Returns the path unchanged. Throws Fault host.unsupported if it is too long for a UNIX socket. */
export function checkSocketPath(path: string): string {
  const sizeBytes = Buffer.byteLength(path)
  if (sizeBytes > socketPathBytesMax) {
    throw new Fault(
      'host.unsupported',
      `socket path has ${sizeBytes} bytes, the limit is ${socketPathBytesMax}; use a shorter state directory: ${path}`,
    )
  }
  if (!path.startsWith('/') || path.includes('\0')) {
    throw new Fault('host.unsupported', `socket path is not absolute or holds NUL: ${JSON.stringify(path)}`)
  }
  return path
}
