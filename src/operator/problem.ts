// What the admin interface answers when it refuses or fails. Pure.

import { ValidationError } from 'elysia'
import { Fault, messageOf } from '../base/fault.ts'
import type { AdminProblem } from '../contract/admin.ts'

/** Anything thrown in a handler of the admin interface, as a fault. */
export function adminFault(error: unknown): Fault {
  if (error instanceof Fault) return error
  if (error instanceof ValidationError) {
    const [first] = error.all
    const path = first !== undefined && 'path' in first ? String(first.path).slice(1) : ''
    // What we answer with is checked too; that it is wrong is our fault, not the caller's.
    if (error.type === 'response') return new Fault('internal', `answer does not fit its schema at ${path || '/'}`)
    return new Fault('invalid_request', `${error.type} does not fit its schema at ${path || '/'}`, {
      ...(path === '' ? {} : { param: path }),
    })
  }
  const code = Reflect.get(Object(error), 'code')
  if (code === 'NOT_FOUND')
    return new Fault('not_found', 'there is no such route; the daemon may be of another version')
  if (code === 'PARSE') return new Fault('invalid_request', 'the body is not JSON')
  return new Fault('internal', messageOf(error), { cause: error })
}

export function adminProblem(fault: Fault): AdminProblem {
  // Operators see the whole message, internal ones too: nobody else reaches this socket.
  const param = fault.param === undefined ? {} : { param: fault.param }
  return { error: { code: fault.code, message: fault.message, ...param } }
}
