// The starter: a process of this executable for one start, which systemd makes for each connection
// (strongroom-starter@.service). It may make namespaces and become other users, which the daemon may not. Effects:
// processes.
//
// The starter starts programs as unprivileged users in a jail or a sandbox, and its own checks of schemas, regardless
// of the daemon's request. A VM's program outlives it. For the others it stays, and both end when the daemon's
// connection does.

import { present } from '../../base/assert.ts'
import { messageOf } from '../../base/fault.ts'
import { checkedJson } from '../../contract/check.ts'
import { receiveLine } from '../../host/descriptors.ts'
import { startSandboxed } from '../../host/sandbox.ts'
import { groupsOfDevices } from '../../host/system.ts'
import { startOwnSchemaProcess } from '../../inference/schema-check/child.ts'
import { adoptSocket } from '../../linux/libc/sockets.ts'
import { type JailedStart, startJailed } from '../../vm/launch/jailed.driver.ts'
import { requestBytesMax, type SandboxedRequest, type StarterEvent, StarterRequest } from './wire.ts'

/** The daemon's connection (systemd.exec(5), StandardInput=socket). */
const connection = 0

/** Never throws; returns when there is nothing left to do. */
export async function runStarter(): Promise<void> {
  const closed = Promise.withResolvers<void>()
  let line: string
  let fds: number[]
  try {
    ;({ line, fds } = receiveLine(connection, requestBytesMax))
  } catch (error) {
    process.stderr.write(`${messageOf(error)}\n`)
    return
  }
  const daemon = await talkTo(connection, closed.resolve)
  const { say } = daemon
  try {
    const request = checkedJson(StarterRequest, Buffer.from(line), { what: 'request', code: 'host.command_failed' })
    if (request.kind === 'jailed') {
      checkStart(request.start)
      const { pid, startTicks } = await startJailed(request.start, fds)
      say({ kind: 'started', pid, startTicks })
    } else {
      const child =
        request.kind === 'sandboxed'
          ? startInSandbox(request, say)
          : await startOwnSchemaProcess(present(fds[0], 'a descriptor'))
      say({ kind: 'started', pid: child.pid, startTicks: 0 })
      await Promise.race([child.exited, closed.promise])
      await child.kill()
      say({ kind: 'exited', exitCode: await child.exited })
    }
  } catch (error) {
    say({ kind: 'failed', message: messageOf(error) })
  }
  await daemon.end()
}

function startInSandbox({ sandbox, command, lineBytesMax }: SandboxedRequest, say: (event: StarterEvent) => void) {
  return startSandboxed(sandbox, command, { lineBytesMax, onLine: text => say({ kind: 'line', text }) })
}

/** `onEnd`: called when the daemon requests the end, or has ended. */
async function talkTo(fd: number, onEnd: () => void) {
  let pending = Buffer.alloc(0)
  const flushed = Promise.withResolvers<void>()
  const gone = () => {
    onEnd()
    flushed.resolve()
  }
  let isEnding = false
  const flush = (socket: Bun.Socket) => {
    pending = pending.subarray(Math.max(0, socket.write(pending)))
    if (isEnding && pending.length === 0) flushed.resolve()
  }
  const socket = await adoptSocket({ fd, socket: { data: onEnd, drain: flush, close: gone, error: gone } })
  return {
    say: (event: StarterEvent) => {
      if (event.kind === 'line' && pending.length > pendingBytesMax) return
      pending = Buffer.concat([pending, Buffer.from(`${JSON.stringify(event)}\n`)])
      flush(socket)
    },
    end: async () => {
      isEnding = true
      flush(socket)
      await flushed.promise
      socket.end()
    },
  }
}

/** A daemon that reads nothing misses lines. */
const pendingBytesMax = 1_048_576

/** Users of VMs alone, groups of the platform's devices alone, and the log of that VM. Throws. */
function checkStart({ uuid, role, files, argv, logFile }: JailedStart): void {
  const uid = role.kind === 'tpm' ? role.uid : role.confinement.uid
  const groups = role.kind === 'tpm' ? [] : role.confinement.groups
  if (uid < uidMin) throw new Error(`user ${uid} is one of the system`)
  const allowed = role.kind === 'tpm' ? [] : groupsOfDevices(role.confinement.platform)
  const foreign = groups.find(group => !allowed.includes(group))
  if (foreign !== undefined) throw new Error(`group ${foreign} has none of the devices`)
  if (!files.includes(argv[0] ?? '')) throw new Error(`${argv[0]} is not in the jail`)
  if (!logFile.endsWith(`/vms/${uuid}/${role.kind === 'tpm' ? 'tpm' : 'qemu'}.log`)) throw new Error(`log ${logFile}`)
}

/** Smaller numbers belong to the system (Debian Policy, 9.2.2). */
const uidMin = 1_000
