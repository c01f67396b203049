// The program of a schema child: takes jobs on stdin one by one and replies on stdout. Prints nothing else and holds
// only schemas. Its parent bounds its time and memory (child.ts); it drops unneeded system rights.

import { readSync, writeFileSync, writeSync } from 'node:fs'
import { confineForGood } from '../../linux/confine.ts'
import { makeBlocking } from '../../linux/libc/processes.ts'
import { type ContentCheck, compileSchema, SchemaRefusal } from './check.ts'
import { CompiledSchemas } from './compiled.ts'
import { decodeJob, encodeReply, type Job, jobBytesMax, type Reply } from './wire.ts'

/**
 * Runs the program until the parent closes the pipe. Throws if it cannot be confined, or the parent uses another
 * protocol.
 */
export function runSchemaChild(): void {
  // Loads all lazily loaded code now, because no file can be opened later.
  compileSchema('{"type":"object","properties":{"a":{"pattern":"^a$"}},"allOf":[{"$ref":"#"}]}')('{"a":"a"}')
  // Makes this process the kernel's first victim when memory is short. A process may always raise its own score
  // (proc(5)).
  writeFileSync('/proc/self/oom_score_adj', '1000')
  confineForGood()
  // The runtime makes the socket non-blocking.
  makeBlocking(stdinFd)
  reply({ verdict: 'ready' })
  for (let head = read(4); head !== null; head = read(4)) {
    const lengthBytes = head.readUInt32LE()
    if (lengthBytes > jobBytesMax) throw new RangeError('the job is too long')
    const bytes = read(lengthBytes)
    if (bytes === null) return
    reply(respond(decodeJob(bytes)))
  }
}

/** The same socket as stdout. */
const stdinFd = 0

const schemas = new CompiledSchemas(compileSchema)

function respond({ owner, scope, schema, contents }: Job): Reply {
  let check: ContentCheck
  try {
    check = schemas.get({ owner, scope, schema })
  } catch (error) {
    const message = error instanceof SchemaRefusal ? error.message : 'cannot be compiled'
    return { verdict: 'refused', message: message.toWellFormed() }
  }
  for (const content of contents) {
    const verdict = check(content)
    if (verdict !== 'valid') return { verdict }
  }
  return { verdict: 'valid' }
}

/** Reads that many bytes; null if the parent has closed the pipe. */
function read(lengthBytes: number): Buffer | null {
  const bytes = Buffer.allocUnsafe(lengthBytes)
  for (let at = 0; at < lengthBytes; ) {
    const count = readSync(0, bytes, at, lengthBytes - at, null)
    if (count === 0) return null
    at += count
  }
  return bytes
}

function reply(item: Reply): void {
  const bytes = encodeReply(item)
  for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at)
}
