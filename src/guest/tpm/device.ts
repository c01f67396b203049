// The TPM as the kernel gives it to root: /dev/tpmrm0. Effects: one character device.
//
// The kernel's resource manager separates our handles from others' and drops them when we close. Its driver may wait
// minutes for a silent TPM, so calls run off this thread, and a caller here waits at most `timeoutMs`.

import * as fs from 'node:fs'
import { systemErrorCode } from '../../base/fault.ts'
import { tpmMessageBytesMax } from './command.codec.ts'

/** Sends a command and resolves with its response. Rejects without a response within `timeoutMs`. */
export type Transmit = (command: Uint8Array, timeoutMs?: number) => Promise<Uint8Array>

export type TpmDevice = {
  /** Drops the handles that were created in the session. One session at a time. */
  readonly session: <T>(use: (transmit: Transmit) => Promise<T>) => Promise<T>
}

/** Null if there is no TPM. */
export function openTpmDevice(path: string, bounds: { readonly timeoutMs: number }): TpmDevice | null {
  if (!fs.existsSync(path)) return null
  let isStuck = false
  return {
    session: async use => {
      // A call stuck in the kernel holds a thread: no second one.
      if (isStuck) throw new Error('the TPM has not answered an earlier command')
      const file = await fs.promises.open(path, fs.constants.O_RDWR)
      const transmit: Transmit = async command => {
        await file.write(command)
        const response = new Uint8Array(tpmMessageBytesMax)
        const { bytesRead } = await file.read(response, 0, response.length, null)
        return response.slice(0, bytesRead)
      }
      const bounded: Transmit = async (command, timeoutMs = bounds.timeoutMs) => {
        const answer = transmit(command).catch(error => {
          throw new Error(`${path}: ${systemErrorCode(error) ?? String(error)}`)
        })
        const timer = Promise.withResolvers<never>()
        const late = setTimeout(() => {
          isStuck = true
          timer.reject(new Error(`no answer within ${timeoutMs} ms`))
        }, timeoutMs)
        try {
          return await Promise.race([answer, timer.promise])
        } finally {
          clearTimeout(late)
          if (isStuck) void answer.catch(() => {}).finally(() => (isStuck = false))
        }
      }
      try {
        return await use(bounded)
      } finally {
        // Not awaited, because it would wait for a running call.
        void file.close().catch(() => {})
      }
    },
  }
}
